"""Figures of the offline comparison as inline SVG, from plain numbers, in the style of ``reports.figures.training``."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from reports.disclosure.utility import Utility
from reports.figures.style import BLUE, GREEN, INK, ORANGE, RED, rows_down, svg
from reports.formats import LOWER_IS_BETTER, PARTS, arm_name, metric_name

_COLOURS = (BLUE, ORANGE, GREEN, RED, "#8a63c9", "#7a7a7a", "#4aa3b8", "#b38600")


@dataclass(frozen=True)
class Change:
    """A relative change of a candidate over a baseline, such as 0.02 for 2% more.

    Attributes:
      label: what is compared; rows of one group stand together.
      higher_is_better: False for errors.
      margin: the loss that still counts as neutral, drawn as a bar; None draws none.
    """

    group: str
    label: str
    value: float
    low: float
    high: float
    higher_is_better: bool = True
    margin: float | None = None


@dataclass(frozen=True)
class SliceValue:
    """A share of words (0 to 1) of one arm in one slice, with its interval."""

    part: str
    arm: str
    value: float
    low: float
    high: float


_TYPING = ("prate", "words_modified", "errors_left", "words_per_minute", "keystroke_savings")


def of_utility(utility: Utility | None) -> dict[str, str]:
    """The report's figures of simulated typing and of slices: SVG by name; those without data are left out."""
    if utility is None:
        return {}
    changes = [
        Change(
            group=f"this launch minus {arm_name(row.baseline)}",
            label=metric_name(row.metric),
            higher_is_better=row.metric not in LOWER_IS_BETTER,
            **row.relative,
        )
        for row in utility.differences
        if row.candidate == "private" and row.metric in _TYPING and row.relative is not None
    ]
    recall = [
        SliceValue(PARTS.get(row.part, row.part), arm_name(row.arm), row.value, row.low, row.high)
        for row in utility.slices
        if row.metric == "top3_recall"
    ]
    figures = {"typing": forest(changes)} if changes else {}
    return figures | ({"slices": by_slice(recall, "top-3 recall (%)")} if recall else {})


def forest(changes: Sequence[Change]) -> str:
    """Forest plot of relative changes: green is better, red is worse, blue may be either.

    Raises:
      ValueError: nothing to draw.
    """
    if not changes:
        raise ValueError("changes: none; give at least one")
    groups = list(dict.fromkeys(change.group for change in changes))
    ordered = [change for group in groups for change in changes if change.group == group]
    # A heading takes a row of its own.
    lines: list[Change | str] = []
    for group in groups:
        lines += [group, *(change for change in ordered if change.group == group)]
    places = rows_down(len(lines))

    def draw(axes: Axes) -> None:
        labels = []
        for line, place in zip(lines, places, strict=True):
            if isinstance(line, str):
                # Inside the axes: a long name as a label would leave the plot no room.
                labels.append("")
                beside = ("axes fraction", "data")
                axes.annotate(line, (0.01, place), xycoords=beside, va="center", fontsize=9, fontweight="bold")
                continue
            labels.append(f"{line.label}{'' if line.higher_is_better else ' ↓'}")
            axes.plot([100 * line.low, 100 * line.high], [place, place], color=_colour(line), linewidth=2)
            axes.plot([100 * line.value], [place], "o", color=_colour(line), markersize=5)
            # In words as well: beside a large change a small one is a dot on the line.
            told = f"{100 * line.value:+.1f} ({100 * line.low:+.1f} to {100 * line.high:+.1f})"
            beside = ("axes fraction", "data")
            axes.annotate(told, (1.02, place), xycoords=beside, va="center", fontsize=8, annotation_clip=False)
            if line.margin is not None:
                limit = -line.margin if line.higher_is_better else line.margin
                axes.plot([100 * limit], [place], "|", color=INK, markersize=11, markeredgewidth=1.5)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set(xlabel="relative change (%)", yticks=list(places), yticklabels=labels)
        for line, tick in zip(lines, axes.yaxis.get_major_ticks(), strict=True):
            tick.tick1line.set_visible(not isinstance(line, str))
        axes.set_ylim(0.4, len(lines) + 0.6)
        axes.grid(visible=True, axis="x")

    spoken = "; ".join(
        f"{row.group}, {row.label}: {100 * row.value:+.2f}%, "
        f"{100 * row.low:+.2f} to {100 * row.high:+.2f}, {_word(row)}"
        for row in ordered
    )
    return svg("Relative changes between arms", f"{spoken}.", draw, height=0.9 + 0.24 * len(lines))


def by_slice(values: Sequence[SliceValue], label: str) -> str:
    """A metric of every arm in every slice, with intervals.

    Args:
      label: the metric, such as ``top-3 recall (%)``.

    Raises:
      ValueError: nothing to draw, or more arms than there are colours.
    """
    arms = list(dict.fromkeys(row.arm for row in values))
    parts = list(dict.fromkeys(row.part for row in values))
    if not 0 < len(arms) <= len(_COLOURS):
        raise ValueError(f"values: {len(arms)} arms; give 1 to {len(_COLOURS)}")
    places = dict(zip(parts, rows_down(len(parts)), strict=True))
    step = 0.7 / len(arms)

    def draw(axes: Axes) -> None:
        for number, arm in enumerate(arms):
            rows = [row for row in values if row.arm == arm]
            at = [places[row.part] + 0.35 - step * (number + 0.5) for row in rows]
            colour = _COLOURS[number]
            for row, place in zip(rows, at, strict=True):
                axes.plot([100 * row.low, 100 * row.high], [place, place], color=colour, linewidth=1.5)
            axes.plot([100 * row.value for row in rows], at, "o", color=colour, markersize=4, label=arm)
        for boundary in range(1, len(parts)):
            axes.axhline(boundary + 0.5, color=INK, linewidth=0.5, alpha=0.25)
        axes.set(xlabel=label, yticks=list(places.values()), yticklabels=parts)
        axes.set_ylim(0.5, len(parts) + 0.5)
        axes.set_xlim(left=0)
        axes.grid(visible=True, axis="x")
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=min(2, len(arms)), fontsize=9)

    spoken = "; ".join(f"{row.part}, {row.arm}: {100 * row.value:.2f}" for row in values)
    return svg(f"By slice: {label}", f"{spoken}.", draw, height=1.4 + 0.1 * len(arms) + 0.16 * len(arms) * len(parts))


def _better(row: Change) -> tuple[bool, bool]:
    """Whether the whole interval is better, and whether it is worse."""
    above, below = row.low > 0, row.high < 0
    return (above, below) if row.higher_is_better else (below, above)


def _colour(row: Change) -> str:
    better, worse = _better(row)
    return GREEN if better else RED if worse else BLUE


def _word(row: Change) -> str:
    better, worse = _better(row)
    return "better" if better else "worse" if worse else "no clear difference"
