"""The pure parts of the benchmark of private training: noise at equal rho, shapes of runs, arithmetic of rows."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.private_training.settings import (
    BASE,
    GOAL,
    RHO,
    ROUNDS,
    SETTINGS,
    Embeddings,
    Setting,
    equal_noise,
    rho_of,
    run_of,
    shape_of,
)
from benchmarks.private_training.table import gain, tables
from benchmarks.private_training.training import START, Row, trained
from benchmarks.utility.recalls import Recalls
from federated.rounds.server import flat_weights
from tests.helpers.launches import small_run


def row(setting: str, draw: int, top1: float, population: str = "chat") -> Row:
    """A row whose test recalls are ``top1``, and whose validation recalls are a point less."""
    test = Recalls(top1, top1 + 10, top1 + 1, top1 - 1, 300)
    shape = ROUNDS, GOAL, 4, 4
    validation = replace(test, top1=top1 - 1)
    return Row(population, setting, draw, 938, *shape, 6.0, None if setting == START else 0.5, 40.0, validation, test)


def test_settings_have_names_of_their_own_and_groups_together() -> None:
    names = [setting.name for setting in SETTINGS]
    assert len(set(names)) == len(names)
    assert names[0] == BASE
    groups = [setting.group for setting in SETTINGS]
    changes = sum(first != second for first, second in itertools.pairwise(groups))
    assert changes == len(set(groups)) - 1


@pytest.mark.slow
@pytest.mark.parametrize("devices", [237, 938, 2100])
def test_every_setting_costs_the_same_rho_and_fits_the_population(devices: int) -> None:
    for setting in SETTINGS:
        run = run_of(setting, devices)
        block = run.mechanism
        assert block.timed
        assert block.report_goal * block.min_sep <= devices or block.min_sep == 1
        # A device that joins whenever it may joins as often as is accounted for.
        assert block.max_participations == math.ceil(block.rounds / block.min_sep)
        if setting.noise:
            assert run.rho == pytest.approx(RHO)
            assert rho_of(block) == pytest.approx(RHO)
        else:
            assert run.rho is None


def test_noise_follows_the_square_root_of_rho() -> None:
    assert equal_noise(0.5, 0.5) == 1
    assert equal_noise(8.0, 0.5) == 4


def test_a_quarter_of_rho_is_twice_the_noise() -> None:
    setting = SETTINGS[0]
    one, quarter = (run_of(setting, 938, rho).mechanism.noise_multiplier for rho in (0.4, 0.1))
    assert quarter == pytest.approx(2 * one)


def test_a_tree_of_four_participations_has_the_variance_of_all_that_meet_them() -> None:
    """16 rounds, one participation in each quarter: 4 leaves, 4 pairs, 4 fours, 2 eights of two, the root of four."""
    squared = 4 + 4 + 4 + 2 * 2**2 + 4**2
    assert run_of(SETTINGS[0], 938).mechanism.noise_multiplier == pytest.approx(math.sqrt(squared / (2 * RHO)))


def test_a_tree_of_one_participation_has_the_variance_of_its_height() -> None:
    """16 rounds: a leaf is in 5 nodes, so rho is 5 / (2 z^2)."""
    once = Setting("once", "", goal=0.0, once=True)
    assert run_of(once, 938).mechanism.noise_multiplier == pytest.approx(math.sqrt(5 / (2 * RHO)))


def test_shapes() -> None:
    def shape(devices: int, **changed: float | bool) -> tuple[int, int, int, int]:
        return shape_of(Setting("", "", **changed), devices)

    assert shape(938) == (16, 200, 4, 4)
    assert shape(2100) == (16, 200, 10, 2)
    assert shape(237) == (16, 59, 4, 4)
    assert shape(938, rounds=0.5, goal=2.0) == (8, 400, 2, 4)
    assert shape(938, rounds=2.0, goal=0.5) == (32, 100, 9, 4)
    assert shape(10_000) == (16, 200, 16, 1)
    assert shape(938, once=True) == (4, 234, 4, 1)
    assert shape(938, once=True, goal=0.0) == (16, 58, 16, 1)


@pytest.fixture(scope="module")
def small() -> Callable[[Setting], tuple[np.ndarray, list[np.ndarray]]]:
    """What a setting makes of a tiny model: its weights, and those of each round that were asked for."""

    def train(setting: Setting) -> tuple[np.ndarray, list[np.ndarray]]:
        devices, model = small_run.stream(40, 1), small_run.model_at_start()
        weights_TP = trained(model, run_of(setting, len(devices)), setting, 0, devices, 1)
        return flat_weights(model), weights_TP

    return train


@pytest.mark.slow
def test_means_are_of_the_last_models_of_the_same_run(small: Callable) -> None:
    alone_P, nothing = small(Setting("", ""))
    assert nothing == []
    last_P, weights_TP = small(Setting("", "", averages=(2,)))
    assert len(weights_TP) == ROUNDS
    np.testing.assert_array_equal(last_P, alone_P)
    np.testing.assert_allclose(weights_TP[-1], last_P, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_frozen_word_vectors_stay_and_the_rest_moves(small: Callable) -> None:
    start_P, numbers = flat_weights(small_run.model_at_start()), small_run.model_at_start().embedding.numel()
    frozen_P, _ = small(Setting("", "", embeddings=Embeddings(0.0, 0.0)))
    np.testing.assert_array_equal(frozen_P[:numbers], start_P[:numbers])
    assert np.all(frozen_P[numbers:] != start_P[numbers:])


@pytest.mark.slow
def test_a_weight_under_the_clip_norm_that_the_server_takes_back_changes_nothing_but_clip_and_noise(
    small: Callable,
) -> None:
    plain = Setting("", "", noise=False, clip=100.0)
    plain_P, _ = small(plain)
    weighed_P, _ = small(replace(plain, embeddings=Embeddings(2.0, 0.5)))
    np.testing.assert_allclose(weighed_P, plain_P, rtol=1e-4, atol=1e-4)
    halved_P, _ = small(replace(plain, embeddings=Embeddings(1.0, 0.5)))
    assert np.abs(halved_P - plain_P).max() > 1e-3


def test_a_gain_is_the_mean_difference_with_the_error_of_the_mean() -> None:
    made = gain([13.0, 14.0, 15.0], 12.0)
    assert made.mean == pytest.approx(2)
    assert made.error == pytest.approx(1 / math.sqrt(3))
    assert str(made) == "+2.00 ± 0.58"
    alone = gain([11.0], 12.0)
    assert alone.error is None
    assert str(alone) == "-1.00"


def test_rows_survive_their_file() -> None:
    written = row(BASE, 2, 13.25)
    assert Row.read(written.line()) == written


def test_a_table_holds_measured_rows_alone_and_names_the_rest() -> None:
    rows = [row(START, 0, 12.0), *(row(BASE, draw, 13.0 + draw) for draw in range(3)), row("banded", 0, 14.0)]
    lines = "\n".join(tables(rows, 3)).splitlines()
    assert "| start | | | | 11.00 | 12.00 | 22.00 | 13.00 | 11.00 | 300 | |" in lines
    base = next(line for line in lines if line.startswith(f"| {BASE} "))
    assert base == f"| {BASE} | 3 | 16 x 200, 4 | 6 | " + "+2.00 ± 0.58 | " * 5 + "300 | 40 |"
    assert any(line.startswith("| banded | 1 | 16 x 200, 4 | ") for line in lines)
    assert not any(line.startswith("| BLT") for line in lines)
    assert lines.count("| *noise* | | | | | | | | | | |") == 1
    assert not any("*server*" in line for line in lines)
    missing = next(line for line in lines if line.startswith("Not measured"))
    assert "BLT, 2 buffers; tree, restarted half way; no noise" in missing
    assert missing.endswith("With fewer than 3 draws of the noise: 1 of 2.")


def test_a_population_without_its_start_has_no_table() -> None:
    assert not list(tables([row(BASE, 0, 13.0)], 3))
