"""Privacy losses round up, and mean what the trade-off curve says."""

import math

import numpy as np
import pytest
from scipy import stats

from reports import losses
from reports.disclosure.total import Part, Total


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [(4.8812, 2, "4.89"), (0.29, 2, "0.29"), (0.290000001, 2, "0.30"), (0.5, 4, "0.5000"), (1e-9, 3, "0.001")],
)
def test_losses_are_rounded_up(value: float, digits: int, shown: str) -> None:
    assert losses.up(value, digits) == shown
    assert float(shown) >= value


def test_losses_that_are_missing_or_infinite_are_said() -> None:
    assert losses.up(None) == "none"
    assert losses.up(float("inf")) == "without bound"


def test_one_number_names_its_largest_part_where_it_is_a_sum() -> None:
    words = Part(releases=("local_words",), split="train", epsilon=8.0, delta=0.0, rho=None, how="local")
    trained = Part(releases=("training",), split="train", epsilon=4.881, delta=1e-6, rho=0.5, how="noise")
    held_out = Part(releases=("evaluation",), split="test", epsilon=3.0, delta=1e-6, rho=0.2, how="noise")
    whole = Total(epsilon=12.881, delta=1e-6, parts=(words, trained, held_out))
    assert (whole.number, whole.rho) == ("12.89 (local words 8.00)", None)
    assert whole.sentence == "epsilon 12.89 (local words 8.00) at delta 1e-06"
    assert (
        Total(epsilon=4.881, delta=1e-6, parts=(trained, held_out)).sentence
        == "epsilon 4.89 at delta 1e-06, rho 0.5000"
    )


def test_strength_has_three_tiers() -> None:
    assert [losses.strength(value) for value in (1.0, 1.01, 10.0, 10.01)] == [
        "strong",
        "reasonable",
        "reasonable",
        "weak",
    ]


@pytest.mark.parametrize(
    ("mu", "epsilon", "delta"), [(0.3, 0.5, 0.0), (1.0, 2.0, 1e-3), (0.9, 0.0, 2e-3), (1.2, 6.0, 0.0)]
)
def test_guesser_beside_an_answer_follows_the_best_test_of_both(mu: float, epsilon: float, delta: float) -> None:
    """Against the likelihood ratio test on a fine grid of outcomes, by the lemma of Neyman and Pearson."""
    grid = np.linspace(-12, 12, 400_001)
    taken = stats.norm.pdf(grid - mu), stats.norm.pdf(grid)
    yes = 1 / (1 + math.exp(-epsilon))
    with_one = np.concatenate([yes * taken[0], (1 - yes) * taken[0]]) * (grid[1] - grid[0]) * (1 - delta)
    without = np.concatenate([(1 - yes) * taken[1], yes * taken[1]]) * (grid[1] - grid[0]) * (1 - delta)
    order = np.argsort(-with_one / without)
    best = delta + with_one[order][np.cumsum(without[order]) <= 0.001].sum()
    assert float(losses.guesser(mu, 0.001, epsilon, delta)[:-1]) == pytest.approx(100 * best, abs=0.11)


def test_guesser_beside_nothing_is_that_of_the_curve_alone() -> None:
    assert losses.guesser(1.0, 0.001, 1e-12, 0.0) == losses.guesser(1.0, 0.001)


def test_guesser_follows_the_trade_off_curve() -> None:
    assert losses.guesser(0.0, 0.001) == "0.1%"
    # TPR at FPR 1e-3 for rho 0.25, 0.89, 1.86: 0.0086, 0.0395, 0.123.
    assert [losses.guesser((2 * rho) ** 0.5, 0.001) for rho in (0.25, 0.89, 1.86)] == ["0.9%", "4.0%", "12.3%"]


@pytest.mark.parametrize(
    ("epsilons", "written"),
    [((8.0, 4.8865), "12.89 = 8.00 + 4.89"), ((2.001, 5.001), "7.01 ≤ 2.01 + 5.01"), ((4.8865,), "")],
)
def test_the_parts_of_a_total_are_added_in_one_sentence(epsilons: tuple[float, ...], written: str) -> None:
    names = ("local_words", "training")[-len(epsilons) :]
    parts = [
        {"releases": [name], "split": "train", "epsilon": epsilon, "delta": 0.0 if name == "local_words" else 1e-6}
        | ({"rho": None, "how": "local"} if name == "local_words" else {"rho": 0.5, "how": "noise"})
        for name, epsilon in zip(names, epsilons, strict=True)
    ]
    assert Total.model_validate({"epsilon": sum(epsilons), "delta": 1e-6, "parts": parts}).addition == written
