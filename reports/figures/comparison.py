"""Figures of the offline comparison: differences, simulated typing, and recall by slice."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from reports.disclosure.utility import Difference, SliceMetric, Utility
from reports.figures import style
from reports.figures.style import BLUE, COLOURS, GREEN, INK, ORANGE, RED, svg
from reports.formats import LOWER_IS_BETTER, PARTS, arm_name, change, metric_name, verdict

_RECALLS = ("top1_recall", "top3_recall")
_TYPING = ("prate", "words_modified", "errors_left", "words_per_minute", "keystroke_savings")
# Ten arms (with counts and the current model) exceed the colours, so the second use of a colour has another mark.
_MARKS = ("o", "s")
_VERDICTS = {GREEN: "better", RED: "worse", BLUE: "no clear difference"}


def of_utility(utility: Utility | None) -> dict[str, str]:
    """The report's figures of the comparison: SVG by name; those without data are left out."""
    if utility is None:
        return {}
    rows = [row for row in utility.differences if row.candidate == "private"]
    recall = [row for row in rows if row.metric in _RECALLS]
    typing = [row for row in rows if row.metric in _TYPING and row.relative is not None]
    slices = [row for row in utility.slices if row.metric == "top3_recall"]
    figures = {"utility": recall_differences(recall)} if recall else {}
    figures |= {"typing": forest(typing)} if typing else {}
    return figures | ({"slices": by_slice(slices, "top-3 recall (%)")} if slices else {})


def recall_differences(differences: Sequence[Difference]) -> str:
    """Differences in recall, in percentage points, a row for each baseline and metric."""

    def draw(axes: Axes) -> None:
        labels = [f"− {arm_name(row.baseline)},\n{metric_name(row.metric)}" for row in differences]
        places = style.rows(axes, labels, "difference in recall (percentage points)")
        for row, place in zip(differences, places, strict=True):
            colour = BLUE if row.metric == _RECALLS[0] else ORANGE
            style.interval(axes, place, (100 * row.low, 100 * row.value, 100 * row.high), colour)
        axes.axvline(0, color=INK, linewidth=1)

    spoken = "; ".join(
        f"{metric_name(row.metric)} minus {arm_name(row.baseline)} {100 * row.low:+.2f} to {100 * row.high:+.2f}"
        for row in differences
    )
    return svg("Differences between arms", f"{spoken} points.", draw, height=0.9 + 0.42 * len(differences))


def draw_arms(axes: Axes, arms: Sequence[tuple[str, float, float, float]], label: str) -> None:
    """Draw one metric of every arm as rows with intervals, in percent.

    Args:
      arms: name, then low, value and high, from 0 to 1; the first on top.
    """
    places = style.rows(axes, [arm_name(name) for name, *_ in arms], label)
    for (name, low, value, high), place in zip(arms, places, strict=True):
        style.interval(axes, place, (100 * low, 100 * value, 100 * high), GREEN if name == "private" else BLUE)
        style.beside(axes, place, f"{100 * value:.2f}")


def forest(differences: Sequence[Difference]) -> str:
    """Forest plot of relative changes by baseline: green is better, red is worse, blue may be either.

    Raises:
      ValueError: nothing to draw, or a difference without its relative change.
    """
    changes = [(row, change(row)) for row in differences]
    if not changes or not all(interval.relative for _, interval in changes):
        raise ValueError("differences: give at least one, each with its relative change")
    headings = {row.baseline: f"this launch minus {arm_name(row.baseline)}" for row in differences}
    # Each heading is a row of its own.
    lines: list[tuple[str, list[float], str] | str] = []
    spoken = []
    for baseline, heading in headings.items():
        lines.append(heading)
        for row, interval in changes:
            if row.baseline != baseline:
                continue
            ends = [100 * end for end in (interval.low, interval.value, interval.high)]
            lower, name = row.metric in LOWER_IS_BETTER, metric_name(row.metric)
            colour = next(colour for colour, said in _VERDICTS.items() if said == verdict(row))
            lines.append((f"{name} ↓" if lower else name, ends, colour))
            spoken.append(f"{heading}, {name}: {ends[1]:+.2f}%, {ends[0]:+.2f} to {ends[2]:+.2f}, {_VERDICTS[colour]}")

    def draw(axes: Axes) -> None:
        # Headings are inside the axes: as labels, long names would leave no room for the plot.
        labels = ["" if isinstance(line, str) else line[0] for line in lines]
        places = style.rows(axes, labels, "relative change (%)")
        for line, place, tick in zip(lines, places, axes.yaxis.get_major_ticks(), strict=True):
            if isinstance(line, str):
                inside = ("axes fraction", "data")
                axes.annotate(line, (0.01, place), xycoords=inside, va="center", fontsize=9, fontweight="bold")
                tick.tick1line.set_visible(False)
                continue
            _, (low, value, high), colour = line
            style.interval(axes, place, (low, value, high), colour)
            style.beside(axes, place, f"{value:+.1f} ({low:+.1f} to {high:+.1f})")
        axes.axvline(0, color=INK, linewidth=1)

    return svg("Relative changes between arms", f"{'; '.join(spoken)}.", draw, height=0.9 + 0.24 * len(lines))


def by_slice(slices: Sequence[SliceMetric], label: str) -> str:
    """A metric of every arm in every slice, with intervals.

    Args:
      slices: shares, from 0 to 1.
      label: the metric, such as ``top-3 recall (%)``.

    Raises:
      ValueError: nothing to draw, or more arms than colours and marks can tell apart.
    """
    arms = list(dict.fromkeys(row.arm for row in slices))
    parts = list(dict.fromkeys(row.part for row in slices))
    looks = [(colour, mark) for mark in _MARKS for colour in COLOURS]
    if not 0 < len(arms) <= len(looks):
        raise ValueError(f"slices: {len(arms)} arms; give 1 to {len(looks)}")
    step = 0.7 / len(arms)

    def draw(axes: Axes) -> None:
        places = dict(zip(parts, style.rows(axes, [PARTS.get(part, part) for part in parts], label), strict=True))
        for number, (arm, (colour, mark)) in enumerate(zip(arms, looks, strict=False)):
            axes.plot([], [], mark, color=colour, markersize=4, label=arm_name(arm))
            for row in slices:
                if row.arm == arm:
                    place = places[row.part] + 0.35 - step * (number + 0.5)
                    ends = 100 * row.low, 100 * row.value, 100 * row.high
                    style.interval(axes, place, ends, colour, mark, thin=True)
        for boundary in range(1, len(parts)):
            axes.axhline(boundary + 0.5, color=INK, linewidth=0.5, alpha=0.25)
        axes.set_xlim(left=0)
        style.legend_above(axes, min(2, len(arms)))

    spoken = "; ".join(f"{PARTS.get(row.part, row.part)}, {arm_name(row.arm)}: {100 * row.value:.2f}" for row in slices)
    return svg(f"By slice: {label}", f"{spoken}.", draw, height=1.4 + 0.1 * len(arms) + 0.16 * len(arms) * len(parts))
