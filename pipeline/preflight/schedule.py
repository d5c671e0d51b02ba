"""Check that the launches of a schedule fit their population's budget indefinitely."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time

from croniter import croniter_range

from pipeline.launch.config import LaunchConfig, cron
from pipeline.ledger.budget import Population, ceilings
from pipeline.ledger.loss import Release, Unit, added, release_of
from pipeline.ledger.spend import Spend
from pipeline.run.population import asked

# Long enough for all lengths of months and positions of leap years.
_FIRST, _YEARS = date(2026, 1, 1), 8
# Pretraining and approvals take days, so two launches may spend closer together than their dates.
_LATE_DAYS = 7
_MOST_LAUNCHES = 1_000_000
_NAMES: Mapping[Unit, str] = {
    "device": "rho",
    "item": "epsilon per typed word",
    "total": "epsilon of one device over all releases",
}


@dataclass(frozen=True)
class ScheduleCheck:
    """Result of a schedule's check.

    Attributes:
      problems: why the schedule exhausts a budget that has a window.
      notes: further warnings for its owner.
    """

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def fits(config: LaunchConfig, population: Population | None, words: Spend) -> ScheduleCheck:
    """Compare a launch file's schedule with every ceiling: its own, and those of its population if registered.

    Each launch counts with all the rho that its own policy allows, and with the planned spend of discovery.

    Args:
      words: worst-case spend of the launch's discovery.
    """
    if config.schedule is None:
        return ScheduleCheck()
    dates = launch_days(config.schedule)
    problems, notes = list[str](), list[str]()
    for ceiling in ceilings(population, asked(config), *_NAMES):
        each, name = _launch(config, words, ceiling.unit), _NAMES[ceiling.unit]

        def cost(launches: int, each: list[Release] = each, delta: float | None = ceiling.delta) -> float:
            return added([_times(launches, release) for release in each], delta)

        if not cost(1):
            continue
        most_loss = ceiling.amount * (1 + 1e-12)
        if ceiling.days is None:
            beyond = 1
            while beyond < _MOST_LAUNCHES and cost(beyond) <= most_loss:
                beyond *= 2  # doubling suffices, as most ceilings allow few launches
            affordable = bisect_right(range(1, min(beyond, _MOST_LAUNCHES)), most_loss, key=cost)
            notes.append(
                f"schedule: {config.schedule!r} exhausts its budget after {affordable:g} launches of {name} "
                f"{cost(1):g}, as {ceiling.field} bounds all launches for ever to {ceiling.amount:g}; bound them in a "
                "window of days with policy.budget"
            )
            continue
        most, late = (most_in(dates, ceiling.days + days) for days in (0, _LATE_DAYS))
        sentence = (
            f"schedule: {config.schedule!r} makes up to {{most}} launches in any {ceiling.days} days, at {name} "
            f"{cost(1):.6g} each, {{needed:.6g}} together, and {ceiling.field} allows {ceiling.amount:g}"
        )
        if cost(most) > most_loss:
            less = f"at most {math.floor(1e4 * ceiling.amount / most) / 1e4:g}" if ceiling.delta is None else "less"
            problems.append(
                sentence.format(most=most, needed=cost(most))
                + f"; launch less often, let a launch cost {less}, or have "
                "the budget reviewed"
            )
        elif cost(late) > most_loss:
            apart = f", if one is {_LATE_DAYS} days late and another is not"
            notes.append(sentence.format(most=late, needed=cost(late)) + apart)
    return ScheduleCheck(tuple(problems), tuple(notes))


def _times(launches: int, release: Release) -> Release:
    """As many of a release as one: a schedule may make a million, and each sum adds up."""
    parts = {name: launches * getattr(release, name) for name in ("amount", "failure", "epsilon", "delta")}
    return replace(release, **parts)


def _launch(config: LaunchConfig, words: Spend, unit: Unit) -> list[Release]:
    """Worst-case releases of a launch that count for ``unit``."""
    noised = Release(config.policy.max_rho, words.failure, "", "", "train")
    messages = [release_of(words, unit, "")] if words.unit == "item" else []
    return {"device": [noised], "item": messages, "total": [noised, *messages]}[unit]


def require_fits(config: LaunchConfig, words: Spend) -> tuple[str, ...]:
    """Return warnings for the owner of a schedule; ValueError if it exceeds the file's own budget."""
    come_to = fits(config, None, words)
    if come_to.problems:
        raise ValueError("\n".join(come_to.problems))
    return come_to.notes


def most_in(days: list[int], span: int) -> int:
    """Largest number of the ascending ``days`` in any window of ``span`` days, both ends included."""
    return max(place - bisect_left(days, day - span) + 1 for place, day in enumerate(days))


def launch_days(schedule: str) -> list[int]:
    """Days on which a schedule launches, as ordinals, over several years."""
    last = date(_FIRST.year + _YEARS - 1, 12, 31)
    return [day.toordinal() for day in launch_dates(schedule, _FIRST, last)]


def launch_dates(schedule: str, first: date, last: date) -> list[date]:
    """Dates on which a schedule launches, both ends included.

    A date counts once even if the schedule fires several times on it, as a date is one launch.
    """
    once_a_day = " ".join(("0", "0", *cron(schedule).split()[2:]))  # Ignores hours and minutes.
    begins, ends = (datetime.combine(day, time(), UTC) for day in (first, last))
    return [day.date() for day in croniter_range(begins, ends, once_a_day, exclude_ends=False)]
