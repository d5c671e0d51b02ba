"""Comparison of arms: jackknife by hand, exact zero, coverage by simulation, guards."""

import numpy as np
import pytest
from scipy import stats

from evaluation.comparison import intervals
from tests.helpers.text.next_words import PerDevice


def arm(words_D: np.ndarray, top1_D: np.ndarray) -> PerDevice:
    return PerDevice(words_D, top1_D, np.minimum(words_D, top1_D * 2), words_D, top1_D, words_D * 4.0)


def simulated(rng: np.random.Generator, devices: int, rate: float = 0.2) -> PerDevice:
    words_D = np.ceil(rng.lognormal(4, 1, devices)).astype(np.int64)
    return arm(words_D, rng.binomial(words_D, rng.beta(10 * rate, 10 * (1 - rate), devices)))


def test_the_jackknife_by_hand() -> None:
    # Ratios of sums: all 6/20; without each bucket 5/16, 4/14, 3/10.
    values = intervals.ratios(np.array([1, 2, 3]), np.array([4, 6, 10]), np.array([0, 1, 2]), 3)
    np.testing.assert_allclose(values, [6 / 20, 5 / 16, 4 / 14, 3 / 10])
    without = np.array([5 / 16, 4 / 14, 3 / 10])
    error = np.sqrt(2 / 3 * np.sum((without - without.mean()) ** 2))
    got = intervals.interval(values, 0.95)
    assert got.value == 0.3
    assert got.standard_error == pytest.approx(error, rel=1e-12)
    assert got.high - got.value == pytest.approx(4.302652729911275 * error, rel=1e-9)
    assert got.value - got.low == pytest.approx(got.high - got.value)


def test_for_a_mean_it_is_the_textbook_standard_error() -> None:
    sample = np.random.default_rng(0).normal(size=40)
    values = intervals.ratios(sample, np.ones(40), np.arange(40), 40)
    assert intervals.interval(values, 0.95).standard_error == pytest.approx(stats.sem(sample), rel=1e-12)


def test_an_arm_against_itself_is_exactly_zero() -> None:
    rng = np.random.default_rng(1)
    same = simulated(rng, 300)
    result = intervals.compare({"a": same.ratios(), "b": same.ratios()}, "salt", 20, [("b", "a")])
    for row in result.differences:
        for estimate in (row.absolute, row.relative):
            assert estimate is not None
            assert (estimate.value, estimate.low, estimate.high, estimate.standard_error) == (0, 0, 0, 0)


def test_values_and_pairs() -> None:
    rng = np.random.default_rng(2)
    arms = {name: simulated(rng, 205, rate) for name, rate in (("ngram", 0.1), ("start", 0.2), ("private", 0.3))}
    pairs = [("start", "ngram"), ("private", "ngram"), ("private", "start")]
    result = intervals.compare({name: one.ratios() for name, one in arms.items()}, "salt", 20, pairs)
    assert [(row.candidate, row.baseline) for row in result.differences[::4]] == pairs
    private = result.arm("private", "top1_recall")
    assert private.numerator == arms["private"].top1_D.sum()
    assert private.estimate.value == private.numerator / private.denominator
    gain = result.difference("private", "start", "top1_recall")
    start = result.arm("start", "top1_recall").estimate.value
    assert gain.absolute.value == pytest.approx(private.estimate.value - start)
    assert gain.relative is not None
    assert gain.relative.value == pytest.approx(private.estimate.value / start - 1)
    assert gain.absolute.low > 0
    assert result.devices_at_least == 200


def test_rows_of_some_arms_are_joined_to_those_of_all() -> None:
    rng = np.random.default_rng(2)
    every = {name: simulated(rng, 205, rate).ratios() for name, rate in (("ngram", 0.1), ("start", 0.2), ("new", 0.3))}
    some = {name: {"prate": every[name]["top1_recall"]} for name in ("start", "new")}
    result = intervals.compare(every, "salt", 20, [("new", "ngram"), ("new", "start")])
    both = intervals.joined(result, intervals.compare(some, "salt", 20, [("new", "start")]))
    assert both.arms[: len(result.arms)] == result.arms
    assert both.differences[: len(result.differences)] == result.differences
    recall, typed = (both.difference("new", "start", metric) for metric in ("top1_recall", "prate"))
    assert typed.absolute == recall.absolute
    assert {row.arm for row in both.arms if row.metric == "prate"} == {"start", "new"}


