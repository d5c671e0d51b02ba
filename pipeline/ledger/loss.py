"""Privacy loss of one device, or one typed word, from the releases in a ledger.

A device is in one split of a population for as long as the split rule stays the same (``Population.split_rule``), so it
loses to the releases of one split only: under one rule the largest split counts. Losses of different rules add up, as a
device may have been in either split. A release that names no rule adds to all splits. Sums of different units are never
added: each has a ceiling of its own.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Literal

from federated.config.population import PopulationKey
from pipeline.ground import clock
from pipeline.ground.errors import LedgerTampered
from pipeline.ledger.entries import SPLIT_RULE, Entry, Spend, is_amount

# Unit of a sum: rho of a device, epsilon of an item (a typed word), epsilon of a device to its messages about items, or
# the probability that these do not hold: failures of noised releases and deltas of messages.
Unit = Literal["device", "item", "words", "delta"]
# Units of the sums that a spend on a device, or on items, adds to.
ADDS_TO: Mapping[str, tuple[Unit, ...]] = {"device": ("device", "delta"), "item": ("item", "words", "delta")}


@dataclass(frozen=True)
class Release:
    """One release, as loss sums count it.

    Attributes:
      amount: in the unit of the sum.
      written: time of the reservation, in the format of entries; no earlier than that of any release before it.
      rule, split: the devices that bear the loss; without a rule, all devices.
    """

    amount: float
    written: str
    rule: str
    split: str


def release_of(spend: Spend, unit: Unit, rule: str, written: str = "") -> Release:
    """Convert a spend to a release of ``unit``."""
    return Release(_amount(spend, unit), written, rule, spend.split)


def _amount(spend: Spend | Entry, unit: Unit) -> float:
    amounts: dict[Unit, float | None] = {
        "device": spend.rho,
        "item": spend.epsilon,
        "words": spend.device_epsilon,
        "delta": spend.failure + spend.device_delta,
    }
    return (amounts[unit] or 0.0) if unit in ADDS_TO[spend.unit] else 0.0


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
        if entry.population != population or unit not in ADDS_TO.get(entry.unit, ()):
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
        latest[place] = Release(_amount(entry, unit), written, entry.names(SPLIT_RULE), entry.split)
    return list(latest.values())


def added(counted: Iterable[Release]) -> float:
    """Sum of releases, as one device, or one typed word, bears it: the largest split of each rule, added over rules.

    Guarantee: rho of releases on the same devices adds up (zCDP), so do epsilons and deltas of messages (basic
    composition) and probabilities of failure (union bound). A device of one split has nothing in releases of another
    one, so these compose in parallel.
    """
    parts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for release in counted:
        parts[release.rule][release.split if release.rule else ""].append(release.amount)
    return math.fsum(max(map(math.fsum, splits.values())) for splits in parts.values())


def most_in_any(counted: Collection[Release], days: int | None) -> float:
    """Largest loss of one unit in any window of ``days`` days; None for all time."""
    if days is None:
        return added(counted)
    span, windows = timedelta(days=days), []
    in_time = sorted(counted, key=attrgetter("written"))
    for last in {each.written for each in counted}:
        first = clock.written(datetime.fromisoformat(last) - span)
        begin = bisect_left(in_time, first, key=attrgetter("written"))
        end = bisect_right(in_time, last, key=attrgetter("written"))
        windows.append(added(in_time[begin:end]))
    return max(windows, default=0.0)
