"""A population as the ledger knows it: its budget, who may change that, and what may be asked of it."""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from federated.config.population import VALIDATION_FRACTION
from pipeline.errors import BudgetExceeded, PopulationUnknown
from pipeline.ledger.entries import Entry, canonical

# Goes up when ``federated.devices.store`` splits otherwise.
_SPLIT_RULE = "tacit split 1"
Finite = Annotated[PositiveFloat, Field(allow_inf_nan=False)]


class Budget(BaseModel):
    """What all launches on a population may spend together.

    Attributes:
      max_rho: device-level.
      max_discovery_epsilon: item-level; None for no ceiling.
      window_days: what is older no longer counts; None where everything counts for ever.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_rho: Finite
    max_discovery_epsilon: Finite | None = None
    window_days: Annotated[int, Field(ge=1, le=36_500)] | None = None


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


def require_no_more(population: Population, asked_rho: float, asked_epsilon: float | None) -> Budget:
    """The ceilings a launch gets: its own, which may only be lower than the population's.

    Raises:
      BudgetExceeded: the launch file names a higher ceiling.
    """
    budget = population.budget
    for asked, ceiling, field, option in (
        (asked_rho, budget.max_rho, "policy.population_max_rho", "--max-rho"),
        (
            asked_epsilon,
            budget.max_discovery_epsilon,
            "policy.population_max_discovery_epsilon",
            "--max-discovery-epsilon",
        ),
    ):
        if asked is not None and ceiling is not None and asked > ceiling:
            raise BudgetExceeded(
                f"{field}: {asked:g} is more than population {population.name!r} was registered with ({ceiling:g}), "
                f"and a launch can only ask for less; lower it, or let {' or '.join(population.raised_by)} change the "
                f"budget: tacit ledger budget {population.name} {option} {asked:g} --reason ..."
            )
    least = budget.max_discovery_epsilon if asked_epsilon is None else asked_epsilon
    return Budget(max_rho=asked_rho, max_discovery_epsilon=least, window_days=budget.window_days)


def since(budget: Budget) -> str:
    """The time before which spends no longer count, as entries write times; empty if all count."""
    if budget.window_days is None:
        return ""
    return (datetime.now(UTC) - timedelta(days=budget.window_days)).isoformat(timespec="microseconds")
