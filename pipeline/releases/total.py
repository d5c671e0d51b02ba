"""Total (epsilon, delta) of one device over all releases of a launch, for planned and actual spends alike."""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.local_words import LOCAL_WORDS
from pipeline.releases.release import Results
from pipeline.releases.uses import RELEASES, releases
from pretrain.config import BEARING
from reports.disclosure.releases import ReleaseName
from reports.disclosure.total import Part, Total

# The noised release of each stage; locally discovered words have no rho.
_NOISED: Mapping[str, ReleaseName] = {release.stage: release.name for release in RELEASES if release is not LOCAL_WORDS}
Hidden = Literal["shuffled", "summed"]


def total(config: LaunchConfig, spends: Mapping[str, Spend]) -> Total:
    """Loss of one device to all of a launch's releases, at the launch's delta.

    Guarantee: unit one device; adjacency zero-out: the device's contribution is replaced by that of a device that typed
    nothing, which for a local discovery is as many messages that name no word, so swap covers it. Rho of noised
    releases on the same devices adds up, and so do their failures; messages of a local discovery have an epsilon of
    their own, at their part of delta, and join by basic composition. Two bounds hold for them, the certificate and the
    local one, and the lower sum is stated: a release is never left out because its loss is large.

    Args:
      spends: spend of every release by its stage, planned or actual.

    Raises:
      ValueError: failures and the words' part of delta sum to delta or more.
    """
    return _least(spends, "summed" if config.mechanism.secagg else "shuffled", config.mechanism.delta)


def spent_alone(spends: Mapping[str, Spend]) -> Total:
    """``total`` of what a launch spent itself, from the ledger alone: at the largest delta of its releases.

    Releases that it reuses from another launch are in that one's total.
    """
    return _least(spends, "shuffled", max(spend.delta for spend in spends.values()))


def _least(spends: Mapping[str, Spend], how: Hidden, delta: float) -> Total:
    sums = (_sum(spends, words, delta) for words in _words(spends, how, delta))
    return min(sums, key=lambda each: each.epsilon)


def totals(config: LaunchConfig, spends: Mapping[str, Spend], deltas: Iterable[float]) -> dict[float, Total]:
    """``total`` at each of several deltas, in place of the launch's own."""
    return {
        delta: total(
            config.model_copy(update={"mechanism": config.mechanism.model_copy(update={"delta": delta})}), spends
        )
        for delta in deltas
    }


def of_group(config: LaunchConfig, spends: Mapping[str, Spend], results: Results, devices: int) -> Total | None:
    """Loss of a person with several devices to all of a launch's releases, at the launch's delta.

    Guarantee: as ``total``, for ``devices`` devices that all contribute nothing in the neighbouring population. Their
    vectors are added, so that a Gaussian release moves by at most ``devices`` times its bound: rho grows by the square,
    and the exact curve holds at the same delta (Balle and Wang 2018, theorem 8). For words found locally the person
    sends ``devices`` times the messages: their local epsilon grows as often, at delta 0, and the certificate's is
    that of all these messages at the words' part of delta, which leaves to one message the delta of group privacy
    (Dwork and Roth 2014, theorem 2.2; ``discovery.certificates.group``). None if a release may fail: no such rule is
    known for that.

    Args:
      spends: of one device, by stage.
      results: returns the result of a stage.
    """
    from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

    if any(spend.failure for spend in spends.values()):
        return None
    of_all: dict[str, Spend] = {}
    for release in releases(config):
        spend = spends[release.stage]
        if release.again is not None:
            of_all[release.stage] = release.again(config, results(release.stage), devices)
        elif spend.rho is not None:
            rho = devices**2 * spend.rho
            of_all[release.stage] = spend.model_copy(update={"rho": rho, "epsilon": epsilon_of_rho(rho, spend.delta)})
    return total(config, of_all).model_copy(update={"devices": devices})


def _words(spends: Mapping[str, Spend], how: Hidden, delta: float) -> list[tuple[Part, ...]]:
    """Alternative bounds on the loss to messages of a local discovery; empty without local discovery."""
    spend = spends.get("discover")
    if spend is None or spend.unit == "device":
        return [()]
    local = Part(
        releases=(LOCAL_WORDS.name,),
        split="train",
        epsilon=spend.messages * spend.epsilon,
        delta=0.0,
        rho=None,
        how="local",
    )
    if not 0 < spend.device_delta < delta:
        return [(local,)]
    hidden = {"epsilon": spend.device_epsilon, "delta": spend.device_delta, "how": how}
    return [(local.model_copy(update=hidden),), (local,)]


def _sum(spends: Mapping[str, Spend], words: tuple[Part, ...], delta: float) -> Total:
    from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

    parts = list(words)
    for split in BEARING:
        noised = {name: spend for name, spend in spends.items() if spend.rho is not None and spend.split == split}
        if not noised:
            continue
        rho, failure = (math.fsum(getattr(spend, name) for spend in noised.values()) for name in ("rho", "failure"))
        left = delta - math.fsum(part.delta for part in words if part.split == split)
        if failure >= left:
            raise ValueError(
                f"mechanism.delta: {delta:g}, of which words have {delta - left:g} and failures {failure:g}, leaves "
                "nothing for noised releases; lower discovery.delta"
            )
        names, epsilon = tuple(_NOISED[stage] for stage in noised), epsilon_of_rho(rho, left - failure)
        parts.append(Part(releases=names, split=split, epsilon=epsilon, delta=left, rho=rho, how="noise"))
    epsilon = max(math.fsum(part.epsilon for part in parts if part.split == split) for split in BEARING)
    return Total(epsilon=epsilon, delta=delta, parts=tuple(parts))
