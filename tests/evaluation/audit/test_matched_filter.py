"""The audit of the noise: five bugs planted in the project's own parts are caught, and honest runs pass."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from evaluation.audit.matched_filter import Claim, MatchedFilter, least_length, least_noise, matched_filter
from federated.mechanisms.blt import Blt
from federated.mechanisms.tree import Tree
from tests.helpers.audits.noise_run import (
    MIN_SEP,
    MOST,
    ROUNDS,
    HalfNoise,
    ReusedNoise,
    blt,
    claim,
    honest_run,
    loose_clip,
    run,
    tree,
)

both = pytest.mark.parametrize("mechanism", [tree(), blt()], ids=["tree", "blt"])


def kinds(found: MatchedFilter) -> set[str]:
    return {failure.split(":")[0] for failure in found.failures}


@pytest.mark.slow
@both
def test_an_honest_run_passes_with_the_claimed_numbers(mechanism: Tree | Blt) -> None:
    promised = claim(mechanism)
    found = matched_filter(*honest_run(mechanism, 0), promised)
    assert found.failures == ()
    for estimate in (found.noise, found.signal):
        assert estimate.value == pytest.approx(estimate.claim, rel=0.1)
    # Tight: the estimate comes near the claim, where attacks on the final model stay far below.
    assert found.mu.value > 0.75 * promised.mu


@pytest.mark.slow
@both
def test_half_the_noise_is_caught(mechanism: Tree | Blt) -> None:
    found = matched_filter(*run(HalfNoise(mechanism), 0), claim(mechanism))
    assert {"noise", "separation"} <= kinds(found)
    assert found.noise.value == pytest.approx(mechanism.noise_multiplier / 2, rel=0.02)


@pytest.mark.slow
@both
def test_a_clip_that_is_too_loose_is_caught(mechanism: Tree | Blt) -> None:
    found = matched_filter(*run(mechanism, 0, clip=loose_clip), claim(mechanism))
    assert {"signal", "separation"} <= kinds(found)
    assert found.signal.value == pytest.approx(1.5, abs=0.1)


@pytest.mark.slow
@both
@pytest.mark.parametrize("most", [MOST, 2 * MOST])
def test_a_timer_of_half_the_length_is_caught(mechanism: Tree | Blt, most: int) -> None:
    found = matched_filter(*run(mechanism, 0, min_sep=MIN_SEP // 2, most=most), claim(mechanism))
    assert {"separation", "records"} <= kinds(found)
    assert "signal" not in kinds(found)


@pytest.mark.slow
@both
def test_noise_used_twice_is_caught_though_it_does_not_weaken_any_round(mechanism: Tree | Blt) -> None:
    found = matched_filter(*run(ReusedNoise(mechanism), 0), claim(mechanism))
    assert kinds(found) == {"reuse"}
    assert found.reuse.rounds[1] - found.reuse.rounds[0] == found.reuse.lag == 40
    assert found.reuse.correlation > 0.99


@pytest.mark.slow
@both
def test_a_sensitivity_for_one_participation_less_is_caught(mechanism: Tree | Blt) -> None:
    seen = honest_run(mechanism, 0)
    assert "records" in kinds(matched_filter(*seen, claim(mechanism, most=MOST - 1)))
    assert not matched_filter(*seen, claim(mechanism)).failures


@pytest.mark.slow
def test_a_sensitivity_for_mins_taken_as_min_sep_is_caught() -> None:
    """MinS counts the rounds between: taking it for min_sep + 1 claims a separation that nobody enforced."""
    seen = honest_run(blt(), 0)
    assert kinds(matched_filter(*seen, claim(blt(), min_sep=MIN_SEP + 1))) == {"records"}
    assert not matched_filter(*seen, claim(blt())).failures


@pytest.mark.slow
def test_a_sensitivity_far_too_small_shows_in_the_scores_alone() -> None:
    found = matched_filter(*honest_run(blt(), 0), claim(blt(), most=1))
    assert {"separation", "records"} <= kinds(found)


@both
@pytest.mark.slow
@pytest.mark.statistical
def test_twenty_honest_runs_raise_no_more_than_the_nominal_alarms(mechanism: Tree | Blt) -> None:
    promised = claim(mechanism)
    less = replace(promised, noise_multiplier=0.9 * promised.noise_multiplier)
    runs = [honest_run(mechanism, seed) for seed in range(20)]
    assert sum(bool(matched_filter(*one, promised, alpha=0.05).failures) for one in runs) <= 1  # 20 x 0.05
    # A claim of nine tenths of the noise is refuted in every one of them.
    assert all("noise" in kinds(matched_filter(*one, less, alpha=0.05)) for one in runs)


@pytest.mark.slow
@pytest.mark.statistical
def test_p_values_are_uniform_where_the_claim_is_exact() -> None:
    """Independent noise, all canaries with the worst pattern: then every test has exactly its level."""
    rng = np.random.default_rng(0)
    rounds, number, z = 6, 60, 1.3
    joined_TN = np.zeros((rounds, number), dtype=bool)
    joined_TN[[0, 3]] = True
    exact = Claim(np.eye(rounds), z, np.sqrt(2) / z)
    found = []
    for _ in range(300):
        included_N = rng.random(number) < 0.5
        projections_TN = joined_TN * included_N + z * rng.standard_normal((rounds, number))
        found.append(matched_filter(projections_TN, joined_TN, included_N, exact, alpha=0.05))
    for name in ("noise", "signal", "mu"):
        p_values = [getattr(one, name).p_value for one in found]
        assert stats.kstest(p_values, "uniform").pvalue > 0.01, name
    assert np.mean([bool(one.failures) for one in found]) < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 300)
    # For a claim that is too small by a third they are not.
    wrong = Claim(np.eye(rounds), z, np.sqrt(2) / z / 1.5)
    again = []
    for _ in range(40):
        included_N = rng.random(number) < 0.5
        projections_TN = joined_TN * included_N + z * rng.standard_normal((rounds, number))
        again.append(matched_filter(projections_TN, joined_TN, included_N, wrong).mu.p_value)
    assert stats.kstest(again, "uniform").pvalue < 1e-6


def test_what_does_not_fit_is_refused() -> None:
    projections_TN, joined_TN = np.zeros((ROUNDS, 8)), np.ones((ROUNDS, 8), dtype=bool)
    included_N = np.arange(8) < 4
    promised = Claim(np.eye(ROUNDS), 1.0, 1.0)
    with pytest.raises(ValueError, match="give the same rounds and canaries"):
        matched_filter(projections_TN[:-1], joined_TN[:-1], included_N, promised)
    with pytest.raises(ValueError, match="2 canaries took part and 6 did not"):
        matched_filter(projections_TN, joined_TN, np.arange(8) < 2, promised)
    with pytest.raises(ValueError, match="never had a round"):
        matched_filter(projections_TN, joined_TN & (np.arange(8) > 0), included_N, promised)
    with pytest.raises(ArithmeticError, match="not finite"):
        matched_filter(projections_TN * np.nan, joined_TN, included_N, promised)


def test_no_noise_at_all_speaks_against_the_run_and_is_no_error() -> None:
    projections_TN, joined_TN, included_N = honest_run(blt(), 0)
    found = matched_filter(0.0 * projections_TN, joined_TN, included_N, claim(blt()))
    assert {"noise", "reuse"} <= kinds(found)
    assert np.isfinite(found.mu.value)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["noise", "signal", "separation"])
def test_the_least_fault_is_noticed_nine_times_out_of_ten(kind: str) -> None:
    """In a small run, where it is far from the claim: 3 rounds and 64 canaries, each in one round."""
    rounds, count, runs, noticed = 3, 64, 200, 0
    claimed = Claim(np.eye(rounds), 4.0, 1 / 4.0)
    joined_TN, included_N = np.arange(rounds)[:, None] == np.arange(count) % rounds, np.arange(count) < count // 2
    rng = np.random.default_rng(0)

    def released(noise: float, clip: float) -> MatchedFilter:
        noise_TN = noise * rng.standard_normal((rounds, count))
        return matched_filter(4.0 * noise_TN + clip * joined_TN * included_N, joined_TN, included_N, claimed)

    honest = released(1.0, 1.0)
    least = {"noise": honest.noise, "signal": honest.signal, "separation": honest.mu}[kind].least
    assert least is not None
    for _ in range(runs):
        noticed += kind in kinds(released(least, 1.0) if kind == "noise" else released(1.0, least))
    # Three standard errors of a share of 0.9 in 200.
    assert noticed / runs == pytest.approx(0.9, abs=0.064)


def test_the_least_noise_is_noticed_nine_times_out_of_ten() -> None:
    level, numbers = 0.001, 400
    share = least_noise(numbers, level)
    power = stats.chi2.cdf(stats.chi2.ppf(level / 2, numbers) / share**2, numbers)
    assert power == pytest.approx(0.9, abs=1e-6)
    rng = np.random.default_rng(0)
    estimates = 1 + 0.05 * rng.standard_normal(20_000) + (least_length(0.05, 10_000, level) - 1)
    assert np.mean(estimates > 1 + 0.05 * stats.norm.isf(level)) == pytest.approx(0.9, abs=0.01)
