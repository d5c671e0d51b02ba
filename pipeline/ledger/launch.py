"""What the ledger says of one launch: its population and what it may spend."""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from federated.config.population import Kept, PopulationKey
from pipeline import settings
from pipeline.config import LaunchConfig
from pipeline.errors import BudgetExceeded
from pipeline.ledger import clock
from pipeline.ledger.budget import Asked, Budget, Population, days_kept, require_no_more
from pipeline.ledger.entries import SPENDING, Entry

if TYPE_CHECKING:
    # It imports SQLAlchemy, which reading a launch file does without.
    from pipeline.ledger.ledger import PrivacyLedger

# As ``config.launch_id`` ends: a digest, and the date of a scheduled launch.
_DATED = re.compile(r"(.*)-[0-9a-f]{8}-([0-9]{8})")


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
    """Which text of a launch's population is kept; None where all is, as where it is nobody's.

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


def day_of(run_id: str) -> date | None:
    """The date that a launch's id ends with; None if it has none."""
    dated = _DATED.fullmatch(run_id)
    try:
        return None if dated is None else datetime.strptime(dated[2], "%Y%m%d").replace(tzinfo=UTC).date()
    except ValueError:
        return None


def require_once(entries: Iterable[Entry], population: PopulationKey, run_id: str) -> None:
    """See that no other launch of the same launch file and date has spent.

    Guarantee: a date of a schedule spends once, however often it is run, and whatever became of the launch file since:
    a changed file is another launch, which would lose the same devices as much again. What was given back does not
    count, and a person may launch it all the same, for another date.

    Raises:
      BudgetExceeded: one has.
    """
    dated = _DATED.fullmatch(run_id)
    standing = standing_spends(entries, population)
    if dated is None or any(launch_id == run_id for launch_id, _ in standing):
        return  # What has begun to spend goes on.
    for launch_id, stage in standing:
        other = _DATED.fullmatch(launch_id)
        if other is not None and other.groups() == dated.groups():
            raise BudgetExceeded(
                f"date: {dated[2]} of {dated[1]!r} was launched as {launch_id}, whose stage {stage!r} spent on "
                f"population {population!r}; the launch file changed since, so {run_id} would spend again for the same "
                "date. Launch it with a later date, or put the file back"
            )


def standing_spends(entries: Iterable[Entry], population: PopulationKey) -> list[tuple[str, str]]:
    """Launch and stage of everything that was spent on a population, or is reserved, and was not given back."""
    latest = {
        (entry.launch_id, entry.stage): entry.does
        for entry in entries
        if entry.population == population and entry.does in SPENDING
    }
    return [place for place, does in latest.items() if does != "release"]


def asked(config: LaunchConfig) -> Asked:
    """The ceilings that a launch file names."""
    policy = config.policy
    return Asked(
        rho=policy.population_max_rho,
        epsilon=policy.population_max_discovery_epsilon,
        window=policy.budget,
        total=policy.population_max_epsilon,
        delta=policy.population_delta,
    )
