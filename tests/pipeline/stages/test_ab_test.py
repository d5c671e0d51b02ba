"""What holds a launch, and what MLflow is told, follows from the comparison."""

from dataclasses import replace

import pytest

from evaluation.comparison import verdicts
from evaluation.comparison.intervals import AbResult, ArmMetric, Difference, Estimate
from evaluation.comparison.results import Comparison, SliceRow
from evaluation.comparison.slices import HeadShare
from pipeline.registry import Published
from pipeline.stages.ab_test import ab_result, described

METRICS = ("top1_recall", "top3_recall", "prate", "words_modified", "words_per_minute", "errors_left")
PAIRS = (("private", "start"), ("private", "champion"))


def estimate(value: float, half: float) -> Estimate:
    return Estimate(value=value, low=value - half, high=value + half, standard_error=half / 2)


def compared(changes: dict[tuple[str, str], tuple[float, float]], session_words: int = 100) -> Comparison:
    """A comparison by hand.

    Args:
      changes: relative change and half an interval by (baseline, metric); without it 0.1 better, sure.
    """

    def difference(baseline: str, metric: str) -> Difference:
        sign = -1 if metric in verdicts.LOWER_IS_BETTER else 1
        value, half = changes.get((baseline, metric), (sign * 0.1, 0.01))
        relative = estimate(value, half)
        return Difference(
            candidate="private",
            baseline=baseline,
            metric=metric,
            absolute=estimate(value / 10, 0.01),
            relative=relative,
        )

    table = AbResult(
        devices_at_least=100,
        buckets=20,
        confidence=0.95,
        arms=tuple(
            ArmMetric(arm=arm, metric=metric, numerator=10, denominator=100, estimate=estimate(0.1, 0.01))
            for arm in ("start", "private", "champion")
            for metric in METRICS
        ),
        differences=tuple(difference(baseline, metric) for _, baseline in PAIRS for metric in METRICS),
    )
    new_words = estimate(0.02, 0.01)
    return Comparison(
        table=table,
        verdicts=tuple(verdicts.verdict(table, *pair, "prate") for pair in PAIRS),
        second_opinions=(
            verdicts.SecondOpinion(
                candidate="private",
                baseline="start",
                metric="prate",
                jackknife=0.1,
                delta=0.11,
                bootstrap=0.12,
                agree=True,
            ),
        ),
        slices=(SliceRow(part="new_words", arm="private", baseline=None, metric="top1_recall", estimate=new_words),),
        head_words=(HeadShare(arm="private", words=10, typed=0.2, predicted=0.5, right=0.6),),
        distinct_first_words={"private": 33},
        compose=(),
        signs=(),
        session_words=session_words,
    )


ARMS = ["start", "private", "champion"]
CHAMPION = described(Published("keyboard-en-US-NWP", 3, "earlier", "d" * 64), "")


@pytest.mark.parametrize(
    ("changes", "broken", "shown"),
    [
        ({}, [], True),
        # Not shown to be no worse: enough against the starting point, not against what users have.
        ({("start", "prate"): (0.0, 0.1)}, ["predictions taken (PRate) may be worse by"], True),
        ({("champion", "prate"): (0.0, 0.1)}, [], False),
        (
            {("champion", "prate"): (-0.1, 0.02)},
            ["predictions taken (PRate) may be worse by", "against what users have"],
            False,
        ),
        (
            {("champion", "words_modified"): (0.1, 0.02)},
            ["words modified (WMR) is worse by at least", "against what users have"],
            False,
        ),
        ({("champion", "words_modified"): (0.1, 0.2)}, [], True),
    ],
)
def test_only_what_is_clearly_worse_than_users_have_holds(changes: dict, broken: list[str], shown: bool) -> None:
    result = ab_result(compared(changes), ARMS, CHAMPION, "NWP")
    assert len(result.broken_margins) == bool(broken)
    assert all(part in result.broken_margins[0] for part in broken)
    against = {row.baseline: row for row in result.verdicts}
    assert against["champion"].passes == shown
    assert (result.champion.version, result.champion.launch_id) == (3, "earlier")


def test_numbers_behind_the_tables_reach_mlflow_by_name() -> None:
    shown = ab_result(compared({}), ARMS, CHAMPION, "NWP").metrics
    assert shown["prate/champion"] == 0.1
    assert shown["prate/private minus champion/low"] == 0.0
    assert (shown["standard_error/prate/delta"], shown["standard_error/prate/bootstrap"]) == (0.11, 0.12)
    assert (shown["head_words/10/private"], shown["head_words/10/typed"]) == (0.5, 0.2)
    assert shown["distinct_first_words/private"] == 33
    assert shown["top1_recall/private/new_words"] == 0.02


def test_without_sessions_there_are_no_margins_to_break() -> None:
    result = ab_result(compared({}, session_words=0), ARMS, CHAMPION, "SC")
    assert result.broken_margins is None
    assert result.model_dump(mode="json")["features"] == {
        "NWP": ["prate"],
        "SC": [],
        "OTF": ["words_modified", "words_per_minute", "errors_left"],
    }


@pytest.mark.parametrize(("alone", "mixed"), [(0.02, 0.005), (0.005, 0.02)])
def test_public_n_grams_are_beaten_alone_and_mixed(alone: float, mixed: float) -> None:
    made = compared({})
    rivals = [
        Difference("private", arm, "top1_recall", estimate(gain, 0.001), None)
        for arm, gain in (("ngram", alone), ("public_mixture", mixed))
    ]
    made = replace(made, table=replace(made.table, differences=(*made.table.differences, *rivals)))
    assert ab_result(made, ARMS, CHAMPION, "NWP").ngram_gain_low is None, "neither was an arm"
    rows = tuple(
        replace(made.table.arms[0], arm=arm, metric=metric)
        for arm in ("ngram", "public_mixture")
        for metric in ("top1_recall", "top3_recall")
    )
    made = replace(made, table=replace(made.table, arms=(*made.table.arms, *rows)))
    both = ab_result(made, [*ARMS, "ngram", "public_mixture"], CHAMPION, "NWP")
    assert both.ngram_gain_low == pytest.approx(0.004)
