"""Privacy loss of one device, or one typed word, from the releases in a ledger.

A device is in one split of a population for as long as the split rule stays the same (``Population.split_rule``), so it
loses to the releases of one split only: under one rule the largest split counts. Losses of different rules add up, as a
device may have been in either split. A release that names no rule, or is about devices of every split, adds to all
splits. Rho of a device and epsilon of an item are never added; the total of a device covers both its noised releases
and all its messages about items.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Literal

from federated.config.population import PopulationKey
from pipeline.ground.errors import LedgerTampered
from pipeline.ledger import clock
from pipeline.ledger.entries import NO_UNIT, SPLIT_RULE, Entry, is_amount
from pipeline.ledger.spend import Spend

# Unit of a sum: rho of a device, epsilon of an item, or a device's epsilon over both.
Unit = Literal["device", "item", "total"]


@dataclass(frozen=True)
class Release:
    """One release, as loss sums count it.

    Attributes:
      amount: rho of a device, or epsilon of an item; in a total rho, or 0 for a release that has none.
      failure: probability with which the amount does not hold.
      written: time of the reservation, in the format of entries; no earlier than that of any release before it.
      rule, split: the devices that bear the loss; without a rule, or with split ``every``, all devices.
      epsilon, delta: loss to all messages of a device about items, which have no rho.
    """

    amount: float
    failure: float
    written: str
    rule: str
    split: str
    epsilon: float = 0.0
    delta: float = 0.0


def release_of(spend: Spend, unit: Unit, rule: str, written: str = "") -> Release:
    """Convert a spend to a release of ``unit``."""
    amount = spend.epsilon if unit == "item" else spend.rho or 0.0
    return Release(amount, spend.failure, written, rule, spend.split, spend.device_epsilon, spend.device_delta)


def counts_for(unit: Unit, spent: str) -> bool:
    """True if a spend whose unit is ``spent`` (device or item) adds to the sum of ``unit``."""
    return unit in (spent, "total")


def releases(entries: Iterable[Entry], population: PopulationKey, unit: Unit) -> list[Release]:
    """List the releases of one unit: commits, and reservations that have none.

    Args:
      entries: in order; a commit replaces its reservation, and counts from the reservation's time.

    Raises:
      LedgerTampered: an amount that this class never writes: none, negative or not finite.
    """
    latest: dict[tuple[str, str], Release] = {}
    latest_time = ""
    for entry in entries:
        if entry.population != population or entry.unit == NO_UNIT or not counts_for(unit, entry.unit):
            continue
        # Where a clock was set back the later time counts, so that no spend leaves the window too early.
        latest_time = max(latest_time, entry.created_at)
        stated = entry.rho if entry.unit == "device" else entry.epsilon
        others = (entry.failure, entry.device_epsilon, entry.device_delta)
        if not is_amount(stated) or not all(map(is_amount, others)):
            raise LedgerTampered(
                f"the {entry.kind} of {entry.launch_id} {entry.stage} has no {entry.unit}-level amount"
            )
        place = (entry.launch_id, entry.stage)
        # A launch reads only text that was typed before its reservation.
        written = latest[place].written if entry.does != "reserve" and place in latest else latest_time
        amount = 0.0 if unit == "total" and entry.unit == "item" else stated
        beside = (entry.device_epsilon, entry.device_delta)
        latest[place] = Release(amount, entry.failure, written, entry.names(SPLIT_RULE), entry.split, *beside)
    return list(latest.values())


def together(counted: Iterable[Release]) -> tuple[float, float]:
    """Loss of one unit to all of the releases, and the probability with which it does not hold.

    Guarantee: rho of releases on the same devices adds up (zCDP), and so do local epsilons of the same typed word
    asked for in several launches (basic composition; delta 0, as discovery's messages have it), and probabilities of
    failure (union bound). A device of one split has nothing in releases of another one, so these compose in parallel.
    """
    amount, failure, _, _ = _added(counted)
    return amount, failure


def total_epsilon(counted: Iterable[Release], delta: float) -> float:
    """Epsilon at ``delta`` of one device over all of the releases, locally discovered words included.

    Guarantee: rho of noised releases adds up and becomes epsilon at ``delta`` less the messages' deltas and the
    failures; epsilons and deltas of messages join that by basic composition (Dwork and Roth 2014, theorem 3.16). Over
    splits and rules each of the four sums is taken as ``together`` takes it, so that no device loses more. Infinite
    where nothing of ``delta`` is left.
    """
    from federated.accounting.gaussian import epsilon_of_rho  # scipy is slow to import

    rho, failure, epsilon, spent = _added(counted)
    if not (rho >= 0 and math.isfinite(rho)):
        return math.nan  # ``append`` refuses the amount with a message of its own.
    left = delta - failure - spent
    if not rho:
        return epsilon if left >= 0 else math.inf
    return epsilon + epsilon_of_rho(rho, left) if left > 0 else math.inf


def _added(counted: Iterable[Release]) -> tuple[float, ...]:
    """Sums of amounts, failures, message epsilons and deltas: the largest split of each rule, added over rules."""
    parts: dict[str, dict[str, list[Release]]] = defaultdict(lambda: defaultdict(list))
    for release in counted:
        rule = "" if release.split == "every" else release.rule
        parts[rule][release.split if rule else ""].append(release)
    names = ("amount", "failure", "epsilon", "delta")
    return tuple(
        math.fsum(
            max(math.fsum(getattr(each, name) for each in part) for part in splits.values())
            for splits in parts.values()
        )
        for name in names
    )


def added(counted: Iterable[Release], delta: float | None) -> float:
    """Figure to compare with a ceiling: the sum of amounts or, at a ``delta``, epsilon over all releases."""
    return together(counted)[0] if delta is None else total_epsilon(counted, delta)


def total_spent(
    entries: Iterable[Entry], population: PopulationKey, unit: Unit, since: str = "", delta: float | None = None
) -> float:
    """Total loss on a population: rho of one device, epsilon of one item, or epsilon of one device at ``delta``.

    Args:
      since: leave out spends that were reserved before this time.
    """
    return added((each for each in releases(entries, population, unit) if each.written >= since), delta)


def most_in_any(counted: Collection[Release], days: int | None, delta: float | None = None) -> float:
    """Largest loss of one unit in any window of ``days`` days; None for all time."""
    if days is None:
        return added(counted, delta)
    span, windows = timedelta(days=days), []
    in_time = sorted(counted, key=attrgetter("written"))
    for last in {each.written for each in counted}:
        first = clock.written(datetime.fromisoformat(last) - span)
        begin = bisect_left(in_time, first, key=attrgetter("written"))
        end = bisect_right(in_time, last, key=attrgetter("written"))
        windows.append(added(in_time[begin:end], delta))
    return max(windows, default=0.0)
