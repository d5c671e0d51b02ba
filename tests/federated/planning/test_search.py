"""The mechanism of least noise at a rho: by hand, as published, and as a launch builds it."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from federated.accounting.guarantees import account
from federated.config.mechanism import BandedMechanism, BltMechanism, TreeMechanism
from federated.config.planning import PlanningConfig
from federated.config.population import EVERYBODY_TRAINS, Splits
from federated.config.training import ServerConfig
from federated.counts.posterior import LEAST_PAIR
from federated.mechanisms import build
from federated.mechanisms.banded import from_matrix
from federated.mechanisms.blt import Blt
from federated.mechanisms.independent import Independent
from federated.mechanisms.optimise_banded import optimise_banded
from federated.mechanisms.tree import Tree
from federated.planning import law, search
from federated.planning.search import block_at, counts_at, terms_of
from pretrain.ngrams import counted
from pretrain.ngrams.ngram import NGram
from tests.helpers.audits.strategies import streamed
from tests.helpers.launches.small_run import mechanism
from tests.helpers.text.counted_devices import VOCABULARY, typed

SERVER = ServerConfig(learning_rate=1.0)
MECHANISM = mechanism(noise_multiplier=7.0, rounds=16, report_goal=100, min_sep=8, clip_norm=0.3, delta=1e-6)
PLANNING = PlanningConfig(population_estimate=1000, max_report_goal=100, target_rho=0.5)
TERMS = terms_of(PLANNING, EVERYBODY_TRAINS, SERVER)


def test_errors_by_hand() -> None:
    # Two rounds of a tree: variance 1, then 2/3 (Honaker). Three independent rounds: 1, 2, 3.
    assert Tree(1.0).rms_error(2) == pytest.approx(math.sqrt(5 / 6))
    assert Independent(1.0, "poisson", 0.5, 10).rms_error(3) == pytest.approx(math.sqrt(2))


@pytest.mark.statistical
@pytest.mark.parametrize(
    "made",
    [
        Tree(1.0),
        Tree(1.0, (4, 8)),
        Blt(1.0, (0.9, 0.4), (0.2, 0.3)),
        Blt(1.0, (0.9, 0.4), (0.2, 0.3), (4, 8)),
        optimise_banded(13, 4, 4, 4, "toeplitz").strategy,
        optimise_banded(13, 4, 4, 4, "matrix").strategy,
        Independent(1.0, "poisson", 0.5, 10),
    ],
    ids=["tree", "restarts", "blt", "blt-restarts", "toeplitz", "matrix", "independent"],
)
def test_the_error_is_that_of_the_noise_that_is_made(made: object) -> None:
    # 20,000 coordinates of 13 rounds: a standard error of about 0.5%; a wrong scale would be off by far more.
    squares = np.mean(np.cumsum(streamed(made, 13, 20_000), axis=0) ** 2, axis=1)
    assert np.mean(squares) ** 0.5 == pytest.approx(made.rms_error(13), rel=0.015)


def test_a_banded_matrix_that_is_not_toeplitz_is_not_taken_for_one() -> None:
    strategy = np.eye(6) + np.diag([0.5, 0.1, 0.5, 0.1, 0.5], -1)
    prefix = np.cumsum(np.linalg.inv(strategy), axis=0)
    expected = math.sqrt(np.mean(np.sum(prefix**2, axis=1)))
    assert from_matrix(1.0, strategy, 2).rms_error(6) == pytest.approx(expected)
    assert from_matrix(1.0, strategy, 2).rms_error(3) != pytest.approx(expected)


@pytest.mark.slow
def test_losses_of_table_3() -> None:
    # McMahan et al. 2024, table 3 (2052 rounds, b 342, k 6) and its optimum for RmsLoss; the tree as it streams.
    def rms_loss(strategy: search.Strategy) -> float:
        return strategy.made.rms_error(2052) * math.sqrt(strategy.sensitivity_squared)

    assert rms_loss(search.tree(2052, 342, 6)) == pytest.approx(19.27, abs=0.006)
    assert rms_loss(search.blt(2052, 342, 6, 2)) == pytest.approx(9.1828, abs=0.0005)


@pytest.mark.parametrize(("rounds", "most", "longer"), [(64, 4, 1.17), (64, 1, 1.4), (200, 4, 1.25)])
def test_a_banded_strategy_goes_a_longer_way_than_that_of_least_prefix_sums(
    rounds: int, most: int, longer: float
) -> None:
    limits, weights_T = (rounds, rounds // most, most), law.round_weights(rounds, SERVER)
    by_prefix = optimise_banded(*limits, rounds // most)
    least = by_prefix.strategy.noise_std(weights_T) * by_prefix.sensitivity_squared**0.5
    assert search.banded(*limits).loss(weights_T) < least / longer


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.05, 0.5, 1.0])
def test_a_block_costs_what_was_asked_and_no_more(rho: float) -> None:
    block = block_at(MECHANISM, TERMS, rho, ("tree",))
    assert 0.998 * rho < account(block, (1e-6,)).rho <= rho
    assert (block.rounds, block.report_goal, block.min_sep) == (16, 100, 9)
    assert (block.clip_norm, block.randomness) == (0.3, "seeded")


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov"])
def test_no_mechanism_of_the_shape_has_less_noise_in_the_last_model(optimizer: str) -> None:
    server = ServerConfig(optimizer=optimizer, learning_rate=1.0)
    block = block_at(MECHANISM, terms_of(PLANNING, EVERYBODY_TRAINS, server), 0.5, ("tree", "banded"))
    limits, weights_T = (16, 9, 2), law.round_weights(16, server)
    others = [search.tree(*limits), search.tree_with_restarts(*limits), search.banded(*limits)]
    least = min(each.loss(weights_T) for each in others) / math.sqrt(2 * 0.5) * 0.3 / 100
    # Within the 1% that the planner gives up for memory.
    assert least <= law.step_noise(block, server) <= 1.011 * least


def test_counts_cost_no_more_than_asked() -> None:
    for rho in (0.03, 0.1, 0.9, 1.0):
        assert 0.998 * rho < counts_at(rho, 900, 4_200).rho <= rho


def test_counts_have_more_contexts_where_more_people_are_heard_in_them_and_the_table_still_fits() -> None:
    def contexts(rho: float, devices: int, words: int) -> int:
        return counts_at(rho, devices, words).contexts

    # 5,000 heard people at rho 0.5 are 7,072 devices; at a hundredth of the rho they are ten times as many.
    assert [contexts(0.5, devices, 4_000) for devices in (7_071, 7_072, 40_000)] == [500, 2_000, 2_000]
    assert [contexts(0.005, devices, 4_000) for devices in (7_072, 70_720)] == [500, 2_000]
    widest = {words: contexts(0.5, 40_000, words) for words in (4_000, 4_200, 8_000, 22_000)}
    assert widest == {4_000: 2_000, 4_200: 1_900, 8_000: 1_000, 22_000: 500}
    nothing = NGram.fit(typed(20, 1), VOCABULARY, 2)
    for words, wide in widest.items():
        counted.require_loadable(nothing, wide * min(words, round(1 / LEAST_PAIR)))


def test_more_rho_is_less_noise_by_its_root() -> None:
    noises = [law.step_noise(block_at(MECHANISM, TERMS, rho, ("tree",)), SERVER) for rho in (0.1, 0.4, 1.6)]
    assert [first / second for first, second in itertools.pairwise(noises)] == pytest.approx([2, 2], rel=1e-3)


def test_no_device_joins_more_rounds_than_lengthen_the_way() -> None:
    many = MECHANISM.model_copy(update={"rounds": 400})
    block = block_at(many, TERMS, 0.5, ("tree",))
    assert block.report_goal == law.MOST_PARTICIPATIONS * 900 // 400
    assert block.max_participations <= law.MOST_PARTICIPATIONS + 1


def test_a_round_takes_no_more_devices_than_there_are() -> None:
    few = terms_of(PLANNING.model_copy(update={"population_estimate": 50}), EVERYBODY_TRAINS, SERVER)
    block = block_at(MECHANISM.model_copy(update={"rounds": 4}), few, 0.5, ("tree",))
    assert (block.report_goal, block.min_sep, block.max_participations) == (45, 1, 4)


def test_devices_that_are_held_out_fill_no_round() -> None:
    terms = terms_of(PLANNING, Splits(test=0.2), SERVER)
    assert (terms.training_devices, terms.usable_devices) == (700, 630)
    with pytest.raises(ValueError, match="of 1 devices about 1 train"):
        terms_of(PLANNING.model_copy(update={"population_estimate": 1}), Splits(test=0.5), SERVER)


@pytest.mark.parametrize("rounds", [1, 2, 3, 7, 8, 13, 40])
def test_copies_of_the_tree_are_the_most_subtrees_open_at_once(rounds: int) -> None:
    state, most = Tree(1.0).init(1), 0
    for number in range(rounds):
        _, state = Tree(1.0).noise(state, number, b"k" * 32)
        most = max(most, len(state.cached))
    assert search.tree(rounds, rounds, 1).copies == most


def test_restarts_are_chosen_for_the_least_loss() -> None:
    found = search.tree_with_restarts(16, 4, 4)
    ones = np.ones(16)
    assert found.loss(ones) == min(search.tree(16, 4, 4, restarts).loss(ones) for restarts in [(4, 8, 12), (8,)])
    assert search.tree_with_restarts(4, 4, 1) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planned", "config"),
    [
        (lambda: search.tree(16, 4, 4, (8,)), TreeMechanism),
        (lambda: search.blt(16, 4, 4, 2), BltMechanism),
        (lambda: search.banded(16, 4, 4), BandedMechanism),
    ],
)
def test_a_launch_builds_the_strategy_that_was_planned(planned: Callable[[], search.Strategy], config: type) -> None:
    strategy = planned()
    shape = {"rounds": 16, "report_goal": 1, "min_sep": 4, "max_participations": 4}
    shared = {"noise_multiplier": 1.0, "clip_norm": 1.0, "delta": 1e-10, "randomness": "seeded"}
    block = config(kind=strategy.kind, **strategy.parameters, **shape, **shared)
    assert build(block).sensitivity_squared(16, 4, 4) == pytest.approx(strategy.sensitivity_squared, rel=1e-9)
    assert build(block).noise_std(np.ones(16)) == pytest.approx(strategy.made.noise_std(np.ones(16)), rel=1e-9)


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [(7.00001, 4, 7.001), (0.54, 4, 0.54), (12341.0, 3, 12400.0), (0.30000000000000004, 4, 0.3001), (2.0, 1, 2.0)],
)
def test_rounding_up_never_falls_below(value: float, digits: int, expected: float) -> None:
    assert search.round_up(value, digits) == expected
    assert search.round_up(value, digits) >= value
