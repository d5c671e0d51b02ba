"""Figures of the comparison: what they say aloud, what they refuse, the same bytes every time."""

import re
import xml.etree.ElementTree as ET

import pytest

from reports.figures import comparison as figures_ab
from reports.figures.comparison import Change, SliceValue

CHANGES = [
    Change("this launch − champion", "picked from the strip", 0.021, 0.01, 0.032, margin=0.005),
    Change("this launch − champion", "words changed", -0.03, -0.05, -0.01, higher_is_better=False, margin=0.01),
    Change("this launch − champion", "words a minute", -0.004, -0.006, -0.002),
    Change("this launch − n-gram", "picked from the strip", 0.001, -0.004, 0.006),
]
VALUES = [
    SliceValue(part, arm, 0.2 + 0.05 * i, 0.19 + 0.05 * i, 0.21 + 0.05 * i)
    for part in ("all words", "rare words", "light users")
    for i, arm in enumerate(("n-gram", "champion", "this launch"))
]


def test_the_forest_says_what_it_shows_and_better_is_the_metrics_own() -> None:
    svg = figures_ab.forest(CHANGES)
    ET.fromstring(svg)
    spoken = re.search(r"<desc[^>]*>(.*?)</desc>", svg)
    assert spoken is not None
    rows = spoken[1].split("; ")
    assert [row.rstrip(".").split(", ")[-1] for row in rows] == ["better", "better", "worse", "no clear difference"]
    assert "+2.10%, +1.00 to +3.20" in rows[0]
    assert "words changed ↓" in svg
    assert {"#2e9e6b", "#d1495b", "#3b82c4"} <= set(re.findall(r"#[0-9a-f]{6}", svg))
    assert figures_ab.forest(CHANGES) == svg
    only = figures_ab.forest(CHANGES[3:])
    assert "#d1495b" not in only
    assert "#2e9e6b" not in only


def test_slices_name_every_arm_and_part() -> None:
    svg = figures_ab.by_slice(VALUES, "top-3 recall (%)")
    ET.fromstring(svg)
    for name in ("all words", "rare words", "light users", "n-gram", "champion", "this launch"):
        assert f">{name}<" in svg
    assert "rare words, champion: 25.00" in svg
    assert svg == figures_ab.by_slice(VALUES, "top-3 recall (%)")
    assert "currentColor" in svg


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="changes: none"):
        figures_ab.forest([])
    with pytest.raises(ValueError, match="0 arms; give 1 to 8"):
        figures_ab.by_slice([], "x")
