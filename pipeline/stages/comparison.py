"""Stage ``ab_test``: compare all arms on held-out test devices, for gates, report and MLflow."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel

from discovery.coverage import coverage
from evaluation.arms.arm import neural
from evaluation.arms.held_out import held_out
from evaluation.comparison import beginnings, compare, scoring, slices
from evaluation.comparison.compare import Devices, Entrants, Rules
from evaluation.comparison.intervals import Estimate, confidence_of
from evaluation.comparison.results import Comparison
from evaluation.comparison.verdicts import Check, SignCheck
from evaluation.config import CONFIDENCE
from evaluation.features import FEATURES
from evaluation.noisy import compare as noisy
from evaluation.noisy.compare import PUBLIC_WORDS
from federated.train import Workplace
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.registry import Champions, PublishedModel, published_before, published_then
from pipeline.releases.evaluation import EVALUATION, RELEASED, typed
from pipeline.releases.release import asked_for
from pipeline.run import artifacts
from pipeline.run.public_fields import Source
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.second_run import outcome_differences
from pipeline.run.stage import StageContext, StageResult
from pipeline.stages import ab_arms
from pipeline.stages.ab_arms import CONSTANT, NON_PRIVATE, PUBLIC_MIXTURE
from pipeline.stages.ab_inputs import Baseline, ComparisonInputs, open_inputs
from pipeline.stages.kept_release import ReleaseFile
from pipeline.stages.remade import Elsewhere
from pretrain.files import write_text
from pretrain.kernel.threads import one_torch_thread
from reports.disclosure.utility import (
    ArmMetric,
    Beginning,
    Champion,
    Difference,
    HeadWords,
    OtherFeature,
    Pair,
    SecondOpinion,
    SliceMetric,
    Utility,
    Verdict,
)
from reports.formats import arm_name, metric_name

_RECALLS = ("top1_recall", "top3_recall")
# The n-gram on public text, which it fits: what suggests few words to people is no measure of variety.
PUBLIC_TEXT = "ngram_public_text"
_COVERAGE = ("coverage", "coverage_low", "coverage_high")
_Block = TypeVar("_Block", bound=BaseModel)


class AbTest(StageResult, Utility):
    """Result of comparing arms on held-out test devices; ``top1_gain`` is private minus starting point.

    ``new_word_top3_low`` is None if too few devices typed a discovered word for an interval.
    """

    top1_recall: dict[str, float]
    top3_recall: dict[str, float]
    top1_gain: float
    top1_gain_low: float
    top1_gain_high: float
    top3_gain_low: float
    ngram_gain_low: float | None
    new_word_top3_low: float | None = None
    variety_private: float | None
    variety_public: float | None
    broken_margins: tuple[str, ...] | None
    missing_metrics: tuple[str, ...] | None
    worse_than_champion: tuple[str, ...]
    broken_typists: tuple[str, ...] | None
    coverage: float | None = None
    coverage_low: float | None = None
    coverage_high: float | None = None


def ab_test(
    ctx: StageContext,
    before: Callable[[StageContext], Champions] = published_before,
    *,
    again: bool = False,
) -> AbTest:
    """Compare all arms on held-out test devices: public, the launch's own, baselines and, simulated, without privacy.

    Args:
      before: returns the published version of each feature before this launch.
      again: True for a verification, which does not count as an attempt.
    """
    config, kept = ctx.config, ReleaseFile(None if again else ctx.private / RELEASED)
    work = Workplace(ctx.private, config.runtime, on_round=artifacts.progress(ctx, "training without privacy"))
    with ctx.before_devices():
        then = kept.champions(config.feature)
        inputs = open_inputs(ctx, before if then is None else lambda _: then)
        entrants = ab_arms.gather(inputs, config, work)
    published = inputs.published
    attempts = {feature: attempt_of(ctx, feature, published.get(feature), again=again) for feature in config.features}
    rules = Rules(
        config.features,
        config.locale,
        config.name,
        config.seed,
        config.ab_test.buckets,
        config.ab_test.session_words if typed(config) else 0,
        # One table for all features, at the highest confidence that one of them needs.
        confidence=confidence_of(max(attempts.values())),
    )
    workers, store = len(os.sched_getaffinity(0)), inputs.store
    released: dict[str, object] = {}
    with one_torch_thread():
        if not EVALUATION.asked(config):
            devices = Devices(store.words, store.devices("test"), store.devices("validation"))
            compared = compare.run(entrants, devices, rules, workers)
            compared = replace(compared, variety=compared.variety | {PUBLIC_TEXT: _public_variety(inputs, entrants)})
            released = _coverage(inputs)
        else:
            data = noisy.EvaluationData(store.words, store.devices("test"), inputs.validation)
            z = asked_for(config.evaluation).noise_multiplier
            release = kept.release(config, ctx.noise_key, published, len(data.devices))
            compared, estimate = noisy.compare(entrants, data, rules, release, z, workers)
            released = _released(config, estimate)
    write_text(ctx.public / "comparison.json", compared.to_json() + "\n")
    names = list(dict.fromkeys(row.arm for row in compared.table.arms))
    champions = {each.feature: described(each) for each in inputs.baselines}
    asked_of: dict[str, tuple[Champion | None, int]] = {
        feature: (champions.get(feature), attempt) for feature, attempt in attempts.items()
    }
    compared_arms = {name: entrants.arms[name] for name in ("start", "private")}
    begun = beginnings.judge(compared_arms, entrants.vocabulary, entrants.base_size, config.locale)
    return ab_result(compared, names, asked_of, begun).model_copy(update=released)


def remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The figures of the comparison file, against the stated baselines; and the models' suggestions."""
    config, stated = ctx.config, record.result
    compared = Comparison.from_json((released / "comparison.json").read_text(encoding="utf-8"))
    names = list(dict.fromkeys(row.arm for row in compared.table.arms))
    features = {config.feature: stated, **stated["others"]}
    asked_of = {feature: (_champion(each["champion"]), each["attempt"]) for feature, each in features.items()}
    grown, base = artifacts.vocabulary(ctx, "build_vocabulary"), artifacts.vocabulary(ctx, "ingest_public")
    start, network = (neural(artifacts.model(ctx, name), device="cpu") for name in ("adapt", "fine_tune"))
    arms = {"start": start, "private": ab_arms.shipped(config, start, network, artifacts.counts(ctx))[0]}
    with one_torch_thread():
        begun = beginnings.judge(arms, grown, len(base), config.locale)
    made = ab_result(compared, names, asked_of, begun)
    of_data = dict.fromkeys(("champion", *_COVERAGE), True)
    stating = made.model_copy(update={"spend": EVALUATION.reserved(config)})
    return {**stating.model_dump(mode="json", exclude=of_data), "champion": Elsewhere(Source.LEDGER)}


