"""The time by which the ledger counts: one clock, and one way to write what it shows."""

from datetime import UTC, date, datetime, time, timedelta


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def written(instant: datetime) -> str:
    """A time as entries have it; later times sort after earlier ones."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds")


def start_of(day: str) -> datetime:
    """The first moment of a day that is written as 2026-01-31."""
    return datetime.combine(date.fromisoformat(day), time(), UTC)


def counts_since(days: int | None, as_of: str = "", at: datetime | None = None) -> str:
    """The time since which spends count in a window of so many days; empty, before all times, if it is for ever.

    Guarantee: a clock that goes backwards, or a launch of a date in the past, counts more, never less.

    Args:
      as_of: the day by which the launch's text was cut; by default now.
      at: when it is asked for; by default now.
    """
    if days is None:
        return ""
    at = at or now()
    begins = min(at, start_of(as_of)) if as_of else at
    return written(begins - timedelta(days=days))
