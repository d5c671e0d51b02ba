"""Spends held against budgets, and against the stated total, a second time, from the entries of the ledger.

It shares nothing with the ledger's own sums and ceilings (``pipeline.ledger.loss``, ``budget``) nor with the
sums that both accountants start from (``pipeline.releases``), so that a fault there holds the launch.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from evaluation.audit.gaussian_dp import epsilon_of_mu
from pipeline.launch.config import LaunchConfig
from pipeline.launch.policy import PolicyConfig
from pipeline.ledger.entries import Entry

_SLACK = 1e-9  # for sums of decimals
_AGREEMENT = 1e-3  # of two accountants


class Paid(NamedTuple):
    """One stage of one launch: its commit, or its reservation without one, and the time of the reservation."""

    entry: Entry
    at: datetime

    def amount(self, name: str) -> float:
        """Rho or epsilon of words of one device, epsilon of one typed word, or delta beside the curve's."""
        entry, item = self.entry, self.entry.unit == "item"
        amounts = {"rho": entry.rho or 0.0, "delta": entry.failure + entry.device_delta}
        return (amounts | {"word": item * entry.epsilon, "words": item * entry.device_epsilon})[name]


def _standing(entries: Iterable[Entry]) -> list[Paid]:
    """Return what every stage paid and was not given back.

    Guarantee: where a clock was set back the later time counts.
    """
    paid, last = dict[tuple[str, str], Paid](), datetime.min.replace(tzinfo=UTC)
    for entry in entries:
        kind, stage = entry.kind.split()[0], (entry.launch_id, entry.stage)
        last = max(last, datetime.fromisoformat(entry.created_at))
        if kind == "release":
            paid.pop(stage, None)
        elif kind in ("reserve", "commit"):
            paid[stage] = Paid(entry, paid[stage].at if stage in paid else last)
    return list(paid.values())


def overspent(entries: Collection[Entry], launch_id: str, policy: PolicyConfig) -> Iterator[str]:
    """Yield ceilings that a launch passes in a window that ends with one of its spends, as messages.

    Guarantee: one device loses the sum over all split rules of its largest split; the ceilings are those of the last
    registered budget and of the launch file.

    Args:
      entries: of one population, in order.
    """
    paid, budget = _standing(entries), dict[str, Any]()
    for entry in entries:
        if entry.kind in ("register", "budget"):
            budget = entry.content["budget"]
    ends = {each.at for each in paid if each.entry.launch_id == launch_id}
    for name, amount, ceiling, days in _ceilings(budget, policy):
        most = max((_lost(paid, amount, end, days) for end in ends), default=0.0)
        if ceiling is not None and not most <= ceiling * (1 + _SLACK):
            yield f"{name}: {ceiling:g}, but a second sum of the entries gives {most:.6g}"


def _ceilings(budget: Mapping[str, Any], policy: PolicyConfig) -> Iterator[tuple[str, str, float | None, int | None]]:
    """Yield each ceiling with its ``Paid.amount`` and its days; None for all time."""
    days = budget.get("window_days")
    yield "registered max_rho", "rho", budget.get("max_rho"), days
    yield "registered lifetime_rho", "rho", budget.get("lifetime_rho"), None
    yield "registered max_discovery_epsilon", "word", budget.get("max_discovery_epsilon"), days
    yield "registered max_words_epsilon", "words", budget.get("max_words_epsilon"), days
    yield "half of registered delta", "delta", budget["delta"] / 2 if budget else None, days
    yield "policy.population_max_rho", "rho", policy.population_max_rho, None
    window = policy.budget
    if window is not None:
        yield "policy.budget.rho", "rho", window.rho, window.days
    days = None if window is None else window.days
    yield "policy.population_max_discovery_epsilon", "word", policy.population_max_discovery_epsilon, days
    yield "policy.population_max_words_epsilon", "words", policy.population_max_words_epsilon, days
    yield "half of policy.population_delta", "delta", policy.population_delta / 2, days


def _lost(paid: Iterable[Paid], amount: str, end: datetime, days: int | None) -> float:
    """Loss of one device, or one word, in the days before ``end``."""
    splits = defaultdict[str, defaultdict[str, float]](lambda: defaultdict(float))
    for each in paid:
        if each.at <= end and (days is None or each.at >= end - timedelta(days=days)):
            rule = each.entry.names("split_rule")
            splits[rule][each.entry.split if rule else ""] += each.amount(amount)
    return sum(max(rule.values()) for rule in splits.values())


def understated(entries: Collection[Entry], config: LaunchConfig, stated: float | None) -> Iterator[str]:
    """Yield a message if the stated total epsilon of a launch is below that of its own spends in the ledger.

    The probability that a threshold fails comes from the launch file, and the curve from the audits' own program.

    Args:
      entries: of the launch, in order. What it reuses of another launch, they lack, so only too little is found.
      stated: at the launch's delta; None, which the gate ``total`` holds, adds nothing.
    """
    central, least = config.central_discovery, 0.0
    for split in ("train", "test"):
        borne = [each.entry for each in _standing(entries) if each.entry.split == split]
        mu = math.sqrt(2 * math.fsum(entry.rho or 0.0 for entry in borne))
        left = config.mechanism.delta - (central.failure if central is not None and split == "train" else 0.0)
        words = [(entry.messages * entry.epsilon, 0.0) for entry in borne if entry.unit == "item"]
        words += [(entry.device_epsilon, entry.device_delta) for entry in borne if entry.device_delta]
        sums = [epsilon + epsilon_of_mu(mu, left - delta) for epsilon, delta in words or [(0.0, 0.0)]]
        least = max(least, min(sums))
    if stated is not None and stated < least * (1 - _AGREEMENT):
        yield f"total epsilon: stated {stated:.6g}, but a second sum of the launch's entries gives {least:.6g}"
