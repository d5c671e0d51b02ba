"""A live experiment's intervals against textbooks and by simulation, and the check of how buckets fell."""

from datetime import date

import numpy as np
import pytest
from scipy import stats

from evaluation.arms.held_out import Ratio
from pipeline.experiments import compare, logs


def test_for_means_the_interval_is_welch_s():
    rng = np.random.default_rng(0)
    # So many that the printed table of degrees has them: 20 and 50.
    new_B, old_B = rng.normal(3, 1, 21), rng.normal(2, 2, 51)
    got = compare.difference((new_B, np.ones(21)), (old_B, np.ones(51))).absolute
    expected = stats.ttest_ind(new_B, old_B, equal_var=False).confidence_interval(0.95)
    assert (got.low, got.high) == pytest.approx(tuple(expected), rel=1e-9)


def test_the_relative_change_by_hand():
    new: Ratio = (np.array([3.0, 5.0]), np.array([10.0, 10.0]))
    old: Ratio = (np.array([2.0, 1.0, 3.0]), np.array([10.0, 10.0, 10.0]))
    got = compare.difference(new, old).relative
    assert got is not None
    assert got.value == pytest.approx(0.4 / 0.2 - 1)
    without_new = np.array([0.5, 0.3]) / 0.2 - 1
    without_old = 0.4 / np.array([0.2, 0.25, 0.15]) - 1
    variance = 1 / 2 * np.sum((without_new - without_new.mean()) ** 2)
    variance += 2 / 3 * np.sum((without_old - without_old.mean()) ** 2)
    assert got.standard_error == pytest.approx(np.sqrt(variance), rel=1e-12)


def test_a_control_without_any_has_no_relative_change():
    new: Ratio = (np.ones(4), np.full(4, 9.0))
    got = compare.difference(new, (np.array([1.0, 0, 0, 0]), np.full(4, 9.0)))
    assert got.relative is None, "without one bucket nobody picks anything"
    assert got.absolute.value > 0


@pytest.mark.statistical
@pytest.mark.parametrize(("treated", "control", "spread"), [(40, 160, 0.3), (25, 475, 0.6)])
@pytest.mark.slow
def test_intervals_cover_the_change_as_often_as_they_say(treated: int, control: int, spread: float):
    """Buckets of different sizes and habits, in which one word in ten is picked, and a twentieth more with the
    candidate."""
    rng = np.random.default_rng(7)
    times, misses = 800, 0

    def arm(buckets: int, rate: float) -> Ratio:
        shown_B = rng.lognormal(8, spread, buckets).astype(int)
        habit_B = rng.gamma(40, rate / 40, buckets)
        return rng.binomial(shown_B, np.minimum(habit_B, 1)).astype(float), shown_B.astype(float)

    for _ in range(times):
        relative = compare.difference(arm(treated, 0.105), arm(control, 0.1)).relative
        assert relative is not None
        misses += not relative.low <= 0.05 <= relative.high
    assert stats.binomtest(misses, times, 0.05).pvalue > 0.001, misses


def of(treated: int, control: int, **sums: float) -> logs.Logs:
    buckets = treated + control
    values = dict.fromkeys((*logs.COUNTS, "seconds"), 1.0) | sums
    rng = np.random.default_rng(3)
    return logs.Logs(
        treated_B=np.arange(buckets) < treated,
        sums={name: rng.integers(50, 100, buckets) * value for name, value in values.items()},
        missing=dict.fromkeys(logs.ARMS, ()),
        last_day=date(2026, 11, 4),
        digests=(),
        simulated=False,
    )


def test_every_metric_of_both_arms_and_none_that_has_nothing_to_divide_by():
    live = compare.compare(of(30, 70, triggered=0.0, accepted=0.0), 0.3)
    assert live.undefined == ("compose_prate",)
    assert {row.metric for row in live.differences} == {
        *("prate", "strip_accuracy", "click_through_rate", "compose_trigger_rate", "words_modified"),
        "words_per_minute",
    }
    speed = next(row for row in live.arms if (row.arm, row.metric) == ("treatment", "words_per_minute"))
    assert speed.estimate.value == pytest.approx(speed.numerator / speed.denominator)
    assert live.ratio.treated == 30


def test_one_bucket_is_no_arm():
    assert compare.compare(of(1, 70), 0.02).differences == ()


@pytest.mark.parametrize(
    ("treated", "buckets", "share"), [(3, 100, 0.05), (11, 40, 0.1), (50, 1000, 0.05), (0, 9, 0.5)]
)
def test_the_chance_of_a_split_is_the_sum_of_all_that_are_no_likelier(treated: int, buckets: int, share: float):
    chances = stats.binom.pmf(np.arange(buckets + 1), buckets, share)
    no_likelier = chances[chances <= chances[treated] * (1 + 1e-7)].sum()
    assert compare.sample_ratio(treated, buckets, share).chance == pytest.approx(no_likelier, rel=1e-6)


def test_a_split_that_is_no_luck_is_a_mismatch():
    assert compare.sample_ratio(50, 1000, 0.05).chance > compare.MISMATCH
    for treated in (28, 75):
        assert compare.sample_ratio(treated, 1000, 0.05).chance < compare.MISMATCH
