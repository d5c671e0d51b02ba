"""The ledger's clock, the format of its times, and one spend for each date of a schedule."""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from federated.config.population import PopulationKey
from pipeline.ground.errors import BudgetExceeded
from pipeline.ledger.entries import SPENDING, Entry

# The end of a ``config.launch_id``: a digest, and the date of a scheduled launch.
_DATED = re.compile(r"(.*)-[0-9a-f]{8}-([0-9]{8})")


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
    dated = _DATED.fullmatch(run_id)
    try:
        return None if dated is None else datetime.strptime(dated[2], "%Y%m%d").replace(tzinfo=UTC).date()
    except ValueError:
        return None


def require_once(entries: Iterable[Entry], population: PopulationKey, run_id: str) -> None:
    """Check that no other launch of the same name and date has spent.

    Guarantee: a date of a schedule spends once, however often it is run, even if the launch file has changed since:
    a changed file is another launch, which would cost the same devices as much again. Reservations that were given
    back do not count, and a person may still launch the file for another date.

    Raises:
      BudgetExceeded: another launch has spent for the date.
    """
    dated = _DATED.fullmatch(run_id)
    standing = standing_spends(entries, population)
    if dated is None or any(launch_id == run_id for launch_id, _ in standing):
        return  # A launch that has begun to spend may resume.
    for launch_id, stage in standing:
        other = _DATED.fullmatch(launch_id)
        if other is not None and other.groups() == dated.groups():
            raise BudgetExceeded(
                f"date: {dated[2]} of {dated[1]!r} was launched as {launch_id}, whose stage {stage!r} spent on "
                f"population {population!r}; the launch file changed since, so {run_id} would spend again for the same "
                "date. Launch it with a later date, or restore the file"
            )


def standing_spends(entries: Iterable[Entry], population: PopulationKey) -> list[tuple[str, str]]:
    """Launch and stage of every spend or reservation on a population that was not given back."""
    latest = {
        (entry.launch_id, entry.stage): entry.does
        for entry in entries
        if entry.population == population and entry.does in SPENDING
    }
    return [place for place, does in latest.items() if does != "release"]
