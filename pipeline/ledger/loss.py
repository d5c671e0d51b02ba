"""What one device, or one typed word, loses to the releases in a ledger.

A device is in one split of a population for as long as the rule of the split stays (``Population.split_rule``), so it
loses to the releases of one split only: under one rule the largest split counts. Over rules they add up, as a device
may have been on each side. A release that names no rule, as all did before, adds to everything. Devices and items are
never added.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pipeline.errors import BudgetExceeded, LedgerTampered
from pipeline.ledger.entries import SPLIT_RULE, Entry, is_amount
from pipeline.stage import Spend

# Sums of budgets typed as decimals (0.1 + 0.2 against 0.3) must not be refused for their last bit.
_ROUNDING = 1e-12
Unit = Literal["device", "item"]


@dataclass(frozen=True)
class Release:
    """One release as it counts.

    Attributes:
      amount: rho of a device, or epsilon of an item.
      failure: probability with which that does not hold.
      written: when, as entries write times.
      rule, split: whose devices lose; without a rule, everybody's.
    """

    amount: float
    failure: float
    written: str
    rule: str
    split: str


def release_of(spend: Spend, rule: str, written: str = "") -> Release:
    """A spend that is about to be reserved, as it would count."""
    amount = spend.epsilon if spend.rho is None else spend.rho
    return Release(amount, spend.failure, written, rule, spend.split)


def releases(entries: Iterable[Entry], population: str, unit: Unit) -> list[Release]:
    """The releases of one unit: commits, and reservations that have none.

    Args:
      entries: in order, so that a commit comes after its reservation and replaces it.

    Raises:
      LedgerTampered: an amount that this class never writes: none, negative or not finite.
    """
    latest: dict[tuple[str, str], Release] = {}
    for entry in entries:
        if (entry.population, entry.unit) != (population, unit):
            continue
        amount = entry.rho if unit == "device" else entry.epsilon
        if not is_amount(amount):
            raise LedgerTampered(f"the {entry.kind} of {entry.launch_id} {entry.stage} has no {unit}-level amount")
        rule = entry.names(SPLIT_RULE)
        latest[entry.launch_id, entry.stage] = Release(amount, entry.failure, entry.created_at, rule, entry.split)
    return list(latest.values())


def together(counted: Iterable[Release]) -> tuple[float, float]:
    """What one unit loses to all of these, and the probability with which it does not hold.

    Guarantee: rho of releases on the same devices adds up (zCDP), and so do local epsilons of the same typed word
    asked for in several launches (basic composition; delta 0, as discovery's messages have it), and probabilities of
    failure (union bound). A device of one split has nothing in releases of another one, so these compose in parallel.
    """
    parts: dict[str, dict[str, list[Release]]] = defaultdict(lambda: defaultdict(list))
    for release in counted:
        parts[release.rule][release.split if release.rule else ""].append(release)
    sums = [
        [
            (math.fsum(each.amount for each in part), math.fsum(each.failure for each in part))
            for part in splits.values()
        ]
        for splits in parts.values()
    ]
    amount, failure = (math.fsum(max(part[number] for part in rule) for rule in sums) for number in (0, 1))
    return amount, failure


def total_spent(entries: Iterable[Entry], population: str, unit: Unit, since: str = "") -> float:
    """Rho of one device, or epsilon of one item; see ``together``.

    Args:
      since: leave out what was written before this time.
    """
    return together(each for each in releases(entries, population, unit) if each.written >= since)[0]


def require_room(
    entries: Iterable[Entry],
    population: str,
    launch_id: str,
    spend: Spend,
    ceiling: float | None,
    since: str = "",
    rule: str = "",
) -> None:
    """See that a spend fits under the ceiling on its unit, with all that was spent ``since``; None is no ceiling.

    Args:
      rule: that of the split in which the devices are that lose.

    Raises:
      BudgetExceeded: it does not; the numbers and the fix are in the message.
    """
    if ceiling is None:
        return
    before = [each for each in releases(entries, population, spend.unit) if each.written >= since]
    spent, needed = together(before)[0], release_of(spend, rule)
    if spend.rho is not None:
        name, policy = "rho", "policy.population_max_rho"
        advice = "more noise, fewer rounds, larger min_sep"
    else:
        name, policy = "epsilon per typed word", "policy.population_max_discovery_epsilon"
        advice = "smaller discovery.epsilon0, or fewer launches that discover words"
    if together([*before, needed])[0] > ceiling * (1 + _ROUNDING):
        raise BudgetExceeded(
            f"population {population!r}: launch {launch_id!r} needs {name} {needed.amount:.6g}, {spent:.6g} of "
            f"{ceiling:.6g} is spent and {max(ceiling - spent, 0):.6g} is left; plan a smaller spend ({advice}) or "
            f"have the population's budget ({policy}) reviewed"
        )