def _champion(stated: Mapping[str, Any] | None) -> Champion | None:
    return None if stated is None else Champion.model_validate(stated)


def _released(config: LaunchConfig, estimate: Estimate | None) -> dict[str, object]:
    """Return the spend of evaluation, and its figures on discovered words."""
    ends = () if estimate is None else (estimate.value, estimate.low, estimate.high)
    return {"spend": EVALUATION.reserved(config), **dict(zip(_COVERAGE, ends, strict=False))}


def _public_variety(inputs: ComparisonInputs, entrants: Entrants) -> float:
    text = held_out(inputs.validation, np.arange(len(inputs.validation)), PUBLIC_WORDS)
    return slices.variety(scoring.score(entrants.arms["ngram"], text, text.ids(entrants.vocabulary)))


def _coverage(inputs: ComparisonInputs) -> dict[str, object]:
    """Coverage by the added words of what validation devices typed outside the public vocabulary, with its interval."""
    base, added = inputs.base.index, inputs.grown.words[len(inputs.base) :]
    typed = inputs.store.device_words("validation")
    unknown = [Counter(word for word in words if word not in base) for words in typed]
    return dict(zip(_COVERAGE, coverage(set(added), unknown, CONFIDENCE), strict=True))


def attempt_of(ctx: StageContext, feature: str, champion: PublishedModel | None, *, again: bool = False) -> int:
    """Attempt number, from 1, at comparing with a feature's baseline on the same held-out devices, from the ledger.

    A population's launches hold out the same devices, so each attempt is one more chance to pass by luck. Once a launch
    is published the baseline changes, and the count starts again.
    """
    users_have = None if champion is None else f"{champion.name} version {champion.version}"
    family = {"locale": ctx.config.locale, "feature": feature, "users have": users_have}
    population = ctx.population or ctx.config.population
    ledger = PrivacyLedger.of(ctx.settings)
    return ledger.attempt(population, ctx.run.launch_id, "ab_test", family, write=not again)


