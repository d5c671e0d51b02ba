"""Tests of the noise itself: parts without noise, another law, noise used twice; and their level where all is right."""

import numpy as np
import pytest
from scipy import stats

from evaluation.audit.matched_filter import least_length, least_noise
from evaluation.audit.released import values
from evaluation.audit.released.values import noise_values, places

SHAPES, ROUNDS, Z = ((60, 8), (8, 36), (36, 12), (60,)), 3, 2.5
LOOKED_AT = places(SHAPES, ROUNDS)
ALPHA = 0.01


def noise(seed: int = 0, rounds: int = ROUNDS) -> np.ndarray:
    return Z * np.random.default_rng(seed).standard_normal((rounds, len(LOOKED_AT.numbers_K)))


def found(noise_TK: np.ndarray) -> dict[str, str]:
    rows = noise_values(noise_TK, LOOKED_AT, np.eye(len(noise_TK)), Z, ALPHA)
    return {row.type: row.reason for row in rows if not row.passed}


def test_places_are_the_rows_of_the_model() -> None:
    assert len(LOOKED_AT.numbers_K) == sum(int(np.prod(shape)) for shape in SHAPES)
    assert len(LOOKED_AT.starts_R) == 60 + 8 + 36 + 1
    assert np.bincount(LOOKED_AT.tensor_R).tolist() == [60, 8, 36, 1]


def test_a_long_run_keeps_a_share_of_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_NUMBERS", 1000)
    few = places(SHAPES, ROUNDS)
    assert len(few.starts_R) == len(LOOKED_AT.starts_R)
    assert len(few.numbers_K) < 0.4 * len(LOOKED_AT.numbers_K)
    assert np.all(np.diff(few.numbers_K) > 0)


@pytest.mark.parametrize(
    "part",
    [
        np.s_[:, 16:24],
        np.s_[:, :80],
        np.s_[2, :],
        np.s_[1, 480:516],
        np.s_[:, 7::50],
        np.s_[:, 1200:],
    ],
    ids=["row", "ten rows", "last round", "row of a round", "2%", "tensor"],
)
def test_less_noise_in_a_part_is_seen(part: tuple) -> None:
    changed_TK = noise()
    changed_TK[part] = 0.0
    assert "noise_variance" in found(changed_TK)


def test_nine_tenths_of_the_noise_are_seen() -> None:
    assert "noise_variance" in found(0.9 * noise())
    assert "noise_variance" in found(1.1 * noise())


@pytest.mark.parametrize(
    "law",
    [
        lambda rng, shape: np.where(rng.random(shape) < 0.5, -1.0, 1.0),
        lambda rng, shape: rng.uniform(-(3**0.5), 3**0.5, shape),
        lambda rng, shape: rng.laplace(size=shape) / 2**0.5,
    ],
    ids=["two points", "uniform", "Laplace"],
)
def test_another_law_is_seen(law) -> None:
    assert "noise_values" in found(Z * law(np.random.default_rng(1), noise().shape))


def test_noise_that_stands_at_two_places_is_seen() -> None:
    twice_TK = noise()
    twice_TK[:, 8:16] = -twice_TK[:, :8]
    assert "several weights" in found(twice_TK)["noise_values"]
    again_TK = noise()
    again_TK[2] = again_TK[0]
    assert "alike" in found(again_TK)["noise_values"]


@pytest.mark.slow
@pytest.mark.statistical
def test_honest_noise_keeps_the_level() -> None:
    alarms = sum(bool(found(noise(seed))) for seed in range(300))
    # Binomial: more than 9 of 300 at 1% has a chance of 1 in 1,000.
    assert alarms <= 9


def test_the_least_noise_is_noticed_nine_times_out_of_ten() -> None:
    level, numbers = 0.001, 400
    share = least_noise(numbers, level)
    power = stats.chi2.cdf(stats.chi2.ppf(level / 2, numbers) / share**2, numbers)
    assert power == pytest.approx(0.9, abs=1e-6)
    rng = np.random.default_rng(0)
    estimates = 1 + 0.05 * rng.standard_normal(20_000) + (least_length(0.05, 10_000, level) - 1)
    assert np.mean(estimates > 1 + 0.05 * stats.norm.isf(level)) == pytest.approx(0.9, abs=0.01)
