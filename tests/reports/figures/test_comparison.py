"""Figures of the comparison: what they say aloud, what they refuse, the same bytes every time."""

import re
import xml.etree.ElementTree as ET

import pytest

from reports.disclosure.utility import Difference, SliceMetric
from reports.figures.comparison import by_slice, forest, of_utility
from reports.formats import ARMS
from tests.helpers.reports.reports_example import block, drawn, example


def change(metric: str, value: float, low: float, high: float, baseline: str = "champion") -> Difference:
    relative = {"value": value, "low": low, "high": high}
    return Difference(candidate="private", baseline=baseline, metric=metric, relative=relative, **relative)


CHANGES = [
    change("prate", 0.021, 0.01, 0.032),
    change("words_modified", -0.03, -0.05, -0.01),
    change("words_per_minute", -0.004, -0.006, -0.002),
    change("prate", 0.001, -0.004, 0.006, baseline="ngram"),
]
SLICES = [
    SliceMetric(part=part, arm=arm, metric="top3_recall", value=share, low=share - 0.01, high=share + 0.01)
    for part in ("all", "rare_words", "light_users")
    for arm, share in (("ngram", 0.2), ("champion", 0.25), ("private", 0.3))
]


def test_the_forest_says_what_it_shows_and_better_is_the_metrics_own() -> None:
    svg = forest(CHANGES)
    ET.fromstring(svg)
    spoken = re.search(r"<desc[^>]*>(.*?)</desc>", svg)
    assert spoken is not None
    rows = spoken[1].split("; ")
    assert [row.rstrip(".").split(", ")[-1] for row in rows] == ["better", "better", "worse", "no clear difference"]
    assert "this launch minus current model, predictions accepted (PRate): +2.10%, +1.00 to +3.20" in rows[0]
    assert "words modified (WMR) ↓" in svg
    assert {"#2e9e6b", "#d1495b", "#3b82c4"} <= set(re.findall(r"#[0-9a-f]{6}", svg))
    assert forest(CHANGES) == svg
    only = forest(CHANGES[3:])
    assert "#d1495b" not in only
    assert "#2e9e6b" not in only


def test_slices_name_every_arm_and_part() -> None:
    svg = by_slice(SLICES, "top-3 recall (%)")
    ET.fromstring(svg)
    for name in ("all words", "rare words", "light users", "n-gram, public text", "current model", "this launch"):
        assert f">{name}<" in svg
    assert "rare words, current model: 25.00" in svg
    assert svg == by_slice(SLICES, "top-3 recall (%)")
    assert "currentColor" in svg


def test_all_arms_that_a_launch_can_have_are_told_apart() -> None:
    """With counts, a champion and the simulation without privacy there are ten, more than there are colours."""
    rows = [SliceMetric(part="all", arm=arm, metric="top3_recall", value=0.2, low=0.1, high=0.3) for arm in ARMS]
    svg = by_slice(rows, "top-3 recall (%)")
    ET.fromstring(svg)
    assert all(f">{name}<" in svg for name in ARMS.values())
    handles = re.findall(r'<use xlink:href="#([^"]+)"[^>]*style="fill: (#[0-9a-f]{6})', svg)
    assert len(set(handles)) == len(ARMS) > 8


@pytest.mark.slow
def test_the_report_draws_what_it_has() -> None:
    assert set(drawn()) > {"utility", "typing", "slices"}
    assert of_utility(None) == {}
    assert of_utility(example(utility=block("utility", differences=[], slices=[])).utility) == {}


def test_nothing_to_draw_is_refused() -> None:
    for rows in ([], [CHANGES[0].model_copy(update={"relative": None})]):
        with pytest.raises(ValueError, match="relative change"):
            forest(rows)
    with pytest.raises(ValueError, match="0 arms; give 1 to 16"):
        by_slice([], "x")
