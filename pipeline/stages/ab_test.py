"""Stage ``ab_test``: all arms on held-out test devices, and what gates, report and MLflow take from it."""

import os

from evaluation.comparison import compare as comparison
from evaluation.comparison import intervals as ab
from evaluation.comparison.results import Comparison
from evaluation.comparison.verdicts import FEATURE_METRICS, PRIMARY, Check
from evaluation.keyboard import layouts
from pipeline.registry import Published
from pipeline.stage import StageContext, StageResult
from pipeline.stages import ab_arms, artifacts
from pipeline.stages.ab_arms import CHAMPION, NON_PRIVATE, Entrants
from pretrain.files import write_text
from pretrain.threads import one_torch_thread
from reports.disclosure import utility as rows


class AbTest(StageResult):
    """Arms on held-out test devices; ``top1_gain`` is private minus starting point."""

    devices_at_least: int
    words: int
    session_words: int
    confidence: float
    margin: float
    champion: rows.Champion | None
    simulation_without_privacy: bool
    top1_recall: dict[str, float]
    top3_recall: dict[str, float]
    top1_gain: float
    top1_gain_low: float
    top1_gain_high: float
    top3_gain_low: float
    broken_margins: list[str] | None
    missing_metrics: list[str] | None
    unstable_signs: list[rows.Pair]
    features: dict[str, list[str]]
    arms: list[rows.ArmMetric]
    differences: list[rows.Difference]
    verdicts: list[rows.Verdict]
    slices: list[rows.SliceMetric]
    second_opinions: list[rows.SecondOpinion]
    head_words: list[rows.HeadWords]
    distinct_first_words: dict[str, int]


def ab_test(ctx: StageContext) -> AbTest:
    """All arms on held-out test devices: public, this launch's, what users have and, simulated, without privacy."""
    config = ctx.config.ab_test
    entrants, store = ab_arms.gather(ctx), artifacts.store(ctx)
    if not layouts.has_keyboard(ctx.config.locale):
        # No layout to mistype on: words are predicted, but not typed again.
        config = config.model_copy(update={"session_words": 0})
    with one_torch_thread():
        compared = comparison.run(
            entrants.arms,
            comparison.Devices(store.words, store.devices("test"), store.devices("validation")),
            entrants.vocabulary,
            len(artifacts.vocabulary(ctx, "ingest_public")),
            ctx.config.locale,
            ctx.config.feature,
            config,
            ctx.config.name,
            ctx.config.seed,
            entrants.pairs,
            workers=len(os.sched_getaffinity(0)),
            own_size=entrants.own_words,
        )
    write_text(ctx.public / "comparison.json", compared.model_dump_json(indent=1) + "\n")
    return ab_result(compared, entrants, ctx.config.feature, config.margin)


