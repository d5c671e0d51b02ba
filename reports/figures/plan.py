"""Pictures of plans as files: PNG to look at, SVG to put into documents.

They use the library and colours of the report's figures, on white, since a file cannot inherit the
colours of a page.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pretrain.files import atomic
from reports.figures.style import BLUE, GREEN, ORANGE, RED, style

_INK = "#222222"
_LINES = ((ORANGE, "o"), (BLUE, "s"), (GREEN, "^"), (_INK, "D"))
_PNG_DPI = 130


def gain_figure(
    curves: Mapping[str, Sequence[tuple[float, float, float]]],
    x_label: str,
    min_gain: float,
    own: tuple[float, str],
    near: Sequence[tuple[float, float, float]],
) -> Figure:
    """Gain over the start against a loss, for each way to spend it, and of this launch.

    Args:
      curves: label -> points (loss, gain, standard error), gains in points of top-1 recall.
      min_gain: the launch's gate, in points.
      own: loss of this launch, and its label.
      near: points of this launch at its own loss and near it; none where nothing is forecast.
    """
    with mpl.rc_context(style(_INK)):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for (label, points), (colour, marker) in zip(curves.items(), _LINES, strict=False):
            losses, gains, errors = zip(*sorted(points), strict=True) if points else ((), (), ())
            bars = [2 * error for error in errors]
            axes.errorbar(losses, gains, bars, color=colour, marker=marker, capsize=2, label=label)
        axes.axhline(min_gain, color=RED, linestyle="--", label="least gain that may launch")
        axes.axvline(own[0], color=_INK, linestyle=":", label=None if near else own[1])
        for loss, gain, error in near:
            is_own = own[1] if loss == own[0] else None
            axes.errorbar(loss, gain, 2 * error, color=_INK, marker="D", capsize=2, label=is_own)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=12))
        axes.xaxis.set_major_formatter(FuncFormatter(_short))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set(xlabel=x_label, ylabel="gain in top-1 recall over the start,\npoints, ± 2 standard errors")
        axes.grid(visible=True)
        figure.legend(loc="outside upper center", ncols=2)
    return figure


def write(figure: Figure, directory: Path, name: str) -> tuple[Path, Path]:
    """``name.png`` and ``name.svg``; the same figure gives the same bytes."""
    paths = directory / f"{name}.png", directory / f"{name}.svg"
    with mpl.rc_context(style(_INK)), atomic(paths[0]) as png, atomic(paths[1]) as svg:
        figure.savefig(png, format="png", dpi=_PNG_DPI, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return paths


def _short(value: float, _position: int | None = None) -> str:
    """1,500,000 as 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
