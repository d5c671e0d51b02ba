"""Spends of a population held against its budgets a second time, from the entries of the ledger.

It shares nothing with the ledger's own sums and ceilings (``pipeline.ledger.loss``, ``room``, ``budget``), so that a
fault there, which lets a spend through, holds the launch.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pipeline.launch.policy import PolicyConfig
from pipeline.ledger.entries import Entry

_SLACK = 1e-9  # for sums of decimals


class Paid(NamedTuple):
    """Amounts of one stage of one launch: its reservation's, or those of the entry that replaced it."""

    rho: float
    word: float  # epsilon of one typed word
    at: datetime
    devices: tuple[str, str]  # rule and split that bear the loss


def overspent(entries: Iterable[Entry], launch_id: str, policy: PolicyConfig) -> Iterator[str]:
    """Yield ceilings that a launch passes in a window that ends with one of its spends, as messages.

    Guarantee: one device loses the sum over all split rules of its largest split; the ceilings are those of the last
    registered budget and of the launch file.

    Args:
      entries: of one population, in order.
    """
    budget, paid = dict[str, Any](), dict[tuple[str, str], Paid]()
    last = datetime.min.replace(tzinfo=UTC)
    for entry in entries:
        kind, bound = entry.kind.split()[0], entry.content
        last = max(last, datetime.fromisoformat(entry.created_at))
        if kind in ("register", "budget"):
            budget = bound["budget"]
        if kind in ("reserve", "commit", "release"):
            stage = (entry.launch_id, entry.stage)
            began = last if kind == "reserve" else paid[stage].at
            everybody = bound["split"] == "every" or not bound.get("split_rule")
            devices = ("", "") if everybody else (bound["split_rule"], bound["split"])
            word = entry.epsilon if entry.unit == "item" else 0.0
            paid[stage] = Paid(entry.rho or 0.0, word, began, devices)
    ends = {each.at for (launch, _), each in paid.items() if launch == launch_id}
    for name, amount, ceiling, days in _ceilings(budget, policy):
        most = max((_lost(paid.values(), amount, end, days) for end in ends), default=0.0)
        if ceiling is not None and not most <= ceiling * (1 + _SLACK):
            yield f"{name}: {ceiling:g}, but a second sum of the entries gives {most:.6g}"


def _ceilings(budget: Mapping[str, Any], policy: PolicyConfig) -> Iterator[tuple[str, str, float | None, int | None]]:
    """Yield each ceiling with its field of ``Paid`` and its days; None for all time."""
    days = budget.get("window_days")
    yield "registered max_rho", "rho", budget.get("max_rho"), days
    yield "registered lifetime_rho", "rho", budget.get("lifetime_rho"), None
    yield "registered max_discovery_epsilon", "word", budget.get("max_discovery_epsilon"), days
    yield "policy.population_max_rho", "rho", policy.population_max_rho, None
    window = policy.budget
    if window is not None:
        yield "policy.budget.rho", "rho", window.rho, window.days
    word = policy.population_max_discovery_epsilon
    yield "policy.population_max_discovery_epsilon", "word", word, None if window is None else window.days


def _lost(paid: Iterable[Paid], amount: str, end: datetime, days: int | None) -> float:
    """Loss of one device, or one word, in the days before ``end``."""
    splits = defaultdict[str, defaultdict[str, float]](lambda: defaultdict(float))
    for each in paid:
        if each.at <= end and (days is None or each.at >= end - timedelta(days=days)):
            splits[each.devices[0]][each.devices[1]] += getattr(each, amount)
    return sum(max(rule.values()) for rule in splits.values())
