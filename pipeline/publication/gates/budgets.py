"""Spends held against budgets, and against the stated total, a second time, from the entries of the ledger.

It shares nothing with the ledger's own sums and ceilings (``pipeline.ledger.loss``, ``room``, ``budget``) nor with the
sums that both accountants start from (``pipeline.releases``), so that a fault there holds the launch.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from evaluation.audit.gaussian_dp import epsilon_of_mu
from pipeline.launch.config import LaunchConfig
from pipeline.launch.policy import PolicyConfig
from pipeline.ledger.entries import Entry

_SLACK = 1e-9  # for sums of decimals
_AGREEMENT = 1e-3  # of two accountants


class Paid(NamedTuple):
    """Amounts of one stage of one launch: its reservation's, or those of the entry that replaced it."""

    rho: float
    word: float  # epsilon of one typed word
    words: float  # of one device
    delta: float
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
            item, delta = entry.unit == "item", bound["failure"] + bound["device_delta"]
            word, words = (entry.epsilon, bound["device_epsilon"]) if item else (0.0, 0.0)
            paid[stage] = Paid(entry.rho or 0.0, word, words, delta, began, devices)
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
            splits[each.devices[0]][each.devices[1]] += getattr(each, amount)
    return sum(max(rule.values()) for rule in splits.values())


def understated(entries: Iterable[Entry], config: LaunchConfig, stated: float | None) -> Iterator[str]:
    """Yield a message if the stated total epsilon of a launch is below that of its own spends in the ledger.

    The probability that a threshold fails comes from the launch file, and the curve from the audits' own program.

    Args:
      entries: of the launch, in order. What it reuses of another launch, they lack, so only too little is found.
      stated: at the launch's delta; None, which the gate ``total`` holds, adds nothing.
    """
    standing = dict[str, Entry]()
    for entry in entries:
        if entry.does in ("reserve", "commit"):
            standing[entry.stage] = entry
        elif entry.does == "release":
            standing.pop(entry.stage, None)
    central, least = config.central_discovery, 0.0
    for split in ("train", "test"):
        borne = [entry for entry in standing.values() if entry.split in (split, "every")]
        mu = math.sqrt(2 * math.fsum(entry.rho or 0.0 for entry in borne))
        left = config.mechanism.delta - (central.failure if central is not None and split == "train" else 0.0)
        words = [(entry.messages * entry.epsilon, 0.0) for entry in borne if entry.unit == "item"]
        words += [(entry.device_epsilon, entry.device_delta) for entry in borne if entry.device_delta]
        sums = [epsilon + epsilon_of_mu(mu, left - delta) for epsilon, delta in words or [(0.0, 0.0)]]
        least = max(least, min(sums))
    if stated is not None and stated < least * (1 - _AGREEMENT):
        yield f"total epsilon: stated {stated:.6g}, but a second sum of the launch's entries gives {least:.6g}"
