"""Pictures of plans and rehearsals as files: PNG to look at, SVG to put into documents.

They use the library and colours of the report's figures, on white, since a file cannot inherit the
colours of a page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pretrain.files import atomic
from reports.figures.style import BLUE, GREEN, ORANGE, RED, style

_INK = "#222222"
_LINES = ((ORANGE, "o"), (BLUE, "s"), (GREEN, "^"), (_INK, "D"))
_PNG_DPI = 130


@dataclass(frozen=True)
class Panel:
    """One panel of the plan's figure: rho against rounds, report goal or population.

    Attributes:
      at: the plan's own value on the horizontal axis.
      limit: largest available value, such as the ceiling of the report goal; None without a limit.
      curves: label -> points (value, rho).
    """

    x_label: str
    at: float
    limit: float | None
    curves: Mapping[str, Sequence[tuple[float, float]]]


def plan_figure(panels: Sequence[Panel], target_rho: float, chosen_rho: float) -> Figure:
    """rho against rounds, report goal and population, one panel each, as in Xu et al. 2023, figure 4."""
    with mpl.rc_context(style(_INK)):
        figure = Figure(figsize=(11.5, 4.0), layout="constrained")
        axes_all = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(axes_all, panels, strict=True):
            _draw_panel(axes, panel, target_rho, chosen_rho)
        axes_all[0].set_ylabel("rho (zCDP) of the whole run")
        axes_all[0].yaxis.set_major_formatter(FuncFormatter(_short))
        handles, labels = axes_all[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def rehearsal_figure(
    trials: Sequence[tuple[float, float]], noiseless: float, start: float, max_loss: float, chosen: float | None
) -> Figure:
    """Accuracy on held-out pseudo-users against noise.

    Args:
      trials: noise-to-signal ratio and accuracy, a share of words.
      noiseless: accuracy without noise.
      start: accuracy before the first round.
      max_loss: largest acceptable loss of accuracy through noise.
      chosen: largest ratio within ``max_loss``; None if there is none.
    """
    with mpl.rc_context(style(_INK)):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        ratios = [ratio for ratio, _ in trials]
        axes.plot(ratios, [100 * accuracy for _, accuracy in trials], marker="o", color=BLUE, label="with noise")
        axes.axhline(100 * noiseless, color=GREEN, label="without noise")
        axes.axhline(100 * (noiseless - max_loss), color=RED, linestyle="--", label="least accepted")
        axes.axhline(100 * start, color=_INK, linestyle=":", label="before training")
        if chosen is not None:
            axes.axvline(chosen, color=BLUE, linewidth=6, alpha=0.2, label="largest accepted ratio")
        axes.set_xscale("log")
        axes.set_xticks(ratios, [f"{ratio:g}" for ratio in ratios])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set(xlabel="noise-to-signal ratio", ylabel="top-1 accuracy on held-out\npseudo-users (%)")
        axes.grid(visible=True)
        figure.legend(loc="outside upper center", ncols=3)
    return figure


def trade_figure(
    curves: Mapping[str, Sequence[tuple[float, float, float]]], rho: float, min_gain: float, training_devices: int
) -> Figure:
    """Gain over the start against rho, for each way to spend it.

    Args:
      curves: label -> points (rho, gain, standard error), gains as shares of words.
      rho: available budget of this population.
      min_gain: the launch's gate.
    """
    with mpl.rc_context(style(_INK)):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for (label, points), (colour, marker) in zip(curves.items(), _LINES, strict=False):
            rhos, gains, errors = zip(*sorted(points), strict=True) if points else ((), (), ())
            bars = [200 * error for error in errors]
            axes.errorbar(
                rhos, [100 * gain for gain in gains], bars, color=colour, marker=marker, capsize=2, label=label
            )
        axes.axhline(100 * min_gain, color=RED, linestyle="--", label="least gain that may launch")
        axes.axvline(rho, color=_INK, linestyle=":", label=f"{training_devices:,} devices train, rho {rho:.3g}")
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=12))
        axes.xaxis.set_major_formatter(FuncFormatter(_short))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set(xlabel="rho (zCDP)", ylabel="gain in top-1 recall over the start,\npoints, ± 2 standard errors")
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


def _draw_panel(axes: Axes, panel: Panel, target_rho: float, chosen_rho: float) -> None:
    for (label, points), (colour, marker) in zip(panel.curves.items(), _LINES, strict=False):
        values, rhos = zip(*points, strict=True) if points else ((), ())
        axes.plot(values, rhos, color=colour, marker=marker, markersize=3.5, label=label)
    axes.axhline(target_rho, color=RED, linestyle="--", label=f"target, rho {target_rho:.3g}")
    axes.plot([panel.at], [chosen_rho], "*", color=RED, markersize=13, markeredgecolor="white", label="plan", zorder=5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    if panel.limit is not None:
        left, right = axes.get_xlim()
        axes.axvspan(panel.limit, right, color=_INK, alpha=0.06, linewidth=0)
        axes.annotate(
            "above\nceiling",
            (panel.limit, 0.98),
            xycoords=("data", "axes fraction"),
            xytext=(4, 0),
            textcoords="offset points",
            va="top",
            fontsize=8,
        )
        axes.set_xlim(left, right)
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(_short))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=9)
    axes.set_xlabel(panel.x_label)
    axes.grid(visible=True)


def _short(value: float, _position: int | None = None) -> str:
    """1,500,000 as 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
