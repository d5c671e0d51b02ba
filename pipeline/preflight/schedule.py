"""Check that the launches of a schedule fit their population's budget indefinitely."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

from croniter import croniter_range

from pipeline.launch.config import LaunchConfig, cron
from pipeline.ledger.budget import NAMES, ROUNDING, Population, ceilings
from pipeline.ledger.entries import Spend
from pipeline.ledger.loss import Unit, release_of
from pipeline.run.population import asked

# Long enough for all lengths of months and positions of leap years.
_FIRST, _YEARS = date(2026, 1, 1), 8
# Pretraining and approvals take days, so two launches may spend closer together than their dates.
_LATE_DAYS = 7


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
    each_launch = _launch(config, words)
    for ceiling in ceilings(population, asked(config)):
        cost, name, most_loss = each_launch[ceiling.unit], NAMES[ceiling.unit], ceiling.amount * (1 + ROUNDING)
        if not cost:
            continue
        if ceiling.days is None:
            notes.append(
                f"schedule: {config.schedule!r} exhausts its budget after {math.floor(most_loss / cost)} launches of "
                f"{name} {cost:g}, as {ceiling.field} bounds all launches for ever to {ceiling.amount:g}; bound them "
                "in a window of days with policy.budget"
            )
            continue
        most, late = (most_in(dates, ceiling.days + days) for days in (0, _LATE_DAYS))
        sentence = (
            f"schedule: {config.schedule!r} makes up to {{most}} launches in any {ceiling.days} days, at {name} "
            f"{cost:.6g} each, {{needed:.6g}} together, and {ceiling.field} allows {ceiling.amount:g}"
        )
        if most * cost > most_loss:
            problems.append(
                sentence.format(most=most, needed=most * cost)
                + f"; launch less often, let a launch cost at most {math.floor(1e4 * ceiling.amount / most) / 1e4:g}, "
                "or have the budget reviewed"
            )
        elif late * cost > most_loss:
            apart = f", if one is {_LATE_DAYS} days late and another is not"
            notes.append(sentence.format(most=late, needed=late * cost) + apart)
    return ScheduleCheck(tuple(problems), tuple(notes))


def _launch(config: LaunchConfig, words: Spend) -> Mapping[Unit, float]:
    """Worst-case loss to a launch, in each unit."""
    of_words = {unit: release_of(words, unit, "").amount for unit in NAMES}
    return {**of_words, "device": config.policy.max_rho}


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
