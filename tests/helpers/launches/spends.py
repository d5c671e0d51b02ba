"""Spends, and reservations of them, for tests of the ledger."""

from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.stage import Spend

BINDING = {"config": "c", "inputs": "i", "key": "k"}


def device(rho: float, note: str = "") -> Spend:
    return Spend(unit="device", adjacency="zero-out", rho=rho, epsilon=4 * rho, delta=1e-6, note=note)


def item(epsilon: float) -> Spend:
    return Spend(unit="item", adjacency="swap", rho=None, epsilon=epsilon, delta=0.0)


def reserve(ledger: PrivacyLedger, launch: str, spend: Spend, **changes: object) -> Entry:
    given = {
        "population": "people",
        "launch_id": launch,
        "stage": "fine_tune",
        "spend": spend,
        "budget_rho": 1.0,
        "binding": BINDING,
    }
    return ledger.reserve(**given | changes)
