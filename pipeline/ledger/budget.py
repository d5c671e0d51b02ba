"""A population as the ledger knows it: its budget, who may change that, and what may be asked of it."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, SerializerFunctionWrapHandler, model_serializer

from federated.config.population import VALIDATION_FRACTION
from pipeline.errors import BudgetExceeded, PermanentError, PopulationUnknown
from pipeline.ledger import clock
from pipeline.ledger.entries import NO_UNIT, Entry, canonical
from pipeline.ledger.loss import Unit
from pipeline.ledger.room import Ceiling
from pipeline.policy.config import MOST_DAYS, BudgetConfig

# Goes up when ``federated.devices.store`` splits otherwise.
_SPLIT_RULE = "tacit split 1"
# Longer than a yearly schedule leaves a population alone.
_REST = timedelta(days=400)
Finite = Annotated[PositiveFloat, Field(allow_inf_nan=False)]


class Budget(BaseModel):
    """What all launches on a population may spend together.

    Attributes:
      max_rho: device-level, of one device.
      max_discovery_epsilon: item-level, of one typed word; None for no ceiling.
      window_days: both hold in any so many days, and text is kept no longer; None where everything counts for ever.
      lifetime_rho: of one device for ever, beside a window; None for no such ceiling.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_rho: Finite
    max_discovery_epsilon: Finite | None = None
    window_days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = None
    lifetime_rho: Finite | None = None

    @model_serializer(mode="wrap")
    def _as_before_without_one(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if name != "lifetime_rho" or value is not None}


class Population(BaseModel):
    """A registered population.

    Attributes:
      raised_by: accounts of the operating system that may change the budget.
      secret_digest: SHA-256 of the split secret, so that another one cannot take its place.
      registered_by: the account, or the launch file of a simulation.
      simulated: its text is public or made up, nobody's; only then may noise be seeded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    budget: Budget
    raised_by: tuple[str, ...]
    registered_by: str
    secret_digest: str
    simulated: bool = False

    def split_rule(self, test_fraction: float) -> str:
        """The version of the rule by which its devices are split: what decides it, as a digest.

        Guarantee: under one version a device is in one split for ever (``federated.devices.store``): the split is a
        function of its id, of a key made from name and secret, and of the two fractions.
        """
        decides = [_SPLIT_RULE, self.name, self.secret_digest, test_fraction, VALIDATION_FRACTION]
        return hashlib.sha256(canonical(decides).encode()).hexdigest()[:16]


def registered(entries: Iterable[Entry], name: str) -> Population | None:
    """A population with its latest budget; None if nobody registered it."""
    population = None
    for entry in entries:
        if entry.population != name:
            continue
        if entry.kind == "register":
            population = Population.model_validate(json.loads(entry.binding))
        elif entry.kind == "budget" and population is not None:
            budget = Budget.model_validate(json.loads(entry.binding)["budget"])
            population = population.model_copy(update={"budget": budget})
    return population


def require_registered(entries: Iterable[Entry], name: str) -> Population:
    """The population.

    Raises:
      PopulationUnknown: nobody registered it.
    """
    population = registered(entries, name)
    if population is None:
        raise PopulationUnknown(
            f"population {name!r}: not registered in this ledger, so it has no budget. Whoever answers for these "
            f"people decides what all launches together may spend: tacit ledger register {name} --max-rho ... "
            "--max-discovery-epsilon ..."
        )
    return population


def require_clock(entries: Iterable[Entry], name: str) -> None:
    """See that the clock is not far beyond what was last spent on a population, or written of it by a person.

    Guarantee: a spend counts from no earlier than those before it (``loss.releases``), and nothing takes an entry back,
    so one that was written under a clock years ahead would fill the window until then. Simulations are nobody's.

    Raises:
      PermanentError: it is, and nobody who may change the budget has written anything since.
    """
    entries = list(entries)
    population = registered(entries, name)
    if population is None or population.simulated:
        return
    last = max(
        entry.created_at
        for entry in entries
        if entry.population == name and (entry.unit != NO_UNIT or entry.kind in ("register", "budget"))
    )
    if clock.now() - datetime.fromisoformat(last) > _REST:
        raise PermanentError(
            f"the clock of this machine says {clock.now().date()}, and the last spend or budget of population {name!r} "
            f"is of {last[:10]}; put the clock right or, if it is right, let {' or '.join(population.raised_by)} say "
            f"so first: tacit ledger budget {name} --max-rho {population.budget.max_rho:g} --reason ..."
        )


@dataclass(frozen=True)
class Asked:
    """The ceilings that a launch file names itself.

    Attributes:
      rho: of one device over all launches there ever were (``policy.population_max_rho``).
      epsilon: of one typed word (``policy.population_max_discovery_epsilon``).
      window: of one device in any so many days (``policy.budget``). Text older than that is deleted, so what a typed
        word loses is what it loses in such a window too.
    """

    rho: float | None = None
    epsilon: float | None = None
    window: BudgetConfig | None = None

    @property
    def days(self) -> int | None:
        return self.window.days if self.window else None

    @property
    def window_rho(self) -> float | None:
        return self.window.rho if self.window else None


def require_no_more(population: Population, asked: Asked) -> None:
    """See that a launch asks for no more than its population may lose.

    Raises:
      BudgetExceeded: the launch file names a higher ceiling.
    """
    budget = population.budget
    # A ceiling for ever is compared with one for ever; beside a window there may be none.
    lifetime = budget.lifetime_rho if budget.window_days else budget.max_rho
    for asked_for, ceiling, field, option in (
        (asked.rho, lifetime, "policy.population_max_rho", "--lifetime-rho" if budget.window_days else "--max-rho"),
        (asked.window_rho, budget.max_rho, "policy.budget.rho", "--max-rho"),
        (
            asked.epsilon,
            budget.max_discovery_epsilon,
            "policy.population_max_discovery_epsilon",
            "--max-discovery-epsilon",
        ),
    ):
        if asked_for is not None and ceiling is not None and asked_for > ceiling:
            raise BudgetExceeded(
                f"{field}: {asked_for:g} is more than population {population.name!r} was registered with "
                f"({ceiling:g}), and a launch can only ask for less; lower it, or let "
                f"{' or '.join(population.raised_by)} change the budget: tacit ledger budget {population.name} "
                f"{option} {asked_for:g} --reason ..."
            )


def ceilings(population: Population | None, asked: Asked, unit: Unit) -> tuple[Ceiling, ...]:
    """All that bounds what one unit loses: what the launch asks for, and what its population was registered with."""
    named: list[tuple[float | None, int | None, str]]
    if unit == "item":
        named = [(asked.epsilon, asked.days, "policy.population_max_discovery_epsilon")]
    else:
        named = [(asked.rho, None, "policy.population_max_rho"), (asked.window_rho, asked.days, "policy.budget")]
    if population is not None:
        budget, remedy = population.budget, f"tacit ledger budget {population.name}"
        most = budget.max_discovery_epsilon if unit == "item" else budget.max_rho
        named += [(most, budget.window_days, remedy), (None if unit == "item" else budget.lifetime_rho, None, remedy)]
    return tuple(Ceiling(amount, days, field) for amount, days, field in named if amount is not None)


def days_kept(population: Population, asked: Asked) -> int | None:
    """How many days what people typed is kept: as long as the shorter window; None for ever, and for what is nobody's.

    A window of the ledger says something of a device only if what it typed before is gone.
    """
    windows = [days for days in (population.budget.window_days, asked.days) if days is not None]
    return None if population.simulated else min(windows, default=None)
