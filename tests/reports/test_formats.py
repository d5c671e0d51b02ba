"""Privacy losses round up, and verdicts follow intervals."""

import pytest

from reports import formats
from reports.disclosure.utility import Difference


def test_verdict_needs_an_interval_clear_of_zero() -> None:
    def said(low: float, high: float, metric: str = "top1_recall") -> str:
        row = Difference(candidate="a", baseline="b", metric=metric, value=(low + high) / 2, low=low, high=high)
        return formats.verdict(row)

    assert said(0.01, 0.02) == "better"
    assert said(-0.02, -0.01) == "worse"
    assert said(-0.01, 0.02) == "no clear difference"
    assert said(-0.02, -0.01, "cross_entropy") == "–"


def test_small_counts_are_not_given() -> None:
    assert (formats.at_least(0), formats.at_least(20)) == ("fewer than 10", "20 or more")


def test_a_ceiling_that_no_rank_can_reach_is_no_number_anywhere() -> None:
    assert formats.bits_allowed(98.1, 2_000_000) == "says nothing"
    assert formats.bits_allowed(10.24, 2_000_000) == "10.2"
    assert formats.bits_allowed(None, 2_000_000) == "none"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.95, "95%"),
        (0.9696, "96.96%"),
        (0.9924, "99.24%"),
        (0.9996960, "99.9696%"),
        (0.99999, "99.999%"),
        (0.5, "50%"),
    ],
)
def test_confidence_is_never_rounded_to_certainty(value: float, shown: str) -> None:
    assert formats.confidence(value) == shown
