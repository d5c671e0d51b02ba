"""Check that a spend fits under every ceiling of its population, and find the first day on which it does.

Guarantee: a spend is reserved only if all that was reserved since ``clock.counts_since`` leaves room for it. Of the
spends in any window of so many days the last one counted all the others, so no window ever holds more than its
ceiling. Where the text that a launch reads is cut at the same day, and what claims to be typed later than it is read
waits (``federated.config.population.Retention``), all spends that read what is stamped with one moment were reserved
since then and are among those that the last of them counted: what anybody ever typed loses no more than the ceiling,
over all launches there will ever be, whatever the device's clock showed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from federated.config.population import PopulationKey
from pipeline.ground.errors import BudgetExceeded
from pipeline.ledger import clock
from pipeline.ledger.entries import Entry
from pipeline.ledger.loss import Release, Unit, added, release_of, releases
from pipeline.ledger.spend import Spend

# Sums of budgets typed as decimals (0.1 + 0.2 against 0.3) must not be refused for their last bit.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Ceiling:
    """The most that one unit may lose.

    Attributes:
      days: in any so many days; None for ever.
      field: where it stands, for whoever has it reviewed.
      unit, delta: what is added up, and of a device's total at which delta.
    """

    amount: float
    days: int | None
    field: str
    unit: Unit
    delta: float | None = None

    def holds(self, before: Iterable[Release], release: Release, since: str) -> bool:
        """Return whether there is room for a release beside those that count."""
        counted = [each for each in before if each.written >= since]
        # What is not a number fits here and is refused as what it is when the entry is written.
        return not added([*counted, release], self.delta) > self.amount * (1 + ROUNDING)


@dataclass(frozen=True)
class SpendRequest:
    """Request for a spend: its population, its launch, its split and the day by which its text was cut.

    Attributes:
      rule: of the split in which the devices are that lose.
      as_of: day by which the launch's text was cut; empty where it was not.
    """

    population: PopulationKey
    launch_id: str
    rule: str = ""
    as_of: str = ""


def require_room(
    entries: Iterable[Entry],
    request: SpendRequest,
    spend: Spend,
    ceilings: Sequence[Ceiling],
    at: datetime | None = None,
) -> None:
    """See that a spend fits under every ceiling on its unit, with all that counts.

    Args:
      at: when it would be reserved, to know it beforehand; by default now.

    Raises:
      BudgetExceeded: it does not; the numbers, the day from which on it would, and the fix are in the message.
    """
    entries = list(entries)
    before = {ceiling.unit: releases(entries, request.population, ceiling.unit) for ceiling in ceilings}
    release = {ceiling.unit: release_of(spend, ceiling.unit, request.rule) for ceiling in ceilings}
    for ceiling in ceilings:
        since = clock.counts_since(ceiling.days, request.as_of, at)
        if not ceiling.holds(before[ceiling.unit], release[ceiling.unit], since):
            spent = [each for each in before[ceiling.unit] if each.written >= since]
            together = added([*spent, release[ceiling.unit]], ceiling.delta)
            amounts = (added(spent, ceiling.delta), together)
            raise BudgetExceeded(_refusal(request, spend, ceiling, amounts, _first_day(before, release, ceilings)))


def _first_day(
    before: Mapping[Unit, Sequence[Release]], release: Mapping[Unit, Release], ceilings: Sequence[Ceiling]
) -> date | None:
    """The first day on which a launch that begins then has room; None if waiting does not help."""
    today = clock.now().date()
    # A day after a spend left a window: launches count from the day's first moment.
    left = (
        datetime.fromisoformat(each.written).date() + timedelta(days=ceiling.days + 1)
        for ceiling in ceilings
        for each in before[ceiling.unit]
        if ceiling.days is not None
    )
    for day in sorted({today, *(day for day in left if day > today)}):
        begins = clock.start_of(day.isoformat())
        opens = ("" if each.days is None else clock.written(begins - timedelta(days=each.days)) for each in ceilings)
        if all(
            ceiling.holds(before[ceiling.unit], release[ceiling.unit], since)
            for ceiling, since in zip(ceilings, opens, strict=True)
        ):
            return day
    return None


def _refusal(
    request: SpendRequest, spend: Spend, ceiling: Ceiling, amounts: tuple[float, float], day: date | None
) -> str:
    spent, together = amounts
    if ceiling.unit == "total":
        # Not a sum: what a release adds to epsilon depends on those before it.
        needed, name = together - spent, f"epsilon of one device over all releases at delta {ceiling.delta:g}"
        advice = "more noise, or fewer messages of word discovery"
    elif spend.rho is not None:
        needed, name, advice = spend.rho, "rho", "more noise, fewer rounds, larger min_sep"
    else:
        needed, name = spend.epsilon, "epsilon per typed word"
        advice = "smaller discovery.epsilon0, or fewer launches that discover words"
    window = "" if ceiling.days is None else f" in any {ceiling.days} days"
    if day is not None:
        waiting = f"there is room from {day.isoformat()} on: launch then"
    else:
        waiting = "waiting makes no room" + (", as all launches count for ever" if ceiling.days is None else "")
    return (
        f"population {request.population!r}: launch {request.launch_id!r} needs {name} {needed:.6g}, {spent:.6g} of "
        f"{ceiling.amount:.6g}{window} is spent and {max(ceiling.amount - spent, 0):.6g} is left; {waiting}, plan a "
        f"smaller spend ({advice}) or have the population's budget ({ceiling.field}) reviewed"
    )
