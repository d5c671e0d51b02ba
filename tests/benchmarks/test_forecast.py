"""The forecast's numbers in the product are those that the crossing gives."""

from pathlib import Path
from statistics import fmean, stdev

import pytest

from benchmarks.utility import forecast
from federated.planning import gain

RESULTS = Path(forecast.__file__).parent.parent / "results" / "crossing.csv"


@pytest.fixture(scope="module")
def found() -> list[forecast.Row]:
    return forecast.rows(RESULTS)


@pytest.mark.parametrize("arm", ["counts", "training", "both"])
def test_curves_are_those_of_the_fit(found: list[forecast.Row], arm: str) -> None:
    measured = forecast.curve(found, arm)
    line = {"counts": gain.COUNTS, "training": gain.TRAINING, "both": gain.BOTH}[arm]
    assert [gain.at(line, size) for size, _ in measured] == pytest.approx([points for _, points in measured], abs=0.1)


@pytest.mark.parametrize(
    ("arm", "scale"),
    [("counts", gain.COUNTS_SCALE), ("training", gain.TRAINING_SCALE), ("both", gain.BOTH_SCALE)],
)
def test_multiples_are_those_of_the_fit(found: list[forecast.Row], arm: str, scale: tuple[float, float]) -> None:
    each = forecast.multiples(found, arm, forecast.curve(found, arm)).values()
    assert (fmean(each), stdev(each)) == pytest.approx(scale, abs=0.05)
