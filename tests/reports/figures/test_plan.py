"""Pictures of plans: files that say what they show, the same bytes every time."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from reports.figures.plan import gain_figure, write

LINES = {"training": [(1.0, 2.0, 0.1), (0.1, -1.0, 0.2)], "counts": [(1.0, 1.0, 0.1)], "both": []}
NEAR = [(0.25, 1.0, 0.2), (0.5, 1.25, 0.2)]


def gains() -> Figure:
    return gain_figure(LINES, "rho (zCDP)", 0.1, (0.5, "1,300 devices train, rho 0.5"), NEAR)


@pytest.mark.slow
def test_a_gain_shows_each_way_to_spend_and_the_launch_s_own_line(tmp_path: Path) -> None:
    png, svg = write(gains(), tmp_path / "deep", "gain")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text(encoding="utf-8")
    for label in ("training", "counts", "1,300 devices train, rho 0.5", "least gain that may launch", "rho (zCDP)"):
        assert label in text
    (axes,) = gains().axes
    assert axes.get_xscale() == "log"
    # Points of the first line, by loss.
    assert axes.lines[0].get_xdata().tolist() == [0.1, 1.0]
    assert axes.lines[0].get_ydata().tolist() == [-1.0, 2.0]


@pytest.mark.slow
def test_the_launch_has_its_own_forecast_beside_the_curves_of_other_files() -> None:
    """A line through the curves read +3.6 points where the launch's forecast was +2.9."""
    (axes,) = gains().axes
    points = {(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1}
    assert {(loss, gain) for loss, gain, _ in NEAR} <= points
    (own,) = (each for each in axes.containers if each.get_label().startswith("1,300 devices train"))
    assert own.lines[0].get_xydata().tolist() == [[0.5, 1.25]]


@pytest.mark.slow
def test_the_same_picture_has_the_same_bytes(tmp_path: Path) -> None:
    first, second = (write(gains(), tmp_path / name, "gain") for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
