"""Check that a schedule's launches fit what their population may lose, for as long as it is kept."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

from croniter import croniter, croniter_range

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.budget import Population, ceilings
from pipeline.ledger.loss import Release, Unit, added, release_of
from pipeline.ledger.spend import Spend
from pipeline.run.population import asked

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
# All lengths of months and positions of leap years.
_FIRST, _YEARS = date(2026, 1, 1), 8
# Pretraining and people's answers take days, so that two launches may come nearer to one another than their dates.
_LATE_DAYS = 7
_CRON_FIELDS = 5
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
      problems: why it runs dry although its budget is one in a window.
      notes: what else its owner would want to know.
    """

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def fits(config: LaunchConfig, population: Population | None, words: Spend) -> ScheduleCheck:
    """Hold a launch file's schedule against every ceiling, its own and those of its population where it has one.

    Each launch is taken to cost all the rho that its own policy lets it, and words what is planned. A schedule that is
    none, or of a kind that only Airflow understands, is not judged.

    Args:
      words: what the launch's discovery costs at worst.
    """
    dates = launch_days(config.schedule or "")
    if not dates:
        return ScheduleCheck()
    problems, notes = list[str](), list[str]()
    for ceiling in ceilings(population, asked(config), *_NAMES):
        each, name = _launch(config, words, ceiling.unit), _NAMES[ceiling.unit]

        def cost(launches: int, each: list[Release] = each, delta: float | None = ceiling.delta) -> float:
            return added(each * launches, delta)

        if not cost(1):
            continue
        most_loss = ceiling.amount * (1 + 1e-12)
        if ceiling.days is None:
            beyond = 1
            while beyond < _MOST_LAUNCHES and cost(beyond) <= most_loss:
                beyond *= 2  # a launch more is a longer list: the few that most ceilings allow are soon passed
            affordable = bisect_right(range(1, min(beyond, _MOST_LAUNCHES)), most_loss, key=cost)
            notes.append(
                f"schedule: {config.schedule!r} runs dry after {affordable:g} launches of {name} {cost(1):g}, as "
                f"{ceiling.field} bounds all launches for ever to {ceiling.amount:g}; bound them in a window of "
                "days with policy.budget"
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


def _launch(config: LaunchConfig, words: Spend, unit: Unit) -> list[Release]:
    """A launch at worst, as it counts where ``unit`` is added up."""
    noised = Release(config.policy.max_rho, words.failure, "", "", "train")
    messages = [release_of(words, unit, "")] if words.unit == "item" else []
    return {"device": [noised], "item": messages, "total": [noised, *messages]}[unit]


def require_fits(config: LaunchConfig, words: Spend) -> tuple[str, ...]:
    """Warnings for the owner of a schedule; ValueError if the file's own budget cannot bear it."""
    come_to = fits(config, None, words)
    if come_to.problems:
        raise ValueError("\n".join(come_to.problems))
    return come_to.notes


def most_in(days: list[int], span: int) -> int:
    """The most of some ascending days in any so many, both ends included."""
    return max(place - bisect_left(days, day - span) + 1 for place, day in enumerate(days))


def launch_days(schedule: str) -> list[int]:
    """The days on which a schedule launches, as ordinals, over some years; empty if it is none that is known here."""
    last = date(_FIRST.year + _YEARS - 1, 12, 31)
    return [day.toordinal() for day in launch_dates(schedule, _FIRST, last)]


def launch_dates(schedule: str, first: date, last: date) -> list[date]:
    """The days on which a schedule launches, both ends included; empty if it is none that is known here.

    However often it fires on a day, launches of one date are one launch.
    """
    expression = _PRESETS.get(schedule.strip().lower(), schedule)
    fields = expression.split()
    if not croniter.is_valid(expression) or len(fields) != _CRON_FIELDS:
        return []
    once_a_day = " ".join(("0", "0", *fields[2:]))  # However many hours and minutes it names.
    begins, ends = (datetime.combine(day, time(), UTC) for day in (first, last))
    return [day.date() for day in croniter_range(begins, ends, once_a_day, exclude_ends=False)]
