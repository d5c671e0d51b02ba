"""Figures of the report as inline SVG: no file, no script, no date, the same bytes every time.

Colours are mid-tones and text follows ``currentColor``, so one picture serves light and dark.
"""

import io
import re
from collections.abc import Callable, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.disclosure import Curves, Disclosure, Utility

_BLUE, _ORANGE, _GREEN, _RED = "#3b82c4", "#d9822b", "#2e9e6b", "#d1495b"
# Drawn in this colour and then replaced, since SVG from matplotlib cannot say "the text's colour".
_INK = "#010203"
_STYLE = {
    "svg.hashsalt": "tacit",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "grid.alpha": 0.25,
}


def all_figures(disclosure: Disclosure) -> dict[str, str]:
    """SVG by name; a figure without data is left out."""
    figures = {
        "training": _public_training(disclosure.curves),
        "fine_tuning": _fine_tuning(disclosure.curves),
        "epsilon": _epsilon(disclosure),
        "participation": _participation(disclosure),
        "discovery": _discovery(disclosure),
    }
    if disclosure.audit:
        figures["canaries"] = _canaries(disclosure)
    if disclosure.utility:
        figures["utility"] = _utility(disclosure.utility)
    return figures


def _svg(title: str, draw: Callable[[Axes], None], height: float = 3.0) -> str:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, height), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    # Ids must not clash with those of another figure on the same page.
    name = re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return re.sub(r"(<svg\b[^>]*>)", rf"\1<title>{title}</title>", svg, count=1).replace("<svg", '<svg role="img"', 1)


def _public_training(curves: Curves) -> str:
    def draw(axes: Axes) -> None:
        last = 0.0
        for name, points, colour in (
            ("pretraining", curves.pretraining, _BLUE),
            ("adaptation to new words", curves.adaptation, _ORANGE),
        ):
            if points:
                axes.plot(
                    [last + point["step"] for point in points],
                    [point["validation_loss"] for point in points],
                    marker="o",
                    markersize=3,
                    color=colour,
                    label=name,
                )
                last += points[-1]["step"]
        axes.set(xlabel="step", ylabel="loss on held-out public text (nats)")
        axes.grid(visible=True)
        axes.legend()

    return _svg("Public training", draw)


def _fine_tuning(curves: Curves) -> str:
    def draw(axes: Axes) -> None:
        rounds = [point["step"] for point in curves.fine_tuning]
        recall = [100 * point["validation_recall"] for point in curves.fine_tuning]
        axes.plot(rounds, recall, marker="o", markersize=3, color=_GREEN)
        axes.set(xlabel="round", ylabel="top-1 recall on validation\ndevices (%)")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True)

    return _svg("Private training by round", draw)


def _epsilon(disclosure: Disclosure) -> str:
    accounting = disclosure.accounting

    def draw(axes: Axes) -> None:
        deltas, epsilons = zip(*accounting.curve, strict=True)
        axes.semilogx(deltas, epsilons, color=_BLUE)
        axes.plot([accounting.delta], [accounting.epsilon], marker="o", color=_RED)
        axes.annotate(
            f"ε = {accounting.epsilon:.2f} at δ = {accounting.delta:g}",
            (accounting.delta, accounting.epsilon),
            textcoords="offset points",
            xytext=(8, 6),
        )
        axes.set(xlabel="δ", ylabel="ε")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True)

    return _svg("Epsilon for every delta", draw)


def _participation(disclosure: Disclosure) -> str:
    seen = disclosure.participation

    def draw(axes: Axes) -> None:
        counts = {int(key): value for key, value in seen.participation_histogram.items()}
        axes.bar(list(counts), list(counts.values()), color=_BLUE, width=0.7)
        limit = seen.enforced_max_participations
        axes.axvline(limit + 0.5, color=_RED, linestyle="--", label=f"enforced: at most {limit}")
        axes.set(xlabel="rounds one device joined", ylabel="devices (tens)")
        axes.set_xticks(sorted({*counts, limit}))
        axes.legend(loc="upper left")

    return _svg("Participation of protected devices", draw)


def _discovery(disclosure: Disclosure) -> str:
    layers = disclosure.discovery.layers

    def draw(axes: Axes) -> None:
        places = [layer.layer for layer in layers]
        axes.bar([p - 0.2 for p in places], [layer.kept for layer in layers], 0.4, color=_BLUE, label="prefixes kept")
        words = [layer.finished for layer in layers]
        axes.bar([place + 0.2 for place in places], words, 0.4, color=_ORANGE, label="words found")
        axes.set(xlabel="layer (characters, end of word included)", ylabel="count")
        axes.set_xticks(places)
        axes.legend()

    return _svg("Discovery by layer", draw)


def _canaries(disclosure: Disclosure) -> str:
    rows = disclosure.audit.canaries if disclosure.audit else ()

    def draw(axes: Axes) -> None:
        labels = [f"{row.n_u} device{'s' * (row.n_u > 1)} × {row.n_e}" for row in rows]
        places = _rows_down(len(rows))
        axes.plot([row.exposure_bits for row in rows], places, "o", color=_BLUE, label="exposure")
        capped = [(row.ceiling_bits, place) for row, place in zip(rows, places, strict=True) if row.ceiling_bits]
        if capped:
            axes.plot(*zip(*capped, strict=True), "|", color=_RED, markersize=14, label="ceiling from the guarantee")
        axes.set(xlabel="bits", yticks=places, yticklabels=labels)
        axes.set_xlim(left=-0.5)
        axes.grid(visible=True, axis="x")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)

    return _svg("Canary exposure against its ceiling", draw, height=1.6 + 0.3 * len(rows))


def _utility(utility: Utility) -> str:
    rows = [row for row in utility.differences if row.metric in ("top1_recall", "top3_recall")]

    def draw(axes: Axes) -> None:
        places = _rows_down(len(rows))
        for row, place in zip(rows, places, strict=True):
            colour = _BLUE if row.metric == "top1_recall" else _ORANGE
            axes.plot([100 * row.low, 100 * row.high], [place, place], color=colour, linewidth=2)
            axes.plot([100 * row.value], [place], "o", color=colour)
        names = {"top1_recall": "top-1", "top3_recall": "top-3"}
        labels = [f"{row.candidate} − {row.baseline}, {names[row.metric]}" for row in rows]
        axes.axvline(0, color=_INK, linewidth=1)
        axes.set(xlabel="difference in recall (percentage points)", yticks=places, yticklabels=labels)
        axes.grid(visible=True, axis="x")

    return _svg("Differences between arms", draw, height=1.2 + 0.32 * len(rows))


def _rows_down(count: int) -> Sequence[int]:
    return list(range(count, 0, -1))