def described(had: Baseline) -> Champion:
    """Convert a baseline to the disclosure's block."""
    stated = {**vars(had.published), "registered_model": had.published.name, "left_out": had.left_out, "arm": had.arm}
    stated |= {"earlier": had.earlier}
    return Champion.model_validate(stated, extra="ignore")


def ab_result(
    compared: Comparison,
    names: list[str],
    asked: Mapping[str, tuple[Champion | None, int]],
    begun: Iterable[beginnings.Beginning] = (),
) -> AbTest:
    """Public result of a comparison: aggregates over held-out devices.

    Args:
      names: names of the arms.
      asked: for each feature, the main one first, its baseline and the attempt number on these devices.
      begun: suggestions after everyday beginnings.
    """
    (main, *others), judged = asked, compared.session_words > 0 or compared.table.differentially_private
    blocks = {
        feature: OtherFeature(
            champion=champion,
            attempt=attempt,
            broken_margins=_broken(compared, feature) if judged else None,
            missing_metrics=_missing(compared, feature) if judged else None,
            worse_than_champion=_worse_than(champion, compared, feature),
        )
        for feature, (champion, attempt) in asked.items()
    }
    table = compared.table
    top1, top3 = (table.difference("private", "start", name).absolute for name in ("top1_recall", "top3_recall"))
    recall = {metric: {arm: table.arm(arm, metric).estimate.value for arm in names} for metric in _RECALLS}
    measured = {row.metric for row in table.arms}
    new_words = {
        row.metric: row.estimate
        for row in compared.slices
        if (row.part, row.arm, row.baseline) == ("new_words", "private", None)
    }
    top3_new, free = new_words.get("top3_recall"), [n for n in ("ngram", PUBLIC_MIXTURE, CONSTANT) if n in names]
    return AbTest(
        devices_at_least=table.devices_at_least,
        drowned=table.drowned,
        words=int(table.arm("private", "top1_recall").denominator),
        session_words=compared.session_words,
        judged_words=compared.judged_words,
        confidence=table.confidence,
        **dict(blocks[main]),
        others={feature: blocks[feature] for feature in others},
        simulation_without_privacy=NON_PRIVATE in names,
        **recall,
        top1_gain=top1.value,
        top1_gain_low=top1.low,
        top1_gain_high=top1.high,
        top3_gain_low=top3.low,
        ngram_gain_low=min((table.difference("private", n, "top1_recall").absolute.low for n in free), default=None),
        new_word_top3_low=None if top3_new is None else top3_new.low,
        variety_private=compared.variety.get("private"),
        variety_public=compared.variety.get(PUBLIC_TEXT, compared.variety.get("ngram")),
        broken_typists=tuple(_disagreement(row) for row in compared.signs if _disagrees(row))
        if compared.session_words
        else None,
        features={
            name: tuple(metric for metric in feature.metrics if metric in measured)
            for name, feature in FEATURES.items()
        },
        compose_at_rate=tuple(row.arm for row in compared.compose if row.equal == "rate")
        if compared.judged_words
        else None,
        variety=compared.variety,
        beginnings=tuple(_block(Beginning, row) for row in begun),
        **_rows(compared),
        headline={
            "top1_recall": recall["top1_recall"]["private"],
            "top1_gain": top1.value,
            **{f"new_words_{metric}": estimate.value for metric, estimate in new_words.items()},
        },
    )


