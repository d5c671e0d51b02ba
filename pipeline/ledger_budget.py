"""What a population has spent, and whether there is room for more. Devices and items are never added."""

import math
from collections.abc import Iterable
from typing import Literal

from pipeline.errors import BudgetExceeded
from pipeline.ledger.entries import Entry
from pipeline.stage import Spend

# Sums of budgets typed as decimals (0.1 + 0.2 against 0.3) must not be refused for their last bit.
_ROUNDING = 1e-12


def total(entries: Iterable[Entry], population: str, unit: Literal["device", "item"]) -> float:
    """Sum over one unit: rho of devices, or epsilon of items.

    Guarantee: rho of launches on the same devices adds up (zCDP), and so do local epsilons of the same
    typed word asked for in several launches (basic composition). The latter holds for delta 0, as
    discovery's messages have it.

    Args:
      entries: in order, so that a commit comes after its reservation and replaces it.
    """
    amounts: dict[tuple[str, str], float] = {}
    for entry in entries:
        if entry.population == population and entry.unit == unit:
            amounts[entry.launch_id, entry.stage] = entry.rho if unit == "device" else entry.epsilon
    return math.fsum(amounts.values())


def require_room(
    entries: Iterable[Entry], population: str, launch_id: str, spend: Spend, ceiling: float | None
) -> None:
    """See that a spend fits under the ceiling on its unit; None is no ceiling.

    Raises:
      BudgetExceeded: it does not; the numbers and the fix are in the message.
    """
    if ceiling is None:
        return
    spent = total(entries, population, spend.unit)
    if spend.unit == "device":
        needed, name, policy = spend.rho, "rho", "policy.population_max_rho"
        advice = "more noise, fewer rounds, larger min_sep"
    else:
        needed, name, policy = spend.epsilon, "epsilon per typed word", "policy.population_max_discovery_epsilon"
        advice = "smaller discovery.epsilon0, or fewer launches that discover words"
    if spent + needed > ceiling * (1 + _ROUNDING):
        raise BudgetExceeded(
            f"population {population!r}: launch {launch_id!r} needs {name} {needed:.6g}, {spent:.6g} of {ceiling:.6g} "
            f"is spent and {max(ceiling - spent, 0):.6g} is left; plan a smaller spend ({advice}) or have the "
            f"population's budget ({policy}) reviewed"
        )
