"""The picture of the first page shows what was measured, and a forecast only where nothing refutes it."""

import pytest
from pydantic import ValidationError

from reports.disclosure.utility import NON_PRIVATE
from reports.figures.first_page import bars_of
from tests.helpers.reports.reports_example import block, example


def of_people() -> dict:
    """The example's comparison without the arm that only a simulation may train."""
    utility = block("utility", simulation_without_privacy=False)
    return {
        name: [row for row in value if not isinstance(row, dict) or NON_PRIVATE not in row.values()]
        if isinstance(value, list)
        else value
        for name, value in utility.items()
    }


@pytest.mark.parametrize(("points", "kinds"), [(4.0, ["forecast"]), (2.0, ["forecast"]), (1.0, [])])
def test_a_forecast_that_the_launch_has_passed_is_not_drawn(points: float, kinds: list[str]) -> None:
    """The launch has 9% where the start has 6%: a forecast of two points more or less half may be right, one is not."""
    made = example(
        utility=of_people(),
        accounting=block("accounting", without_privacy={"points": points, "error": 0.5}),
    )
    assert [bar.kind for bar in bars_of(made) if bar.kind in ("private", "forecast")] == ["private", *kinds]


def test_a_simulation_measures_what_privacy_costs_and_nothing_forecasts_it() -> None:
    """Page one drew 16.11 as measured, and page three stated a forecast of +5.27."""
    assert [bar.kind for bar in bars_of(example())][-1] == "simulated"
    with pytest.raises(ValidationError, match="a forecast of what the comparison measures"):
        example(accounting=block("accounting", without_privacy={"points": 4.0, "error": 0.5}))
