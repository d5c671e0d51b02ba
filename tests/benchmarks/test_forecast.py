"""The forecast's numbers in the product are those that the crossing gives."""

import csv
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

from benchmarks.utility import forecast
from benchmarks.utility.cell import Cell
from benchmarks.utility.populations import POPULATIONS
from federated.planning import gain, law

RESULTS = Path(forecast.__file__).parent.parent / "results" / "crossing.csv"


@pytest.fixture(scope="module")
def found() -> list[forecast.Row]:
    return forecast.rows(RESULTS)


@pytest.mark.parametrize("arm", ["counts", "training", "both"])
def test_curves_are_those_of_the_fit(found: list[forecast.Row], arm: str) -> None:
    measured = forecast.curve(found, arm)
    line = {"counts": gain.COUNTS, "training": gain.TRAINING, "both": gain.BOTH}[arm]
    assert [gain.at(line, size) for size, _ in measured] == pytest.approx([points for _, points in measured], abs=0.1)


def test_what_a_forecast_says_it_is_made_of_is_what_was_measured(found: list[forecast.Row]) -> None:
    populations = {row.population for row in found}
    assert len(populations) == gain.POPULATIONS
    assert {POPULATIONS[name].locale[:2] for name in populations} == {*gain.LANGUAGES}
    assert (min(row.people for row in found), max(row.people for row in found)) == gain.PEOPLE
    usual = Cell("talk", 0, "train")
    assert (usual.hidden, usual.words) == (gain.HIDDEN, gain.WORDS), "cells of other networks fit no curve"


def test_nothing_longer_is_recommended_than_was_measured() -> None:
    with RESULTS.open(encoding="utf-8", newline="") as file:
        trained = [row for row in csv.DictReader(file) if row["way"] and row["noise"] == "True"]
    assert max(float(row["way"]) for row in trained) == pytest.approx(gain.NOISY_WAY, rel=0.01)
    strides = [float(row["server_rate"]) * float(row["clip"]) for row in trained]
    assert max(strides) == pytest.approx(law.LONGEST_STRIDE, rel=0.01)


def test_longer_ways_are_forecast_as_one_population_went_them_without_noise() -> None:
    page = (RESULTS.parent / "way.md").read_text(encoding="utf-8")
    demo = page.split("\n## ")[1]
    assert demo.startswith(f"{gain.HIDDEN} hidden units and {gain.WORDS:,} words")
    gone = {
        float(way.replace(",", "")): float(points)
        for way, points in re.findall(r"^\| [\d,]+ \| ([\d,]+) \| [\d.]+ \| \+([\d.]+) ±", demo, re.MULTILINE)
    }
    assert max(gone) > 0.99 * law.LONGEST_WAY
    longer = {way: points for way, points in gone.items() if way > 2 * gain.NOISY_WAY}
    assert len(longer) > 10
    assert [gain.at(gain.TRAINING, way) for way in longer] == pytest.approx([*longer.values()], abs=0.1)


def test_the_share_left_by_a_start_with_chat_is_the_mean_of_its_cells() -> None:
    assert gain.left("sample-with-chat") == pytest.approx(fmean(forecast.left(RESULTS).values()), abs=0.01)
    assert gain.left("sample") == gain.left("c4") == 1


def test_what_costs_nothing_is_the_mean_of_its_cells() -> None:
    points = forecast.free(RESULTS).values()
    assert (fmean(points), stdev(points)) == pytest.approx(gain.FREE, abs=0.05)
    assert forecast.people_error(RESULTS) == pytest.approx(gain.PEOPLE_ERROR, abs=0.15)


@pytest.mark.parametrize(
    ("arm", "scale"),
    [("counts", gain.COUNTS_SCALE), ("training", gain.TRAINING_SCALE), ("both", gain.BOTH_SCALE)],
)
def test_multiples_are_those_of_the_fit(found: list[forecast.Row], arm: str, scale: tuple[float, float]) -> None:
    each = forecast.multiples(found, arm, forecast.curve(found, arm)).values()
    assert (fmean(each), stdev(each)) == pytest.approx(scale, abs=0.05)
