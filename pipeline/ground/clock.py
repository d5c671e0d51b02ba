"""The clock of the installation, the ledger's format of times, and dates of launches."""

import re
from datetime import UTC, date, datetime, time, timedelta

# The end of a ``config.launch_id``: a digest, and the date of a scheduled launch.
DATED = re.compile(r"(.*)-[0-9a-f]{8}-([0-9]{8})")


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


def written(instant: datetime) -> str:
    """Format a time as entries store it; later times sort after earlier ones."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds")


def start_of(day: str) -> datetime:
    """First moment of a day (written as 2026-01-31), as entries store times."""
    return datetime.combine(date.fromisoformat(day), time(), UTC)


def counts_since(days: int | None, as_of: str = "", at: datetime | None = None) -> str:
    """Start of a window of ``days`` days; empty, which sorts before all times, if there is no window.

    Guarantee: with a clock set back, or a launch for a past date, more spends count, never fewer.

    Args:
      as_of: the last day of the launch's text; by default now.
      at: the time of the request; by default now.
    """
    if days is None:
        return ""
    at = at or now()
    begins = min(at, start_of(as_of)) if as_of else at
    return written(begins - timedelta(days=days))


def day_of(run_id: str) -> date | None:
    """Date at the end of a launch id; None if it has none."""
    dated = DATED.fullmatch(run_id)
    try:
        return None if dated is None else datetime.strptime(dated[2], "%Y%m%d").replace(tzinfo=UTC).date()
    except ValueError:
        return None
