"""Ways to spend a rho: none costs more, and none of its shape has less noise."""

import itertools
import math

import pytest

from federated.accounting.guarantees import account
from federated.config.mechanism import TreeMechanism
from federated.config.planning import PlanningConfig, SmallTrade
from federated.config.population import EVERYBODY_TRAINS
from federated.planning import costs, trade
from federated.planning.search import terms_of

MECHANISM = TreeMechanism(
    kind="tree",
    noise_multiplier=7.0,
    clip_norm=0.3,
    rounds=16,
    report_goal=100,
    min_sep=8,
    max_participations=2,
    delta=1e-6,
    randomness="secure",
)
PLANNING = PlanningConfig(population_estimate=1000, max_report_goal=200, round_minutes=10.0, target_rho=0.5)
TERMS = terms_of(MECHANISM, PLANNING, EVERYBODY_TRAINS)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.05, 0.5, 1.0])
def test_a_block_costs_what_was_asked_and_no_more(rho: float) -> None:
    block = trade.training_at(MECHANISM, TERMS, rho, (16, 100), ("tree",))
    reached = account(block, (1e-6,)).rho
    assert 0.998 * rho < reached <= rho
    assert trade.own_rho(block) == reached
    assert (block.rounds, block.report_goal, block.min_sep) == (16, 100, 9)
    assert (block.clip_norm, block.randomness) == (0.3, "secure")


def test_no_mechanism_of_the_shape_has_less_noise_at_this_rho() -> None:
    block = trade.training_at(MECHANISM, TERMS, 0.5, (16, 100), ("tree", "banded"))
    limits = (16, 9, 2)
    others = [costs.tree(*limits), costs.tree_with_restarts(*limits), costs.as_launched(costs.banded(*limits))]
    # Within the 1% that the planner gives up for memory.
    least = min(strategy.loss for strategy in others) / (100 * math.sqrt(2 * 0.5))
    assert costs.noise_to_signal(block) <= 1.011 * least


def test_more_rho_is_less_noise_by_its_root() -> None:
    ratios = [
        costs.noise_to_signal(trade.training_at(MECHANISM, TERMS, rho, (16, 100), ("tree",))) for rho in (0.1, 0.4, 1.6)
    ]
    assert [first / second for first, second in itertools.pairwise(ratios)] == pytest.approx([2, 2], rel=1e-3)


def test_shapes_are_what_the_population_can_fill() -> None:
    limits = SmallTrade(goals=(1.0, 0.5, 0.25))
    assert list(trade.shapes(MECHANISM, TERMS, limits)) == [(16, 200), (16, 100), (16, 50)]
    few = TERMS.with_planning(population_estimate=100)
    assert list(trade.shapes(MECHANISM, few, limits)) == [(16, 90), (16, 45), (16, 22)]


def test_counts_cost_no_more_than_asked() -> None:
    for rho in (0.03, 0.1, 0.9, 1.0):
        assert 0.998 * rho < trade.counts_at(rho).rho <= rho


def test_pairs_never_exceed_the_whole() -> None:
    pairs = list(trade.pairs((0.1, 0.5, 0.9, 1.0)))
    assert set(pairs) == {(0.1, 0.9), (0.9, 0.1), (0.5, 0.5), (0.1, 0.5), (0.5, 0.1), (0.1, 0.1)}
