"""The gates of a live experiment: conditions on its logs before all devices get the model.

They are evaluated once, when all days are over, so that intervals have their nominal coverage. An earlier evaluation
decides nothing; stopping an experiment early can only leave users with the baseline.
"""

from collections.abc import Iterator, Mapping
from datetime import date
from types import MappingProxyType

from evaluation.comparison.intervals import Estimate, simultaneous
from evaluation.comparison.verdicts import GUARDRAILS, LOWER_IS_BETTER
from evaluation.config import CONFIDENCE
from evaluation.features import FEATURES
from pipeline.experiments.compare import MISMATCH, Live
from pipeline.launch.config import ExperimentConfig
from pipeline.publication.gates.gate import at_least, finite, gate, none_of, rounded
from pipeline.publication.gates.words import GateWords, words_of
from reports.disclosure.document import GateResult
from reports.formats import metric_name

# Least number of buckets with logs in each arm.
LEAST_BUCKETS = 20
# Relative loss of any other metric at which an experiment is rolled back.
MOST_GUARDRAIL_LOSS = 0.01
GATES: Mapping[str, GateWords] = MappingProxyType(
    {
        "live_days": GateWords(
            "Both arms have logs on every day of its window.",
            "experiment.days",
            "find the missing days, and decide again with all files ('tacit experiment decide')",
        ),
        "live_buckets": GateWords(
            "Both arms have enough buckets for an interval.",
            "experiment.share",
            "give the model to a larger experiment.share, or divide devices into more buckets",
        ),
        "live_split": GateWords(
            "The number of buckets with the model fits the experiment's share.",
            "experiment.share",
            "the arms cannot be compared: find what was lost or wrongly assigned, then launch again",
        ),
        "live_control": GateWords(
            "The control arm still has the version that users have now.",
            "",
            "another version became champion meanwhile; launch again, compared with that one",
        ),
        "live_gain": GateWords(
            "The deciding metric of a feature improved significantly by more than required.",
            "experiment.min_gain",
            "users keep their present model; read every metric ('tacit experiment look LAUNCH'). A longer or larger "
            "experiment has narrower intervals",
        ),
        "live_guardrails": GateWords(
            "No other metric is shown to be worse than allowed.",
            "",
            "users keep their present model; find out for whom it is worse before another launch",
        ),
    }
)
# Metrics of simulated typing that a device can count.
_COUNTED = ("words_modified", "words_per_minute")


def gates(
    live: Live,
    missing: Mapping[str, tuple[date, ...]],
    config: ExperimentConfig,
    features: tuple[str, ...],
    replaced: Mapping[str, str],
) -> tuple[GateResult, ...]:
    """Return every gate of every feature.

    Args:
      missing: days of the window on which an arm has no row, by arm.
      replaced: messages for registered models whose users no longer have the control's version.
    """
    made = _gates(live, missing, config, features, replaced)
    return tuple(each.model_copy(update={"asks": words_of(each.id, GATES).asks}) for each in made)


def _gates(
    live: Live,
    missing: Mapping[str, tuple[date, ...]],
    config: ExperimentConfig,
    features: tuple[str, ...],
    replaced: Mapping[str, str],
) -> Iterator[GateResult]:
    without = tuple(
        f"{arm}: {len(days)} of {config.days} days have no row, the first {days[0]}"
        for arm, days in missing.items()
        if days
    )
    yield none_of("live_days", "days of logs", without, f"both arms logged on all {config.days} days")
    fewest = min(live.ratio.treated, live.ratio.units - live.ratio.treated)
    yield at_least("live_buckets", "buckets of each arm", fewest, LEAST_BUCKETS, "the smaller arm's number")
    passed = live.ratio.chance >= MISMATCH
    split = (
        f"{live.ratio.treated:,} of {live.ratio.units:,} buckets had the model, {live.ratio.share:.2%} expected; the "
        f"p-value of the difference is {rounded(live.ratio.chance, MISMATCH, passed=passed)}, must be at least "
        f"{MISMATCH:g}"
    )
    yield gate("live_split", "split of the buckets", live.ratio.chance, MISMATCH, passed, split)
    others = tuple(replaced.values())
    yield none_of("live_control", "version of the control", others, "it is the version that users have now")
    better = {row.metric: _better(row.relative, row.metric) for row in live.differences}
    for name in features:
        primary = FEATURES[name].decides(typed=True)
        suffix = "" if name == features[0] else f"_{name}"
        of = f" ({name})" if len(features) > 1 else ""
        yield _gain(f"live_gain{suffix}", f"change in {metric_name(primary)}{of}", better.get(primary), config.min_gain)
        hurt = _hurt(better, _guardrails(name, primary), MOST_GUARDRAIL_LOSS)
        yield none_of(
            f"live_guardrails{suffix}",
            f"other metrics{of}",
            hurt,
            f"none is shown to be worse by {MOST_GUARDRAIL_LOSS:.2%} or more",
        )


def _gain(name: str, title: str, change: Estimate | None, threshold: float) -> GateResult:
    if change is None:
        return gate(name, title, None, threshold, False, "missing: no interval of the relative change")
    said = f"{change.low:+.2%}"
    text = (
        f"with the model {change.value:+.2%} of the control, where better counts as more; the lower end of the "
        f"interval is {said}, must exceed {threshold:+.2%}"
    )
    return gate(name, title, change.low, threshold, finite(change.low) and change.low > threshold, text, said)


def _guardrails(feature: str, primary: str) -> tuple[str, ...]:
    """Guardrail metrics: the counted ones of simulated typing, and the quality of Smart Compose's offers."""
    at_equal_rate = FEATURES[feature].at_equal_rate
    wanted = [name for name in GUARDRAILS if name in _COUNTED] + ([at_equal_rate] if at_equal_rate else [])
    return tuple(name for name in wanted if name != primary)


def _hurt(better: Mapping[str, Estimate | None], wanted: tuple[str, ...], tolerated: float) -> tuple[str, ...]:
    """Messages for guardrails that are shown to be worse, or that have no interval."""
    said = []
    for name in wanted:
        estimate = better.get(name)
        if estimate is None:
            said.append(f"{metric_name(name)}: no interval")
        elif (high := simultaneous(estimate, CONFIDENCE, len(wanted)).high) < -tolerated:
            said.append(f"{metric_name(name)} is worse by at least {-high:.2%}, {tolerated:.2%} allowed")
    return tuple(said)


def _better(relative: Estimate | None, metric: str) -> Estimate | None:
    """Relative change, negated for metrics where less is better."""
    if relative is None or metric not in LOWER_IS_BETTER:
        return relative
    return Estimate(-relative.value, -relative.high, -relative.low, relative.standard_error, relative.degrees)