def test_no_interval_of_a_share_goes_below_nothing_or_above_all() -> None:
    """One device of thirty is ever right, or one ever wrong; what may be negative or above 1 keeps its interval."""
    words_D, once_D = np.full(30, 4), np.eye(1, 30, 3)[0]
    table = {"rare": (once_D, words_D), "sure": (words_D - once_D, words_D), "cross_entropy": (40 * once_D, words_D)}
    result = intervals.compare({"new": table}, "salt", 20, [])
    rare, sure, loss = (result.arm("new", metric).estimate for metric in table)
    assert (rare.low, sure.high) == (0.0, 1.0)
    assert 0 < rare.value < rare.high < 1 - sure.low + 1e-9
    assert loss.low < 0


def test_pairing_shortens_the_interval() -> None:
    rng = np.random.default_rng(3)
    words_D = np.ceil(rng.lognormal(4, 1, 400)).astype(np.int64)
    skill_D = rng.beta(2, 8, 400)
    old = arm(words_D, np.floor(words_D * skill_D).astype(np.int64))
    new = arm(words_D, np.ceil(words_D * (skill_D + 0.01)).astype(np.int64))
    result = intervals.compare({"old": old.ratios(), "new": new.ratios()}, "salt", 20, [("new", "old")])
    apart = np.hypot(*(result.arm(name, "top1_recall").estimate.standard_error for name in ("old", "new")))
    assert result.difference("new", "old", "top1_recall").absolute.standard_error < apart / 5


def test_buckets_depend_on_salt_and_key_and_are_even() -> None:
    keys = [str(number) for number in range(20_000)]
    one, two = intervals.bucket_of(keys, "one", 20), intervals.bucket_of(keys, "two", 20)
    assert stats.chisquare(np.bincount(one, minlength=20)).pvalue > 0.001
    assert abs(np.mean(one == two) - 1 / 20) < 0.01
    np.testing.assert_array_equal(intervals.bucket_of(keys[:5], "one", 20), one[:5])


@pytest.mark.slow
@pytest.mark.statistical
def test_intervals_cover_95_percent_of_the_time_and_binomial_ones_do_not() -> None:
    rng = np.random.default_rng(4)
    devices, trials, buckets, truth = 2000, 4000, 20, 0.2
    bucket_D = intervals.bucket_of([str(number) for number in range(devices)], "salt", buckets)
    covered = covered_binomial = wrong_scale = 0
    for _ in range(trials):
        sample = simulated(rng, devices, truth)
        values = intervals.ratios(sample.top1_D, sample.words_D, bucket_D, buckets)
        got = intervals.interval(values, 0.95)
        covered += got.low <= truth <= got.high
        # Leaving out the factor B - 1 is the classic mistake; the same check must refuse it.
        wrong_scale += abs(got.value - truth) <= (got.high - got.value) / np.sqrt(buckets - 1)
        covered_binomial += abs(got.value - truth) <= 1.96 * np.sqrt(truth * (1 - truth) / sample.words_D.sum())
    assert 0.94 <= covered / trials <= 0.96
    assert covered_binomial / trials < 0.6
    assert wrong_scale / trials < 0.6


def test_few_devices_and_mismatched_arms_are_refused_with_the_fix() -> None:
    rng = np.random.default_rng(5)
    few = simulated(rng, 12)
    with pytest.raises(ValueError, match=r"20 buckets need at least .* got 12; set it to 2 or raise"):
        intervals.compare({"a": few.ratios()}, "salt", 20, [])
    silent = arm(np.array([5] * 19 + [0] * 100), np.array([1] * 19 + [0] * 100))
    with pytest.raises(ValueError, match="got 19"):
        intervals.compare({"a": silent.ratios()}, "salt", 20, [])
    with pytest.raises(ValueError, match=r"'b' has 13 devices, 'a' has 12; score all arms"):
        intervals.compare({"a": few.ratios(), "b": simulated(rng, 13).ratios()}, "salt", 4, [])
    with pytest.raises(ValueError, match="none given"):
        intervals.compare({}, "salt", 4, [])
    with pytest.raises(ValueError, match="top1_recall: without one bucket"):
        intervals.ratios(np.ones(3), np.zeros(3), np.arange(3), 3, "top1_recall")


def test_few_devices_are_left_out_one_by_one_and_many_in_parts() -> None:
    one = simulated(np.random.default_rng(6), 40)
    table = {"a": one.ratios()}
    top1_D, words_D = table["a"]["top1_recall"]
    alone = intervals.ratios(top1_D, words_D, np.arange(40), 40)
    got = intervals.compare(table, "salt", 20, []).arm("a", "top1_recall").estimate
    assert got.standard_error == pytest.approx(intervals.interval(alone).standard_error, rel=1e-12)
    many = simulated(np.random.default_rng(7), 3000)
    top1_D, words_D = many.ratios()["top1_recall"]
    bucket_D = intervals.bucket_of([str(number) for number in range(3000)], "salt", intervals.MOST_ALONE)
    used, place_D = np.unique(bucket_D, return_inverse=True)
    parts = intervals.ratios(top1_D, words_D, place_D, len(used))
    got = intervals.compare({"a": many.ratios()}, "salt", 20, []).arm("a", "top1_recall").estimate
    assert got.standard_error == pytest.approx(intervals.interval(parts).standard_error, rel=1e-12)


