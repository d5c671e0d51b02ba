"""Pictures of plans and rehearsals: files that say what they show, the same bytes every time."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from reports.figures.plan import Panel, plan_figure, rehearsal_figure, trade_figure, write

CURVES = {"tree": [(100, 2.0), (200, 0.5), (1_500_000, 0.1)], "BLT, 2 buffers": [(100, 1.0), (200, 0.2)]}


def plan() -> Figure:
    panels = [Panel("rounds", 200, None, CURVES), Panel("report goal", 200, 250, CURVES)]
    return plan_figure(panels, target_rho=0.75, chosen_rho=0.2)


def rehearsal(chosen: float | None) -> Figure:
    return rehearsal_figure([(0.01, 0.2), (0.02, 0.1)], 0.21, 0.15, 0.02, chosen)


@pytest.mark.slow
def test_a_plan_shows_its_curves_its_target_and_its_ceiling(tmp_path: Path) -> None:
    png, svg = write(plan(), tmp_path / "deep", "plan")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text(encoding="utf-8")
    for label in ("tree", "BLT, 2 buffers", "target, rho 0.75", "rounds", "report goal", "ceiling", "1M"):
        assert label in text
    assert all(axes.get_yscale() == axes.get_xscale() == "log" for axes in plan().axes)


@pytest.mark.parametrize("chosen", [0.01, None])
def test_a_rehearsal_shows_what_is_accepted(tmp_path: Path, chosen: float | None) -> None:
    text = write(rehearsal(chosen), tmp_path, "utility")[1].read_text(encoding="utf-8")
    assert "least accepted" in text
    assert ("largest accepted ratio" in text) == (chosen is not None)
    levels = [100 * 0.21, 100 * 0.19, 100 * 0.15]
    drawn = [line.get_ydata()[0] for line in rehearsal(chosen).axes[0].lines[1:4]]
    assert drawn == pytest.approx(levels)


@pytest.mark.slow
def test_a_trade_shows_each_way_to_spend_and_the_population_s_line(tmp_path: Path) -> None:
    lines = {"gradients": [(1.0, 0.02, 0.001), (0.1, -0.01, 0.002)], "counts": [(1.0, 0.01, 0.001)], "mixed": []}
    figure = trade_figure(lines, rho=0.5, min_gain=0.001, training_devices=1300)
    text = write(figure, tmp_path, "gain")[1].read_text(encoding="utf-8")
    for label in ("gradients", "counts", "1,300 devices train, rho 0.5", "least gain that may launch"):
        assert label in text
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    # Points of the first line, by rho and in percentage points.
    assert axes.lines[0].get_xdata().tolist() == [0.1, 1.0]
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([-1.0, 2.0])


@pytest.mark.slow
def test_the_same_picture_has_the_same_bytes(tmp_path: Path) -> None:
    first, second = (write(plan(), tmp_path / name, "plan") for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
