"""Check that a spend fits under every ceiling of its population, and find the first day on which it does.

Guarantee: a spend is reserved only if all spends reserved since ``clock.counts_since`` leave room for it. Of the
spends in any window the last one counted all the others, so no window ever holds more than its ceiling. A launch
reads no text from before the start of that window, and text with a time stamp in the future waits until then
(``federated.config.population.Retention``). So all spends that read text of one time stamp were reserved after it,
and the last of them counted the others: typed text loses no more than the ceiling over all launches, past and future,
for any setting of the device's clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from federated.config.population import PopulationKey
from pipeline.ground.errors import BudgetExceeded
from pipeline.ledger import clock
from pipeline.ledger.entries import Entry
from pipeline.ledger.loss import ADDS_TO, Release, Unit, added, release_of, releases
from pipeline.ledger.spend import Spend

# Sums of budgets typed as decimals (0.1 + 0.2 against 0.3) must not fail on their last bit.
ROUNDING = 1e-12
NAMES: Mapping[Unit, str] = {
    "device": "rho",
    "item": "epsilon per typed word",
    "words": "epsilon of one device to words found locally",
    "delta": "delta beside that of the curve",
}
_ADVICE: Mapping[Unit, str] = {
    "device": "more noise, fewer rounds, larger min_sep",
    "item": "smaller discovery.epsilon0, or fewer launches that discover words",
    "words": "fewer messages of word discovery, or words found centrally",
    "delta": "smaller discovery.delta",
}


@dataclass(frozen=True)
class Ceiling:
    """Upper bound on the loss of one unit.

    Attributes:
      days: length of its window; None for all time.
      field: where the ceiling is set, for the error message.
      unit: the unit of the sum.
    """

    amount: float
    days: int | None
    field: str
    unit: Unit

    def holds(self, before: Iterable[Release], release: Release, since: str) -> bool:
        """Return whether a release fits beside the earlier ones that count."""
        counted = [each for each in before if each.written >= since]
        # NaN fits here; ``append`` refuses it with a message of its own.
        return not added([*counted, release]) > self.amount * (1 + ROUNDING)


@dataclass(frozen=True)
class SpendRequest:
    """Request for a spend: its population, its launch, its split and the last day of its text.

    Attributes:
      rule: version of the split rule that places the devices.
      as_of: last day of the launch's text; empty without retention.
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
    """Check that a spend fits under every ceiling on its unit, beside all earlier spends that count.

    Args:
      at: time of the reservation, for a forecast; by default now.

    Raises:
      BudgetExceeded: it does not fit; the message has the numbers, the first day with room, and the fix.
    """
    entries, ceilings = list(entries), [each for each in ceilings if each.unit in ADDS_TO[spend.unit]]
    before = {ceiling.unit: releases(entries, request.population, ceiling.unit) for ceiling in ceilings}
    release = {ceiling.unit: release_of(spend, ceiling.unit, request.rule) for ceiling in ceilings}
    for ceiling in ceilings:
        since = clock.counts_since(ceiling.days, request.as_of, at)
        if not ceiling.holds(before[ceiling.unit], release[ceiling.unit], since):
            spent = [each for each in before[ceiling.unit] if each.written >= since]
            amounts = (release[ceiling.unit].amount, added(spent))
            raise BudgetExceeded(_refusal(request, ceiling, amounts, _first_day(before, release, ceilings)))


def _first_day(
    before: Mapping[Unit, Sequence[Release]], release: Mapping[Unit, Release], ceilings: Sequence[Ceiling]
) -> date | None:
    """First day on which a launch would have room; None if waiting does not help."""
    today = clock.now().date()
    # One day after a spend leaves a window, as launches count from the day's first moment.
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


def _refusal(request: SpendRequest, ceiling: Ceiling, amounts: tuple[float, float], day: date | None) -> str:
    needed, spent = amounts
    name, advice = NAMES[ceiling.unit], _ADVICE[ceiling.unit]
    window = "" if ceiling.days is None else f" in any {ceiling.days} days"
    if day is not None:
        waiting = f"there is room from {day.isoformat()} on: launch then"
    else:
        waiting = "waiting does not help" + (", as all launches count for ever" if ceiling.days is None else "")
    return (
        f"population {request.population!r}: launch {request.launch_id!r} needs {name} {needed:.6g}, {spent:.6g} of "
        f"{ceiling.amount:.6g}{window} is spent and {max(ceiling.amount - spent, 0):.6g} is left; {waiting}, plan a "
        f"smaller spend ({advice}) or have the population's budget ({ceiling.field}) reviewed"
    )
