"""Noisy counts of words and pairs: one Gaussian release, beside training or in its place."""

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.release import Outlook, Release, Stated, asked_for, gaussian, overflows
from reports.disclosure.releases import Counts


def counts(rho: float, delta: float) -> Spend:
    """Spend of the release of counts."""
    return gaussian(rho, delta, "counts")


def _spend(config: LaunchConfig, _: Outlook | Stated) -> Spend:
    return counts(asked_for(config.counts).rho, config.mechanism.delta)


def _says(config: LaunchConfig) -> str:
    return f"Gaussian noise, multiplier {asked_for(config.counts).noise_multiplier:g}, one release"


def _needs(config: LaunchConfig, train: int) -> tuple[str, ...]:
    from federated.counts.bounded_sum import MOST_DEVICES

    return overflows("counts", train, MOST_DEVICES, "remove 'counts'")


def _limits(config: LaunchConfig) -> tuple[str, ...]:
    if config.trains:
        return (
            "Canaries are planted in training, not in the counts: only their noise protects the counts, and no attack "
            "here has tested it.",
        )
    return (
        "Nothing was trained on devices and no canary was planted: only their noise protects the counts. The noise "
        "was tested statistically; no attack here has tested it.",
    )


COUNTS = Release(
    stage="count",
    name="counts",
    block="counts",
    asked=lambda config: config.counts is not None,
    says=_says,
    planned=_spend,
    paid=_spend,
    limits=_limits,
    neighbour="counts replaced by zeros",
    output=lambda config, whole: "the noisy counts and every model made from them",
    needs=_needs,
    disclosed=lambda config, results: Counts.model_validate(results("count")["counts"]),
    make="federated.counts.bounded_sum:make",
    keeps=("released.npy",),
    audit="pipeline.stages.audits.counts:audited",
    proves=("sum", "digits", "model"),
)
