"""What the ledger says of one launch: its population and what it may spend."""

from pipeline import settings
from pipeline.config import SIMULATIONS, LaunchConfig
from pipeline.ledger.budget import Budget, Population, require_no_more
from pipeline.ledger.ledger import PrivacyLedger


def register_simulation(config: LaunchConfig, ledger: PrivacyLedger) -> None:
    """Register a simulated population with its first launch file's ceilings; people are registered by people."""
    population, policy = config.private_text, config.policy
    if population.source not in SIMULATIONS or ledger.registered(population.name):
        return
    budget = Budget(max_rho=policy.population_max_rho, max_discovery_epsilon=policy.population_max_discovery_epsilon)
    ledger.register(
        population.name, budget, by=f"launch file {config.name}", raised_by=(settings.account(),), simulated=True
    )


def require_population(config: LaunchConfig, ledger: PrivacyLedger) -> Population:
    """The launch's population, registered, and asked for no more than its budget.

    Raises:
      PopulationUnknown: nobody registered it, and it is no simulation.
      BudgetExceeded: the launch file names a higher ceiling.
    """
    register_simulation(config, ledger)
    population = ledger.population(config.private_text.name)
    require_no_more(population, config.policy.population_max_rho, config.policy.population_max_discovery_epsilon)
    return population
