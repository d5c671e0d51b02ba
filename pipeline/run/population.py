"""A launch file's population in the ledger: its registration, its ceilings, and its text retention.

Before a launch reads text, it writes the retention window into its private folder, beside the text, so that the text
expires even if the launch's records, its launch file or the ledger are lost.
"""

import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from federated.config.population import Retention
from federated.devices.withdrawals import Withdrawals
from pipeline.ground import clock, settings
from pipeline.ground.clock import day_of
from pipeline.ground.errors import BudgetExceeded, LaunchError, RulesBroken
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.budget import Budget, Ceilings, Population, days_kept, require_no_more
from pipeline.run.bookkeeping import WINDOW
from pipeline.run.run_dir import RunDir
from pretrain.files import PRIVATE, write_text

if TYPE_CHECKING:
    # It imports SQLAlchemy, which reading a launch file does not need.
    from pipeline.ledger.ledger import PrivacyLedger

_STAGE = "ingest_private"


def register_simulation(config: LaunchConfig, ledger: "PrivacyLedger") -> None:
    """Register a built-in simulation with the ceilings of its first launch file.

    Guarantee: a launch file registers no other population: a person registers people, and files declared as made up.
    """
    policy = config.policy
    if not config.private_text.registers_itself or ledger.registered(config.population):
        return
    window, lifetime = policy.budget, policy.population_max_rho
    budget = Budget(
        max_rho=window.rho if window else lifetime,
        max_words_epsilon=policy.population_max_words_epsilon or 0.0,
        delta=policy.population_delta,
        max_discovery_epsilon=policy.population_max_discovery_epsilon,
        window_days=window.days if window else None,
        lifetime_rho=lifetime if window else None,
    )
    ledger.register(config.population, budget, by=f"launch file {config.name}", raised_by=(settings.account(),))


def require_population(config: LaunchConfig, ledger: "PrivacyLedger") -> Population:
    """Return the launch's registered population, after checking that the launch file asks for no more than its budget.

    Raises:
      PopulationUnknown: it is not registered, and is no built-in simulation.
      BudgetExceeded: the launch file names a higher ceiling.
    """
    register_simulation(config, ledger)
    population = ledger.population(config.population)
    require_no_more(population, asked(config))
    return population


def require_allowed(config: LaunchConfig, population: Population) -> None:
    """Check that a launch file asks for no more than its population's budget, and is not below its rules.

    Guarantee: a launch of the population has a gate for each registered bound, as strict or stricter, and at least the
    registered number of approvals, by registered reviewers.

    Raises:
      BudgetExceeded: the launch file names a higher ceiling.
      RulesBroken: it names fewer approvals, other reviewers, or a looser gate.
    """
    require_no_more(population, asked(config))
    rules, policy = population.rules, config.policy
    named = {name.casefold() for name in config.reviewers}
    allowed = {name.casefold() for name in rules.reviewers}
    least, wrong = f"at least {rules.min_approvals}", list[tuple[str, object, str]]()
    wrong += [
        ("reviewers", name, f"one of {', '.join(rules.reviewers)}") for name in sorted(named - allowed) if allowed
    ]
    if len(named) < rules.min_approvals:
        wrong.append(("reviewers", len(named), f"{least} of {', '.join(rules.reviewers) or 'them'}"))
    if policy.approvals < rules.min_approvals:
        wrong.append(("policy.approvals", policy.approvals, least))
    for name, bound in rules.gates.items():
        value = getattr(policy, name, None)
        if name.startswith("max_"):  # One that a launch file leaves out bounds what its launch does not do.
            loose, limit = value is not None and value > bound, "at most"
        else:
            loose, limit = value is None or value < bound, "at least"
        wrong += [(f"policy.{name}", value, f"{limit} {bound:g}")] if loose else []
    if wrong:
        field, value, needed = wrong[0]
        raise RulesBroken(
            f"{field}: {value}, and population {population.key!r} is registered with {needed}, which no launch file "
            f"may loosen; correct it, or let {' or '.join(population.raised_by)} change the registration: "
            f"tacit ledger budget {population.key} ... --reason ..."
        )


def kept(config: LaunchConfig, population: Population, run_id: str, before: str | None = None) -> Retention | None:
    """Retention window of the population's text for a launch; None without a limit, as for simulated text.

    Args:
      before: the last day of the launch's text, if already fixed; by default the date of its id, or today.

    Raises:
      BudgetExceeded: the launch's date is so long ago that all of its text has expired.
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
    return Retention(days, as_of, now)


def asked(config: LaunchConfig) -> Ceilings:
    """Return the ceilings that a launch file names."""
    policy, window = config.policy, config.policy.budget
    return Ceilings(
        rho=policy.population_max_rho,
        epsilon=policy.population_max_discovery_epsilon,
        window_rho=window.rho if window else None,
        days=window.days if window else None,
        words=policy.population_max_words_epsilon,
        delta=policy.population_delta,
    )


@dataclass(frozen=True)
class TextWindow:
    """Retention window of a launch's text.

    Attributes:
      days: None for no limit, as for simulated text.
      as_of: the last day of the text.
      withdrawn: digest of the devices that were excluded.
    """

    days: int | None
    as_of: date | None
    withdrawn: str = ""

    @property
    def ends(self) -> datetime | None:
        """Time by which the text must be erased; None without a limit."""
        if self.days is None or self.as_of is None:
            return None
        return clock.start_of(self.as_of.isoformat()) + timedelta(days=self.days + 1)

    @property
    def is_over(self) -> bool:
        """True if the text must be erased by now."""
        return self.ends is not None and clock.now() >= self.ends


FOR_EVER = TextWindow(None, None)


def write_window(run: RunDir, retention: Retention | None, withdrawn: Withdrawals) -> None:
    """Write the retention window of a launch's text, and the digest of excluded devices; overwrites an older one."""
    days, as_of = (retention.days, retention.as_of.isoformat()) if retention else (None, None)
    content = {"days": days, "as_of": as_of, "withdrawn": withdrawn.digest}
    write_text(run.private(_STAGE) / WINDOW, json.dumps(content), PRIVATE)


def read_window(run: RunDir) -> TextWindow | None:
    """Read the retention window beside the text; None if it is missing or unreadable."""
    try:
        content = json.loads((run.path / "private" / _STAGE / WINDOW).read_text(encoding="utf-8"))
        return _window(content["days"], content["as_of"], str(content["withdrawn"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def recorded_window(run: RunDir) -> TextWindow | None:
    """Retention window in the record of stage ``ingest_private``; None if no such record counts."""
    try:
        record = run.record(_STAGE)
        return None if record is None else _window(record.result["days_kept"], record.result["as_of"])
    except (LaunchError, OSError, ValueError, LookupError, TypeError):
        return None


def _window(days: int | None, as_of: str | None, withdrawn: str = "") -> TextWindow:
    last = None if as_of is None else date.fromisoformat(as_of)
    return TextWindow(None if days is None else int(days), last, withdrawn)