def ab_result(compared: Comparison, entrants: Entrants, feature: str, margin: float) -> AbTest:
    """Everything that may be told of a comparison: aggregates over held-out devices."""
    table, names = compared.table, list(entrants.arms)
    top1, top3 = (table.difference("private", "start", name).absolute for name in ("top1_recall", "top3_recall"))
    known = {row.metric for row in table.arms}
    return AbTest(
        devices_at_least=table.devices_at_least,
        words=int(table.arm("private", "top1_recall").denominator),
        session_words=compared.session_words,
        confidence=table.confidence,
        margin=margin,
        champion=None if entrants.champion is None else _champion(entrants.champion),
        simulation_without_privacy=NON_PRIVATE in names,
        top1_recall={arm: table.arm(arm, "top1_recall").estimate.value for arm in names},
        top3_recall={arm: table.arm(arm, "top3_recall").estimate.value for arm in names},
        top1_gain=top1.value,
        top1_gain_low=top1.low,
        top1_gain_high=top1.high,
        top3_gain_low=top3.low,
        broken_margins=_broken(compared) if compared.session_words else None,
        missing_metrics=list(compared.verdicts[0].missing) if compared.session_words else None,
        unstable_signs=[
            rows.Pair(candidate=row.candidate, baseline=row.baseline, metric=row.metric)
            for row in compared.signs
            if not row.stable
        ],
        features={name: [metric for metric in FEATURE_METRICS[name] if metric in known] for name in FEATURE_METRICS},
        arms=[
            rows.ArmMetric(
                arm=row.arm,
                metric=row.metric,
                numerator=row.numerator,
                denominator=row.denominator,
                **_interval(row.estimate),
            )
            for row in table.arms
        ],
        differences=[
            rows.Difference(
                candidate=row.candidate,
                baseline=row.baseline,
                metric=row.metric,
                relative=None if row.relative is None else _interval(row.relative),
                **_interval(row.absolute),
            )
            for row in table.differences
        ],
        verdicts=[
            rows.Verdict(
                candidate=row.candidate,
                baseline=row.baseline,
                primary=PRIMARY[feature] if compared.session_words else "top1_recall",
                passes=row.passes,
                failed=[check.metric for check in row.checks if not check.passes],
                missing=list(row.missing),
            )
            for row in compared.verdicts
        ],
        slices=[
            rows.SliceMetric(part=row.part, arm=row.arm, metric=row.metric, **_interval(row.estimate))
            for row in compared.slices
            if row.baseline is None
        ],
        second_opinions=[rows.SecondOpinion(**row.model_dump()) for row in compared.second_opinions],
        head_words=[rows.HeadWords(**row.model_dump()) for row in compared.head_words],
        distinct_first_words=compared.distinct_first_words,
        headline={"top1_recall": table.arm("private", "top1_recall").estimate.value, "top1_gain": top1.value},
        metrics=_metrics(compared),
    )


def _champion(found: Published) -> rows.Champion:
    return rows.Champion(
        registered_model=found.name,
        version=found.version,
        launch_id=found.launch_id,
        bundle_sha256=found.bundle_sha256,
    )


def _metrics(compared: Comparison) -> dict[str, float]:
    """Every arm's metrics, every difference, and what is behind the intervals, by name for MLflow."""
    found = {f"{row.metric}/{row.arm}": row.estimate.value for row in compared.table.arms}
    for row in compared.table.differences:
        name = f"{row.metric}/{row.candidate} minus {row.baseline}"
        found |= {name: row.absolute.value, f"{name}/low": row.absolute.low, f"{name}/high": row.absolute.high}
    for opinion in compared.second_opinions:
        errors = {"jackknife": opinion.jackknife, "delta": opinion.delta, "bootstrap": opinion.bootstrap}
        found |= {f"standard_error/{opinion.metric}/{method}": error for method, error in errors.items()}
    for head in compared.head_words:
        found |= {f"head_words/{head.words}/{head.arm}": head.predicted, f"head_words/{head.words}/typed": head.typed}
    found |= {f"distinct_first_words/{arm}": float(count) for arm, count in compared.distinct_first_words.items()}
    for part in compared.slices:
        if part.baseline is None:
            found[f"{part.metric}/{part.arm}/{part.part}"] = part.estimate.value
    return found


def _broken(compared: Comparison) -> list[str]:
    """Margins that hold a launch.

    Against the starting point the primary metric must be shown not to be worse. Against what users have
    it is enough that nothing is shown to be worse: two good models differ by less than a simulation can tell.
    """
    broken = []
    for verdict in compared.verdicts:
        if (verdict.candidate, verdict.baseline) == ("private", "start"):
            broken += [_said(check) for check in verdict.checks if not check.passes]
        elif (verdict.candidate, verdict.baseline) == ("private", CHAMPION):
            broken += [f"{_said(check)}, against what users have" for check in verdict.checks if check.clearly_worse]
    return broken


def _said(check: Check) -> str:
    return f"{check.metric} ({check.role}): {check.bound:+.2%} at best or worst, {-check.margin:.2%} allowed"


def _interval(estimate: ab.Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