def test_degrees_of_freedom_are_those_of_as_many_equal_devices_and_of_the_few_that_type_most() -> None:
    assert intervals.degrees_of_freedom(np.full(21, 7.0)) == 20
    # Between two rows of the table the lower one counts: nobody reads off how many devices there are.
    assert intervals.degrees_of_freedom(np.full(30, 7.0)) == 20
    assert intervals.degrees_of_freedom(np.full(10**6, 1.0)) == 500
    # Satterthwaite by hand: (4 * 10^2 + 100)^2 / (4 * 10^4 + 100) - 1 = 5.2.
    assert intervals.degrees_of_freedom(np.array([10.0] * 4 + [1.0] * 100)) == 5
    assert intervals.degrees_of_freedom(np.array([1e6] + [1.0] * 100)) == 1
    # Where each device has its own error, as wide as it types much, it is twice the mean over the variance, squared.
    rng = np.random.default_rng(8)
    weight_D = rng.lognormal(0, 0.7, 60)
    drawn = np.sum((weight_D * rng.standard_normal((20_000, 60))) ** 2, axis=1)
    wanted = 2 * drawn.mean() ** 2 / drawn.var()
    assert intervals.degrees_of_freedom(weight_D) == max(each for each in (8, 10, 15, 20, 30) if each <= wanted)


def test_attempts_together_spend_what_one_interval_may_miss() -> None:
    spent = [1 - intervals.confidence_of(attempt) for attempt in range(1, 20_001)]
    assert spent == sorted(spent, reverse=True)
    # The sum of 1 / k^2 is pi^2 / 6 (Euler); what is left after n terms is about 1 / n of that.
    assert sum(spent) == pytest.approx(0.05, rel=1e-4)
    assert sum(spent) < 0.05
    assert intervals.confidence_of(1) == pytest.approx(1 - 0.05 * 6 / np.pi**2, rel=1e-12)
    with pytest.raises(ValueError, match="attempt: 0; the first is 1"):
        intervals.confidence_of(0)


def test_a_later_attempt_has_wider_intervals_around_the_same_values() -> None:
    rng = np.random.default_rng(9)
    tables = {name: simulated(rng, 60, rate).ratios() for name, rate in (("old", 0.2), ("new", 0.25))}
    first, later = (
        intervals.compare(tables, "salt", 20, [("new", "old")], intervals.confidence_of(attempt)) for attempt in (1, 5)
    )
    one, other = (result.difference("new", "old", "top1_recall").absolute for result in (first, later))
    assert other.value == one.value
    assert other.low < one.low < one.high < other.high


def heavy_users(rng: np.random.Generator, devices: int) -> np.ndarray:
    """Words of devices, about a tenth of which type twenty times as much."""
    return np.ceil(rng.lognormal(3.5, 0.5, devices) * np.where(rng.random(devices) < 0.1, 20, 1)).astype(np.int64)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    "words",
    [
        lambda rng, devices: np.full(devices, 100),
        lambda rng, devices: np.ceil(rng.lognormal(4, 1, devices)).astype(np.int64),
        lambda rng, devices: np.ceil(rng.lognormal(4, 1.5, devices)).astype(np.int64),
        heavy_users,
    ],
    ids=["alike", "lognormal 1", "lognormal 1.5", "heavy users"],
)
def test_intervals_cover_also_with_few_devices_and_with_heavy_users(words) -> None:
    rng = np.random.default_rng(10)
    trials, covered = 1500, np.zeros(2)
    for _ in range(trials):
        words_D = words(rng, 25)
        rate_D = np.minimum(rng.beta(2, 8, 25), 0.79)
        old_D = rng.binomial(words_D, rate_D)
        new_D = old_D - rng.binomial(old_D, 0.25) + rng.binomial(words_D - old_D, 0.25 * rate_D / (1 - rate_D))
        tables = {
            "new": {"top1_recall": (new_D.astype(float), words_D.astype(float))},
            "old": {"top1_recall": (old_D.astype(float), words_D.astype(float))},
        }
        result = intervals.compare(tables, "salt", 20, [("new", "old")])
        estimates = result.arm("old", "top1_recall").estimate, result.difference("new", "old", "top1_recall").absolute
        covered += [each.low <= truth <= each.high for each, truth in zip(estimates, (0.2, 0.0), strict=True)]
    # Two standard errors of the simulation below 94%.
    assert np.all(covered / trials >= 0.928), covered / trials
