"""Central word discovery by a trusted aggregator: weighted Gaussian selection."""

import json

from discovery.config import CentralConfig
from evaluation.audit.verdict import Verdict
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.release import Outlook, Release, Stated, asked_for, overflows
from pipeline.run.stage import StageContext
from reports.disclosure.releases import CentralWords

# The released values of a discovery, in its private folder (``discovery.central.select.RELEASED``).
_KEPT = "central/released.json"
_TRUSTED = (
    "The aggregator of word discovery sees a bounded number of words from each device, adds them up, adds noise, and "
    "keeps only words above a threshold; it deletes the others."
)


def central_discovery(config: CentralConfig) -> Spend:
    """Spend of a central discovery: approximate zCDP of one device, known exactly before the release.

    Guarantee: that of ``discovery.central.select.select``; epsilon at ``delta`` by the exact Gaussian curve at
    ``delta`` less the threshold's failure (the hockey-stick divergences add up, Gopi et al. 2020, theorem 5.1).
    """
    from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

    epsilon = epsilon_of_rho(config.rho, config.delta - config.failure)
    return Spend(
        unit="device",
        adjacency="zero-out",
        rho=config.rho,
        epsilon=epsilon,
        delta=config.delta,
        note="words",
        failure=config.failure,
    )


def _config(config: LaunchConfig) -> CentralConfig:
    return asked_for(config.central_discovery)


def _spend(config: LaunchConfig, _: Outlook | Stated) -> Spend:
    return central_discovery(_config(config))


def _says(config: LaunchConfig) -> str:
    central = _config(config)
    return (
        f"weighted Gaussian selection of at most {central.words_per_device} words a device, noise multiplier "
        f"{central.noise_multiplier:g}, a threshold that fails with probability {central.failure:g} at most"
    )


def _needs(config: LaunchConfig, train: int) -> tuple[str, ...]:
    from discovery.central.select import cut_of
    from discovery.central.weighted_gaussian import MOST_DEVICES

    central = _config(config)
    # A device contributes at most weight 1 to a word.
    needed = cut_of(central).threshold
    if train < needed:
        return (
            f"discovery.noise_multiplier: {central.noise_multiplier:g} requires a weight of {needed:.3g} per word, "
            f"more than all {train}+ training devices can contribute; lower it, or have more devices",
        )
    return overflows("discovery", train, MOST_DEVICES, "write ldp-triehh")


def _block(config: LaunchConfig) -> CentralWords:
    from discovery.central.select import FILLED_SHARE, FORMS_SHARE, cut_of

    central, spend = _config(config), _spend(config, {})
    return CentralWords(
        rho=central.rho,
        epsilon=spend.epsilon,
        delta=central.delta,
        failure=central.failure,
        noise_multiplier=central.noise_multiplier,
        words_per_device=central.words_per_device,
        threshold=cut_of(central).threshold,
        forms_share=FORMS_SHARE,
        filled_share=FILLED_SHARE,
    )


def _audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on a central word discovery."""
    import numpy as np

    from discovery.device.typed import TypedWords
    from evaluation.audit.released.central_words import DiscoveryRelease, Rule, WordOccurrences, central_words_audit
    from pipeline.run import artifacts

    config, stated = _config(ctx.config), ctx.run.result("discover")
    kept = json.loads((ctx.private / _KEPT).read_text(encoding="utf-8"))
    words = {word.word: (word.share, word.low, word.high, word.form) for word in artifacts.discovered_words(ctx)}
    forms_RF = np.array(kept["forms"], dtype=np.int64)
    found = DiscoveryRelease(kept["weights"], kept["total"], forms_RF, stated["threshold"], words)
    typed = TypedWords.gather(artifacts.store(ctx).typed_words("train"), ctx.run.private("audit_releases"))
    rule = Rule.of(
        frozenset(artifacts.vocabulary(ctx, "ingest_public").words),
        config.words_per_device,
        config.noise_multiplier,
        stated["forms_share"],
        stated["filled_share"],
        config.failure,
    )
    return central_words_audit(found, WordOccurrences(typed.distinct, typed.starts, typed.numbers), rule, ctx.noise_key)


CENTRAL_WORDS = Release(
    stage="discover",
    name="central_words",
    block="discovery",
    asked=lambda config: config.central_discovery is not None,
    says=_says,
    planned=_spend,
    paid=_spend,
    neighbour="words left out of discovery",
    output=lambda config, whole: "the discovered words with their noisy weights",
    trusts=lambda config, whole: (_TRUSTED,),
    needs=_needs,
    by_file=_block,
    disclosed=lambda config, results: CentralWords.model_validate(results("discover"), extra="ignore"),
    make="discovery.central.weighted_gaussian:make",
    keeps=(_KEPT,),
    audit=_audited,
    proves=("threshold", "weights", "total", "forms", "words"),
)
