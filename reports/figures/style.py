"""What the report's figures share: colours, style, and SVG that can stand inside a page."""

import io
import re
from collections.abc import Callable, Sequence

import matplotlib as mpl
from markupsafe import escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED = "#3b82c4", "#d9822b", "#2e9e6b", "#d1495b"
# Drawn in this colour and then replaced, since SVG from matplotlib cannot say "the text's colour".
INK = "#010203"


def style(ink: str) -> dict[str, object]:
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


def svg(title: str, description: str, draw: Callable[[Axes], None], height: float = 2.7) -> str:
    """A picture as SVG with a title and a description that can be read aloud; the same bytes every time."""
    with mpl.rc_context(style(INK)):
        figure = Figure(figsize=(6.4, height), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = buffer.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace(INK, "currentColor")
    # Ids must not clash with those of another figure on the same page.
    name = re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
    drawn = re.sub(r'\bid="', f'id="{name}-', drawn)
    drawn = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", drawn)
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    for size in ("width", "height"):  # of the page, not of the picture
        drawn = re.sub(rf'(<svg\b[^>]*?) {size}="[^"]*"', r"\1", drawn, count=1)
    spoken = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    opening = f'<svg role="img" aria-labelledby="{name}-title {name}-desc"'
    return re.sub(r"(<svg\b[^>]*>)", lambda found: found[1] + spoken, drawn, count=1).replace("<svg", opening, 1)


def rows_down(count: int) -> Sequence[int]:
    """Places of rows on a vertical axis, first row on top."""
    return list(range(count, 0, -1))
