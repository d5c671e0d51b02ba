"""Population of a launch file as the ledger knows it: its registration, its ceilings, and how long its text is kept."""

from datetime import date, timedelta
from typing import TYPE_CHECKING

from federated.config.population import Kept
from pipeline.ground import settings
from pipeline.ground.errors import BudgetExceeded
from pipeline.launch.config import LaunchConfig
from pipeline.ledger import clock
from pipeline.ledger.budget import Asked, Budget, Population, Window, days_kept, require_no_more
from pipeline.ledger.dates import day_of

if TYPE_CHECKING:
    # It imports SQLAlchemy, which reading a launch file does without.
    from pipeline.ledger.ledger import PrivacyLedger


def register_simulation(config: LaunchConfig, ledger: "PrivacyLedger") -> None:
    """Register a simulation of ours with its first launch file's ceilings.

    Guarantee: a launch file makes no other population: people, and files that are said to be made up, are registered
    by a person.
    """
    policy = config.policy
    if not config.private_text.registers_itself or ledger.registered(config.population):
        return
    window, lifetime = policy.budget, policy.population_max_rho
    budget = Budget(
        max_rho=window.rho if window else lifetime,
        max_epsilon=window.epsilon if window else policy.population_max_epsilon,
        delta=policy.population_delta,
        max_discovery_epsilon=policy.population_max_discovery_epsilon,
        window_days=window.days if window else None,
        lifetime_rho=lifetime if window else None,
        lifetime_epsilon=policy.population_max_epsilon if window else None,
    )
    ledger.register(config.population, budget, by=f"launch file {config.name}", raised_by=(settings.account(),))


def require_population(config: LaunchConfig, ledger: "PrivacyLedger") -> Population:
    """The launch's population, registered, and asked for no more than its budget.

    Raises:
      PopulationUnknown: nobody registered it, and it does not register itself.
      BudgetExceeded: the launch file names a higher ceiling.
    """
    register_simulation(config, ledger)
    population = ledger.population(config.population)
    require_no_more(population, asked(config))
    return population


def kept(config: LaunchConfig, population: Population, run_id: str, before: str | None = None) -> Kept | None:
    """Retention window of the population's text for a launch; None where all is, as where it is nobody's.

    Args:
      before: the day that the launch's text was cut by already; by default that of its id, or today.

    Raises:
      BudgetExceeded: the launch's day is so long ago that all of its text is to be deleted.
    """
    days = days_kept(population, asked(config))
    if days is None:
        return None
    now = clock.now()
    as_of = date.fromisoformat(before) if before else day_of(run_id) or now.date()
    if now.date() - as_of > timedelta(days=days):
        raise BudgetExceeded(
            f"date: {as_of} is more than {days} days ago, and text of population {population.key!r} is kept no longer "
            "(policy.budget.days, or the window it was registered with); launch with a later date"
        )
    return Kept(days, as_of, now)


def asked(config: LaunchConfig) -> Asked:
    """The ceilings that a launch file names."""
    policy = config.policy
    return Asked(
        rho=policy.population_max_rho,
        epsilon=policy.population_max_discovery_epsilon,
        window=Window(**policy.budget.model_dump()) if policy.budget else None,
        total=policy.population_max_epsilon,
        delta=policy.population_delta,
    )
