"""Epsilon against mpmath, published numbers and a second accountant."""

import itertools

import mpmath
import numpy as np
import pytest

from federated.accounting import guarantees as accounting
from federated.accounting.gaussian import curve, delta_of_epsilon, epsilon_of_rho
from federated.accounting.guarantees import account, from_records, guarantee_of
from federated.mechanisms import Tree, tree
from federated.mechanisms.independent import Independent
from federated.participation.cohorts import Cohorts
from federated.participation.observation import Observation, observe
from federated.participation.records import no_records
from federated.secagg.bounds import plan_encoding
from tests.helpers.launches.small_run import mechanism

MECHANISM = mechanism(
    noise_multiplier=7.0, rounds=20, report_goal=10, min_sep=5, max_participations=4, clip_norm=0.3, delta=1e-10
)


@pytest.mark.parametrize("rho", [1e-4, 0.014, 0.25, 1.86, 12.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-10, 1e-12])
def test_epsilon_solves_the_exact_curve(rho: float, delta: float) -> None:
    mpmath.mp.dps = 50
    epsilon, mu = mpmath.mpf(epsilon_of_rho(rho, delta)), mpmath.sqrt(2 * mpmath.mpf(rho))
    exact = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
    assert float(exact) == pytest.approx(delta, rel=1e-6)


def test_no_loss_and_large_delta_give_zero() -> None:
    assert epsilon_of_rho(0.0, 1e-10) == 0.0
    assert epsilon_of_rho(1e-6, 0.5) == 0.0
    assert delta_of_epsilon(0.0, 1.0) == 0.0


def test_epsilon_falls_with_delta_and_rises_with_rho() -> None:
    assert all(a[1] > b[1] for a, b in itertools.pairwise(curve(0.5, [1e-12, 1e-9, 1e-6, 1e-3])))
    assert epsilon_of_rho(0.5, 1e-6) < epsilon_of_rho(0.6, 1e-6)


@pytest.mark.slow
def test_guarantee_of_a_published_row() -> None:
    config = MECHANISM.model_copy(update={"rounds": 1280, "min_sep": 181, "max_participations": 5})
    reached = account(config, (1e-10, 1e-6))
    assert reached.sensitivity_squared == 87
    assert reached.rho == pytest.approx(0.8878, abs=1e-4)
    assert reached.mu == pytest.approx((2 * reached.rho) ** 0.5)
    for delta in (1e-10, 1e-6):
        assert reached.epsilon[delta] == pytest.approx(reached.epsilon_pld[delta], abs=1e-3)


def test_a_wrong_accountant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = accounting.epsilon_of_rho
    monkeypatch.setattr(accounting, "epsilon_of_rho", lambda rho, delta: right(rho * 0.99, delta))
    with pytest.raises(ArithmeticError, match="must not be published"):
        account(MECHANISM, (1e-10,))


def test_a_wrong_sensitivity_is_caught_although_both_conversions_agree_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    right = tree.tree_sensitivity_squared
    monkeypatch.setattr(tree, "tree_sensitivity_squared", lambda *row: right(*row) - 1)
    with pytest.raises(ArithmeticError, match="sensitivity_squared: 35 by one program but 36 by the other"):
        account(MECHANISM, (1e-10,))


@pytest.mark.slow
def test_the_method_says_whether_the_sensitivity_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert account(MECHANISM, (1e-10,)).methods[2] == accounting.SENSITIVITY_TWICE
    monkeypatch.setattr(tree, "tree_sensitivity_squared_forward", lambda *_: None)
    assert account(MECHANISM, (1e-10,)).methods[2] == accounting.SENSITIVITY_ONCE


@pytest.mark.slow
def test_independent_noise_is_accounted_with_and_without_its_sample() -> None:
    sampled = Independent(2.0, "poisson", 0.1, 1000)
    reached = guarantee_of(sampled, 20, 1, 5, (1e-6,))
    assert reached.rho == pytest.approx(5 / (2 * 2.0**2))
    assert reached.methods[2] == accounting.SENSITIVITY_COUNTED
    assert reached.amplified is not None
    assert reached.amplified.epsilon[1e-6] < guarantee_of(sampled, 20, 1, 20, (1e-6,)).epsilon[1e-6]
    assert guarantee_of(Tree(2.0), 20, 5, 4, (1e-6,)).amplified is None


@pytest.mark.slow
def test_a_longer_contribution_costs_its_square() -> None:
    encoding = plan_encoding(num_parameters=1000, devices=50, bits=24)
    assert encoding.inflated_norm > 1
    plain, longer = (guarantee_of(Tree(6.0), 16, 4, 4, (1e-6,), how) for how in (None, encoding))
    assert longer.rho == pytest.approx(plain.rho * encoding.inflated_norm**2)
    assert longer.sensitivity_squared == pytest.approx(plain.sensitivity_squared * encoding.inflated_norm**2)
    assert longer.epsilon_pld[1e-6] > plain.epsilon_pld[1e-6]


@pytest.mark.slow
def test_what_happened_is_accounted_not_what_was_planned() -> None:
    cohorts = Cohorts(num_devices=400, report_goal=10, min_sep=5, max_participations=4, seed=1)
    state, records = cohorts.init(), no_records()
    for number in range(20):
        cohort, state = cohorts.draw(state, number)
        records = records.add(number, cohort)
    observed = observe(records, 20, cohorts, np.zeros(400, dtype=bool))
    reached = from_records(MECHANISM, observed)
    planned = account(MECHANISM, (1e-10,))
    assert observed.max_participations < 4
    assert reached.rho < planned.rho
    assert reached.max_participations == observed.max_participations


def test_a_separation_below_the_enforced_one_is_what_counts() -> None:
    closer = MECHANISM.min_sep - 1
    observed = Observation(MECHANISM.rounds, closer, closer - 1, 2, {2: 1}, {closer: 1}, 1, 0)
    reached = from_records(MECHANISM, observed)
    assert (reached.min_sep, reached.max_participations) == (closer, 2)


def test_more_participations_than_enforced_are_what_counts() -> None:
    more = MECHANISM.max_participations + 2
    observed = Observation(MECHANISM.rounds, 3, 2, more, {more: 1}, {3: 1}, 1, 0)
    assert from_records(MECHANISM, observed).max_participations == more


@pytest.mark.parametrize(("rho", "delta"), [(-1.0, 1e-6), (float("nan"), 1e-6), (0.5, 0.0), (0.5, 1.0)])
def test_bad_numbers_are_named(rho: float, delta: float) -> None:
    with pytest.raises(ValueError, match="got"):
        epsilon_of_rho(rho, delta)
