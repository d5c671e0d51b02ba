"""Shared style of the report's figures: colours, rows with intervals, and SVG that can stand inside a page.

No file, no script, no date: the same numbers give the same bytes every time. Colours are mid-tones
and text follows ``currentColor``, so one picture serves light and dark.
"""

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
from markupsafe import escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import RcKeyType

BLUE, ORANGE, GREEN, RED = "#3b82c4", "#d9822b", "#2e9e6b", "#d1495b"
COLOURS = (BLUE, ORANGE, GREEN, RED, "#8a63c9", "#7a7a7a", "#4aa3b8", "#b38600")
# Placeholder, replaced by ``currentColor``, which matplotlib cannot write.
INK = "#010203"


def style(ink: str) -> dict[RcKeyType, Any]:
    """Settings of matplotlib, with text and axes in one colour."""
    return {
        "svg.hashsalt": "tacit",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": ink,
        "axes.edgecolor": ink,
        "axes.labelcolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "grid.alpha": 0.25,
    }


def figure_of(draw: Callable[[Axes], None], height: float = 2.7, width: float = 6.4, ink: str = INK) -> Figure:
    """A picture as a figure of matplotlib.

    Args:
      height, width: inches, against which letters are small or large.
      ink: colour of text and axes.
    """
    with mpl.rc_context(style(ink)):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure.add_subplot())
    return figure


def svg(title: str, description: str, draw: Callable[[Axes], None], height: float = 2.7, width: float = 6.4) -> str:
    """A picture as SVG with a title and a description that can be read aloud; the same bytes every time.

    Args:
      height, width: inches, against which letters are small or large.
    """
    with mpl.rc_context(style(INK)):
        figure, buffer = figure_of(draw, height, width), io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = buffer.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace(INK, "currentColor")
    # Ids must not clash with those of another figure on the same page.
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    drawn = re.sub(r'\bid="', f'id="{name}-', drawn)
    drawn = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", drawn)
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    for size in ("width", "height"):  # of the page, not of the picture
        drawn = re.sub(rf'(<svg\b[^>]*?) {size}="[^"]*"', r"\1", drawn, count=1)
    spoken = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    opening = f'<svg role="img" aria-labelledby="{name}-title {name}-desc"'
    return re.sub(r"(<svg\b[^>]*>)", lambda tag: tag[1] + spoken, drawn, count=1).replace("<svg", opening, 1)


def rows(axes: Axes, labels: Sequence[str], x_label: str) -> list[int]:
    """Make the vertical axis one of named rows, the first on top, and return their places."""
    places = list(range(len(labels), 0, -1))
    axes.set(xlabel=x_label, yticks=places, yticklabels=labels)
    axes.set_ylim(0.4, len(labels) + 0.6)
    axes.grid(visible=True, axis="x")
    return places


def interval(
    axes: Axes, place: float, ends: tuple[float, float, float], colour: str, mark: str = "o", *, thin: bool = False
) -> None:
    """Draw low, value and high of one row as a mark on a line; thin where rows are crowded."""
    low, value, high = ends
    axes.plot([low, high], [place, place], color=colour, linewidth=1.5 if thin else 2)
    axes.plot([value], [place], mark, color=colour, markersize=4 if thin else 5)


def beside(axes: Axes, place: float, words: str) -> None:
    """Write text to the right of a row, where it stays legible beside any mark."""
    axes.annotate(
        words, (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=8, annotation_clip=False
    )


def legend_above(axes: Axes, columns: int) -> None:
    """Place the legend above the plot, where it hides no data."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=columns, fontsize=9)
