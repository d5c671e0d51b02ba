"""Spends of a launch, and the remaining budget of its population."""

from collections.abc import Iterable
from dataclasses import dataclass

from federated.config.population import PopulationKey
from pipeline.ledger import clock
from pipeline.ledger.budget import Ceilings, ceilings, registered
from pipeline.ledger.entries import SPENDING, Entry
from pipeline.ledger.loss import Unit, total_spent
from pipeline.ledger.room import NAMES


@dataclass(frozen=True)
class Remainder:
    """Remaining budget of one unit of a population.

    Attributes:
      days: length of the ceiling's window; None for all time.
    """

    population: PopulationKey
    unit: Unit
    amount: float
    spent: float
    days: int | None
    left: float

    def __str__(self) -> str:
        within = f" in any {self.days} days" if self.days else ""
        return f"{NAMES[self.unit]} {self.left:.4g} of {self.amount:g}{within}"


def remainders(entries: Iterable[Entry], names: Iterable[PopulationKey] | None = None) -> tuple[Remainder, ...]:
    """Return what is left under every ceiling of the registered budgets.

    Args:
      names: keys of populations; by default all that are registered.
    """
    entries, rows = list(entries), list[Remainder]()
    wanted = [entry.population for entry in entries if entry.kind == "register"] if names is None else list(names)
    for name in wanted:
        population = registered(entries, name)
        for ceiling in ceilings(population, Ceilings()) if population else ():
            if ceiling.unit == "delta" or not ceiling.amount:
                continue
            spent = total_spent(entries, name, ceiling.unit, clock.counts_since(ceiling.days))
            left = max(ceiling.amount - spent, 0.0)
            rows.append(Remainder(name, ceiling.unit, ceiling.amount, spent, ceiling.days, left))
    return tuple(rows)


@dataclass(frozen=True)
class StageSpend:
    """Spend of one stage of a launch: its reservation until the stage has ended, then its commit."""

    stage: str
    unit: str
    amount: float
    kind: str

    def __str__(self) -> str:
        unit: Unit = "device" if self.unit == "device" else "item"
        return f"{NAMES[unit]} {self.amount:.6g} by {self.stage}" + (", reserved" if self.kind == "reserve" else "")


def spent_by(run_id: str, entries: Iterable[Entry]) -> tuple[StageSpend, ...]:
    """List a launch's own spends, stage by stage; results reused from another launch cost nothing."""
    latest = {
        entry.stage: StageSpend(entry.stage, entry.unit, entry.epsilon if entry.rho is None else entry.rho, entry.does)
        for entry in entries
        if entry.launch_id == run_id and entry.does in SPENDING
    }
    return tuple(spent for spent in latest.values() if spent.kind != "release")
