"""Cells of a table of launches, for a terminal and for the site, from a row of ``tacit runs``; forecasts alike."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

Row = Mapping[str, Any]


class Foreseen(Protocol):
    """A forecast gain in points of top-1 recall, and its standard deviation between populations."""

    @property
    def points(self) -> float: ...

    @property
    def error(self) -> float: ...


def gain(row: Row) -> str:
    """Gain of the launch in top-1 recall, with its interval; a dash if unknown."""
    value, low, high = (row[name] for name in ("top1_gain", "top1_gain_low", "top1_gain_high"))
    if value is None:
        return "-"
    within = "" if low is None or high is None else f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"{100 * value:+.1f} points{within}"


def foreseen(forecast: Foreseen) -> str:
    """A forecast gain in points, with two standard deviations."""
    return f"{forecast.points:+.1f} ± {2 * forecast.error:.1f}"


def minute(when: datetime | str) -> str:
    """A time in UTC, to the minute."""
    moment = datetime.fromisoformat(when) if isinstance(when, str) else when
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%MZ}"


def shown_state(row: Row) -> str:
    """Display state; ``failed`` if the launch is unfinished and its last attempt failed."""
    return "failed" if row["failed"] else row["state"]