def _rows(compared: Comparison) -> dict[str, tuple[BaseModel, ...]]:
    """Return the rows of a comparison as blocks of the disclosure, by field of the result."""
    table, slices = compared.table, (row for row in compared.slices if row.baseline is None)
    return {
        "arms": tuple(_block(ArmMetric, row, **_interval(row.estimate)) for row in table.arms),
        "differences": tuple(
            _block(Difference, row, relative=row.relative and _interval(row.relative), **_interval(row.absolute))
            for row in table.differences
        ),
        "verdicts": tuple(
            _block(Verdict, row, failed=[each.metric for each in row.checks if not each.passes], **_primary(row.checks))
            for row in compared.verdicts
        ),
        "slices": tuple(_block(SliceMetric, row, **_interval(row.estimate)) for row in slices),
        "second_opinions": tuple(_block(SecondOpinion, row) for row in compared.second_opinions),
        "head_words": tuple(_block(HeadWords, row) for row in compared.head_words),
        "unstable_signs": tuple(_block(Pair, row) for row in compared.signs if not row.stable),
    }


def _block(block: type[_Block], row: object, **more: object) -> _Block:
    """Convert a row of the comparison to the disclosure's block with the same fields."""
    return block.model_validate(vars(row) | more, extra="ignore")


def _missing(compared: Comparison, feature: str) -> tuple[str, ...]:
    """List metrics without an interval against the starting point."""
    return next(verdict.missing for verdict in compared.verdicts if verdict.feature == feature)


def _broken(compared: Comparison, feature: str) -> list[str]:
    """List margins that a feature missed against the starting point: non-inferiority must be shown."""
    return [
        _said(check)
        for verdict in compared.verdicts
        if (verdict.candidate, verdict.baseline, verdict.feature) == ("private", "start", feature)
        for check in verdict.checks
        if not check.passes
    ]


def _worse_than(champion: Champion | None, compared: Comparison, feature: str) -> tuple[str, ...]:
    """List evidence that a feature's users would be worse off than with their baseline, as messages.

    A launch passes if no metric is shown to be worse: two good models differ by less than a comparison can detect. A
    champion that could not be compared, or a metric without an interval, counts against the launch.
    """
    if champion is None:
        return ()
    named = f"version {champion.version} of {champion.registered_model}"
    if champion.left_out:
        return (f"{named} could not be compared: {champion.left_out}",)
    wanted = ("private", champion.arm, feature)
    verdict = next(
        (each for each in compared.verdicts if (each.candidate, each.baseline, each.feature) == wanted), None
    )
    if verdict is None:
        return (f"{named} was not compared",)
    worse = (f"{metric_name(check.metric)} {_changed(check)}" for check in verdict.checks if check.clearly_worse)
    return (*worse, *(f"{metric_name(name)} could not be estimated" for name in verdict.missing))


def _changed(check: Check) -> str:
    """Message for a metric that is clearly worse, relative to the baseline's value if it is not zero."""
    return f"changes by {check.change:+.2%}" + (" of the baseline's" if check.margin else "")


def _said(check: Check) -> str:
    """Message for a missed margin: a primary metric not shown non-inferior, or a guardrail shown to be worse."""
    how = "may be worse by" if check.role == "primary" else "is worse by at least"
    of = "of the baseline" if check.margin else "where the baseline is without fault"
    return f"{metric_name(check.metric)} {how} {max(-check.bound, 0.0):.2%} {of}, {check.margin:.2%} allowed"


def _primary(checks: Iterable[Check]) -> dict[str, float | None]:
    """Margin, standard error and power of the primary metric; empty if it could not be estimated."""
    check = next((check for check in checks if check.role == "primary"), None)
    return {} if check is None else {name: getattr(check, name) for name in ("margin", "standard_error", "power")}


def _disagrees(row: SignCheck) -> bool:
    return not row.stable or bool(row.worse_under)


def _disagreement(row: SignCheck) -> str:
    """Message for a metric on which the calibrations of simulated typists disagree."""
    ends = "; ".join(f"{name} {change.low:+.2%} to {change.high:+.2%}" for name, change in row.changes.items())
    how = (
        f"clearly worse under {' and '.join(row.worse_under)}"
        if row.worse_under
        else "better under one, worse under another"
    )
    return f"{metric_name(row.metric)} against {arm_name(row.baseline)}: {how} ({ends})"


def _interval(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def compared_again(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Compare again with the baselines of that time, which later launches have replaced."""
    others = {feature: each["champion"] for feature, each in record.result.get("others", {}).items()}
    then = published_then(ctx, record.result["champion"], others)
    yield from outcome_differences(ab_test(ctx, then, again=True), ctx, record, run)
