"""A home as `tacit ledger init` and `tacit ledger register` leave it."""

from pathlib import Path

from pipeline.ledger.budget import Budget
from pipeline.ledger.ledger import PrivacyLedger

AMPLE = 1e6


def installed(home: Path, *people: str, simulated: bool = False, budget: float = AMPLE) -> PrivacyLedger:
    """The ledger of a home with these populations in it."""
    ledger = PrivacyLedger.create(f"sqlite:///{home / 'runs' / 'ledger.db'}")
    registered(ledger, *people, simulated=simulated, budget=budget)
    return ledger


def registered(ledger: PrivacyLedger, *people: str, simulated: bool = False, budget: float = AMPLE) -> PrivacyLedger:
    """The same ledger with these populations in it."""
    for name in people:
        ledger.register(name, Budget(max_rho=budget), "tests", simulated=simulated)
    return ledger
