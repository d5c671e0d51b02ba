"""Spends, and reservations of them, for tests of the ledger."""

from pipeline.ledger.budget import Budget, Ceilings
from pipeline.ledger.entries import Entry, Spend
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.loss import Unit
from pipeline.ledger.statement import remainders

BINDING = {"config": "c", "inputs": "i", "seeded_key": "k"}


def device(rho: float, note: str = "") -> Spend:
    return Spend(unit="device", adjacency="zero-out", rho=rho, epsilon=4 * rho, delta=1e-6, note=note)


def item(epsilon: float) -> Spend:
    beside = {"messages": 2, "device_epsilon": 2 * epsilon}
    return Spend(unit="item", adjacency="swap", rho=None, epsilon=epsilon, delta=0.0, **beside if epsilon else {})


def reserve(ledger: PrivacyLedger, launch: str, spend: Spend, **changes: object) -> Entry:
    given = {
        "population": "people",
        "launch_id": launch,
        "stage": "fine_tune",
        "spend": spend,
        "binding": BINDING,
    }
    ceilings = {"budget_rho": 1.0, "budget_discovery_epsilon": None, "window": None, "delta": 0.1} | changes
    names = ("budget_rho", "budget_discovery_epsilon", "window", "delta")
    rho, epsilon, window, delta = (ceilings.pop(name) for name in names)
    return ledger.reserve(
        **{
            "asked": Ceilings(rho, epsilon, *(window or (None, None)), delta=delta if window else None),
            **given,
            **ceilings,
        }
    )


def counted(ledger: PrivacyLedger, unit: Unit) -> float:
    """The spends that count now against the budget of the population ``people``."""
    return next(each.spent for each in remainders(ledger.entries("people")) if each.unit == unit)


def budget(max_rho: float, **more: object) -> Budget:
    """A budget of which rho alone is ever short."""
    return Budget.model_validate({"max_rho": max_rho, "max_words_epsilon": 1e6, "delta": 0.1} | more)
