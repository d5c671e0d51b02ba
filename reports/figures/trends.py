"""Figures of a locale's launches over time: privacy loss against the budget, and gain in top-1 recall."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter, date2num

from reports.figures.style import BLUE, COLOURS, ORANGE, svg
from reports.losses import up

_WIDTH, _HEIGHT = 4.9, 2.7  # inches: two fit side by side, and one is legible on a phone
_MOST_NAMED = 3


@dataclass(frozen=True)
class Course:
    """Rho that one device of a population has lost, over time.

    Attributes:
      days: length of the sliding window over which rho is summed; None: all time.
      points: (time, rho, ceiling at that time or None), in order of time.
    """

    population: str
    days: int | None
    points: Sequence[tuple[datetime, float, float | None]]

    @property
    def name(self) -> str:
        within = f"in any {self.days} days" if self.days else "for ever"
        return f"{self.population}, {within}"

    def told(self) -> str:
        """Present loss and its ceiling, in words."""
        _, spent, ceiling = self.points[-1]
        of = "" if ceiling is None else f" of {ceiling:g}"
        return f"{self.name}: rho {up(spent, 4)}{of}"


def of_budget(locale: str, courses: Sequence[Course]) -> str:
    """SVG of the spent rho, one step per release, with each ceiling as a dashed line of the same colour."""
    times = [point[0] for course in courses for point in course.points]
    edge = date2num(max(times) + _room(times))

    def draw(axes: Axes) -> None:
        for number, course in enumerate(courses):
            colour = COLOURS[number % len(COLOURS)]
            on = [date2num(when) for when, _, _ in course.points]
            spent = [amount for _, amount, _ in course.points]
            limits = [math.nan if ceiling is None else ceiling for _, _, ceiling in course.points]
            label = course.name if number < _MOST_NAMED else None
            axes.step(on, spent, where="post", color=colour, label=label)
            axes.plot(on[-1:], spent[-1:], "o", color=colour, markersize=4)
            # To the edge: one release alone would be a dot.
            axes.step([*on, edge], [*limits, limits[-1]], where="post", color=colour, linestyle="--", linewidth=1)
        _dates(axes, times)
        axes.set_ylabel("ρ of one device\n(dashed: budget)")
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=1, fontsize=9)

    description = "; ".join(course.told() for course in courses)
    return svg(f"Budget spent, {locale}", f"By now {description}.", draw, _HEIGHT, _WIDTH)


def of_gain(locale: str, launches: Sequence[Mapping[str, Any]]) -> str:
    """SVG of the gain of each launch in top-1 recall, with its interval; published launches have filled marks.

    Args:
      launches: rows of the table of launches that have a gain, the oldest first.
    """

    def draw(axes: Axes) -> None:
        for published, colour, mark, label in ((True, BLUE, "o", "published"), (False, ORANGE, "D", "not published")):
            drawn = [row for row in launches if (row["state"] == "published") == published]
            for row in drawn:
                when, (value, low, high) = date2num(_when(row)), _points(row)
                axes.plot([when, when], [low, high], color=colour, linewidth=1.5)
                axes.plot([when], [value], mark, color=colour, markersize=6, fillstyle="full" if published else "none")
            if drawn:
                axes.plot([], [], mark, color=colour, fillstyle="full" if published else "none", label=label)
        axes.axhline(0, color="#7a7a7a", linewidth=1)
        _dates(axes, [_when(row) for row in launches])
        axes.set_ylabel("gain in top-1 recall\n(percentage points)")
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, fontsize=9)

    values = (
        f"{row['launch_id']} {value:+.1f} ({low:+.1f} to {high:+.1f})" for row, (value, low, high) in _gains(launches)
    )
    return svg(f"Gain of each launch, {locale}", f"Percentage points: {'; '.join(values)}.", draw, _HEIGHT, _WIDTH)


def _gains(launches: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], tuple[float, float, float]]]:
    return [(row, _points(row)) for row in launches]


def _points(row: Mapping[str, Any]) -> tuple[float, float, float]:
    """Gain and the ends of its interval in percentage points; without an interval all three are the gain."""
    ends = (row["top1_gain"] if row[name] is None else row[name] for name in ("top1_gain_low", "top1_gain_high"))
    low, high = (100 * end for end in ends)
    return 100 * row["top1_gain"], low, high


def _when(row: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(row["began"])


def _dates(axes: Axes, times: Sequence[datetime]) -> None:
    """Make the horizontal axis one of dates in UTC, at least a few days wide."""
    axes.set_xlim(date2num(min(times) - _room(times)), date2num(max(times) + _room(times)))
    axes.xaxis.set_major_locator(AutoDateLocator(minticks=2, maxticks=4))
    axes.xaxis.set_major_formatter(DateFormatter("%Y-%m-%d"))
    axes.set_xlabel("date (UTC)")
    axes.grid(visible=True)


def _room(times: Sequence[datetime]) -> timedelta:
    """Time that is shown before and after."""
    return max(timedelta(days=2), (max(times) - min(times)) / 20)
