"""Whether the launches of a schedule fit what their population may lose, for as long as anybody keeps it."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from datetime import date, timedelta

from pipeline.config import LaunchConfig
from pipeline.ledger.budget import Population, ceilings
from pipeline.ledger.launch import asked, epsilon_of_a_word

_PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# First and last value of each field of a cron expression: minute, hour, day, month, weekday (7 is Sunday too).
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
# All lengths of months and positions of leap years.
_FIRST, _YEARS = date(2026, 1, 1), 8
# Pretraining and people's answers take days, so that two launches may come nearer to one another than their dates.
_LATE_DAYS = 7


@dataclass(frozen=True)
class Fits:
    """What a schedule comes to.

    Attributes:
      problems: why it runs dry although its budget is one in a window.
      notes: what else its owner would want to know.
    """

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def fits(config: LaunchConfig, population: Population | None) -> Fits:
    """Hold a launch file's schedule against every ceiling, its own and those of its population where it has one.

    Each launch is taken to cost all that its own policy lets it. A schedule that is none, or of a kind that only
    Airflow understands, is not judged.
    """
    dates = launch_days(config.schedule or "")
    if not dates:
        return Fits()
    problems, notes = list[str](), list[str]()
    costs = {"device": ("rho", config.policy.max_rho), "item": ("epsilon per typed word", epsilon_of_a_word(config))}
    for unit, (name, cost) in costs.items():
        if not cost:
            continue
        for ceiling in ceilings(population, asked(config), "device" if unit == "device" else "item"):
            affordable = math.floor(ceiling.amount / cost * (1 + 1e-12))
            if ceiling.days is None:
                notes.append(
                    f"schedule: {config.schedule!r} runs dry after {affordable:g} launches of {name} {cost:g}, as "
                    f"{ceiling.field} bounds all launches for ever to {ceiling.amount:g}; bound them in a window of "
                    "days with policy.budget"
                )
                continue
            most, late = (most_in(dates, ceiling.days + days) for days in (0, _LATE_DAYS))
            told = (
                f"schedule: {config.schedule!r} makes up to {{most}} launches in any {ceiling.days} days, at {name} "
                f"{cost:g} each {{needed:g}}, and {ceiling.field} allows {ceiling.amount:g}"
            )
            if most > affordable:
                problems.append(
                    told.format(most=most, needed=most * cost) + "; launch less often, let a launch cost at most "
                    f"{math.floor(1e4 * ceiling.amount / most) / 1e4:g}, or have the budget reviewed"
                )
            elif late > affordable:
                apart = f", if one is {_LATE_DAYS} days late and another is not"
                notes.append(told.format(most=late, needed=late * cost) + apart)
    return Fits(tuple(problems), tuple(notes))


def require_fits(config: LaunchConfig) -> tuple[str, ...]:
    """What the owner of a schedule would want to know; ValueError if the file's own budget cannot bear it."""
    found = fits(config, None)
    if found.problems:
        raise ValueError("\n".join(found.problems))
    return found.notes


def most_in(days: list[int], span: int) -> int:
    """The most of some ascending days in any so many, both ends included."""
    return max(place - bisect_left(days, day - span) + 1 for place, day in enumerate(days))


def launch_days(schedule: str) -> list[int]:
    """The days on which a schedule launches, as ordinals, over some years; empty if it is none that is known here.

    However often it fires on a day, launches of one date are one launch.
    """
    fields = _PRESETS.get(schedule.strip().lower(), schedule).split()
    if len(fields) != len(_RANGES):
        return []
    try:
        parts = [_values(field.lower(), *span) for field, span in zip(fields, _RANGES, strict=True)]
    except ValueError:
        return []
    _, _, days, months, weekdays = parts
    # As cron has it: where both are restricted, one of them is enough.
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    found = []
    for ordinal in range(_FIRST.toordinal(), date(_FIRST.year + _YEARS, 1, 1).toordinal()):
        day = date.fromordinal(ordinal)
        is_last = (day + timedelta(days=1)).day == 1
        by_day = day.day in days or (is_last and _LAST in days)
        by_weekday = day.isoweekday() % 7 in weekdays or (day.isoweekday() == 7 and 7 in weekdays)
        if day.month in months and (by_day or by_weekday if either else by_day and by_weekday):
            found.append(ordinal)
    return found


_LAST = -1  # the last day of a month, whichever it is


def _values(field: str, first: int, last: int) -> frozenset[int]:
    """The values that a field of a cron expression stands for.

    Raises:
      ValueError: it is none that is known here.
    """
    names = {name: number for number, name in enumerate(_MONTHS, 1)} if last == 12 else {}
    names |= {name: number for number, name in enumerate(_WEEKDAYS)} if last == 7 else {}
    values: set[int] = set()
    for part in field.split(","):
        if part == "l" and last == 31:
            values.add(_LAST)
            continue
        span, _, step = part.partition("/")
        begins, dash, ends = span.partition("-")
        if span in ("*", "?"):
            low, high = first, last
        else:
            low = names[begins] if begins in names else int(begins)
            high = (names[ends] if ends in names else int(ends)) if dash else (last if step else low)
        if not first <= low <= high <= last:
            raise ValueError(field)
        values.update(range(low, high + 1, int(step or 1)))
    return frozenset(values)
