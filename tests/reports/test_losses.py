"""Privacy losses round up, and mean what the trade-off curve says."""

import pytest

from reports import losses


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


def test_strength_has_three_tiers() -> None:
    assert [losses.strength(value) for value in (1.0, 1.01, 10.0, 10.01)] == [
        "strong",
        "reasonable",
        "reasonable",
        "weak",
    ]


def test_guesser_follows_the_trade_off_curve() -> None:
    assert losses.guesser(0.0, 0.001) == "0.1%"
    # TPR at FPR 1e-3 for rho 0.25, 0.89, 1.86: 0.0086, 0.0395, 0.123.
    assert [losses.guesser((2 * rho) ** 0.5, 0.001) for rho in (0.25, 0.89, 1.86)] == ["0.9%", "4.0%", "12.3%"]
