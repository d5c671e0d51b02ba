"""Check a planned launch's total epsilon against its ceiling, and suggest changes that bring it below."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.release import Outlook
from pipeline.releases.terms import Terms
from pipeline.releases.total import total
from pipeline.releases.uses import RELEASES, releases
from reports.disclosure.total import Part, Total
from reports.losses import up

_STEPS = 60


def in_words(whole: Total) -> str:
    """List the parts of a total, each with its loss."""
    how = {"local": "local guarantee", "shuffled": "shuffled", "summed": "summed securely"}
    return ", ".join(
        f"{part.named} {up(part.epsilon)} ({how.get(part.how, f'rho {up(part.rho, 4)}')})"
        f"{' of a held-out device' if part.split == 'test' else ''}"
        for part in whole.parts
    )


def above_total(terms: Terms) -> list[str]:
    """Return a message if the launch may exceed ``policy.max_total_epsilon``, with changes that would avoid it."""
    config, whole, spends = terms.config, terms.total, terms.likely(terms.spends)
    most = config.policy.max_total_epsilon
    if whole.epsilon <= most:
        return []
    training = spends["fine_tune"].rho if "fine_tune" in spends else None
    seen = replace(terms.seen, training_rho=training or 0.0)
    fixes = [*_cheaper(config, spends, seen), *_more_noise(config, spends, whole)]
    return [
        f"policy.max_total_epsilon: {most:g}, but one device loses epsilon {up(whole.epsilon)} at delta "
        f"{whole.delta:g} at worst over all releases: {in_words(whole)}; "
        + (" or ".join(fixes) or "no change of a single part suffices: lower several, or have the ceiling reviewed")
    ]


def _cheaper(config: LaunchConfig, spends: Mapping[str, Spend], seen: Outlook) -> Iterator[str]:
    """Yield changes of single releases, other than noise, that make the total fit."""
    for release in releases(config):

        def fits(spend: Spend, stage: str = release.stage) -> bool:
            return total(config, {**spends, stage: spend}).epsilon <= config.policy.max_total_epsilon

        yield from release.cheaper(config, seen, fits)


def _more_noise(config: LaunchConfig, spends: Mapping[str, Spend], whole: Total) -> Iterator[str]:
    """Yield a noise multiplier for the costliest release of each part that makes the total fit."""
    words = whole.words
    blocks = {release.stage: release.block for release in RELEASES}
    for part in whole.parts:
        room = config.policy.max_total_epsilon - (words.epsilon if words and part.split == "train" else 0.0)
        if part.how != "noise" or part.rho is None or room <= 0 or part.epsilon <= room:
            continue
        noised = {name: spend.rho for name, spend in spends.items() if spend.rho and spend.split == part.split}
        dearest = max(noised, key=noised.__getitem__)
        failure = math.fsum(spend.failure for spend in spends.values() if spend.split == part.split)
        left = _rho_of(part, room, failure) - (part.rho - noised[dearest])
        if left > 0:
            block = blocks[dearest]
            before = getattr(config, block).noise_multiplier
            after = math.ceil(1e3 * before * math.sqrt(noised[dearest] / left)) / 1e3
            yield f"raise {block}.noise_multiplier from {before:g} to {after:g}"


def _rho_of(part: Part, epsilon: float, failure: float) -> float:
    """Largest rho, rounded down, whose epsilon at the part's delta is at most ``epsilon``."""
    from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

    assert part.rho is not None, "it is noised"
    low, high = 0.0, part.rho
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of_rho(middle, part.delta - failure) <= epsilon else (low, middle)
    return low
