"""What one device, or one typed word, loses to the releases in a ledger.

A device is in one split of a population for as long as the rule of the split stays (``Population.split_rule``), so it
loses to the releases of one split only: under one rule the largest split counts. Over rules they add up, as a device
may have been on each side. A release that names no rule, as all did before, adds to everything. Devices and items are
never added.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pipeline.errors import LedgerTampered
from pipeline.ledger import clock
from pipeline.ledger.entries import SPLIT_RULE, Entry, is_amount
from pipeline.stage import Spend

Unit = Literal["device", "item"]


@dataclass(frozen=True)
class Release:
    """One release as it counts.

    Attributes:
      amount: rho of a device, or epsilon of an item.
      failure: probability with which that does not hold.
      written: when it was reserved, as entries write times; no earlier than any other before it.
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
      entries: in order: a commit replaces its reservation, and counts from then.

    Raises:
      LedgerTampered: an amount that this class never writes: none, negative or not finite.
    """
    latest: dict[tuple[str, str], Release] = {}
    latest_time = ""
    for entry in entries:
        if (entry.population, entry.unit) != (population, unit):
            continue
        # Where a clock went backwards the later time counts, so that nothing is forgotten too early.
        latest_time = max(latest_time, entry.created_at)
        amount = entry.rho if unit == "device" else entry.epsilon
        if not is_amount(amount):
            raise LedgerTampered(f"the {entry.kind} of {entry.launch_id} {entry.stage} has no {unit}-level amount")
        place = (entry.launch_id, entry.stage)
        # All that a launch reads of a device was typed before it reserved.
        written = latest[place].written if entry.does != "reserve" and place in latest else latest_time
        latest[place] = Release(amount, entry.failure, written, entry.names(SPLIT_RULE), entry.split)
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


def most_in_any(counted: Collection[Release], days: int | None) -> float:
    """The most that one unit lost in any so many days; None for all time."""
    if days is None:
        return together(counted)[0]
    span, windows = timedelta(days=days), []
    for last in {each.written for each in counted}:
        first = clock.written(datetime.fromisoformat(last) - span)
        windows.append(together(each for each in counted if first <= each.written <= last)[0])
    return max(windows, default=0.0)
