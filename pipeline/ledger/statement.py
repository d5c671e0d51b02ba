"""Results of the ledger commands: create it once, state its spends by population, and check it."""

from collections.abc import Mapping
from dataclasses import dataclass

from federated.config.population import PopulationKey, population_key
from pipeline.ground.errors import LedgerMissing, PopulationUnknown
from pipeline.ground.settings import Settings
from pipeline.ledger.database import missing
from pipeline.ledger.entries import NO_UNIT, Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.log.tiles import Log
from pretrain.reading.paths import shown

ONE_LEDGER = (
    "It counts what is spent through it alone: another installation on the same people spends a budget of its own, and "
    "only a witness that somebody else keeps (TACIT_WITNESS) notices a ledger that is put back to an older state."
)


@dataclass(frozen=True)
class Creation:
    """The ledger of an installation, and whether this call created it.

    Attributes:
      entries: number of its entries.
    """

    ledger: str
    made: bool
    entries: int


@dataclass(frozen=True)
class WindowSpend:
    """Spend of one device of a population in the current window, and the largest in any window so far."""

    population: PopulationKey
    days: int
    max_rho: float
    rho: float
    most_rho: float
    max_words_epsilon: float
    words_epsilon: float
    most_words_epsilon: float


@dataclass(frozen=True)
class Statement:
    """Entries of the ledger, and the total spend of each population.

    Attributes:
      totals: device-level rho.
      discovery_totals: epsilon of one typed word.
      words_totals: epsilon of one device to words found locally.
      epsilons: ceiling of one device over all releases, at the population's delta (``Budget.epsilon``).
    """

    ledger: str
    entries: tuple[Entry, ...]
    totals: Mapping[PopulationKey, float]
    discovery_totals: Mapping[PopulationKey, float]
    words_totals: Mapping[PopulationKey, float]
    epsilons: Mapping[PopulationKey, float]
    deltas: Mapping[PopulationKey, float]
    windows: tuple[WindowSpend, ...]


@dataclass(frozen=True)
class Integrity:
    """Problems of the ledger's entries, secrets, signatures, triggers and log; none if it is whole."""

    ledger: str
    ok: bool
    problems: tuple[str, ...]
    entries: int


def create(here: Settings) -> Creation:
    """Create this installation's ledger and its keys, once; no other code creates them.

    Raises:
      LedgerMissing: there is a log here of a ledger that is not there.
    """
    try:
        ledger, made = PrivacyLedger.of(here), False
    except LedgerMissing:
        if Log(here.log_dir).size:
            raise missing(here) from None
        ledger, made = PrivacyLedger.create(here), True
    return Creation(ledger.address, made, ledger.head()[0])


def statement(here: Settings, population: str | None = None) -> Statement:
    """Return the entries and totals of the ledger.

    Args:
      population: key of one population; None for all.

    Raises:
      PopulationUnknown: it has no entry.
    """
    ledger = PrivacyLedger.of(here)
    entries = ledger.entries(None if population is None else population_key(population))
    if population is not None and not entries:
        every = sorted({entry.population for entry in ledger.entries() if entry.population})
        raise PopulationUnknown(
            f"--population: {shown(repr(population))} has no entry in {ledger.address}; it has those of "
            f"{', '.join(every) or 'no population'}"
        )
    names = sorted({entry.population for entry in entries if entry.unit != NO_UNIT})
    budgets = {name: owner.budget for name in names if (owner := ledger.registered(name))}
    return Statement(
        ledger=ledger.address,
        entries=tuple(entries),
        totals={name: ledger.total(name) for name in names},
        discovery_totals={name: ledger.discovery_total(name) for name in names},
        words_totals={name: ledger.words_total(name) for name in names},
        epsilons={name: budget.epsilon for name, budget in budgets.items()},
        deltas={name: budget.delta for name, budget in budgets.items()},
        windows=tuple(spend for name in names if (spend := _window(ledger, name))),
    )


def integrity(here: Settings) -> Integrity:
    """Check all entries, secrets, signatures and triggers, and the log on this machine."""
    ledger = PrivacyLedger.of(here)
    problems = tuple(ledger.verify())
    return Integrity(ledger.address, not problems, problems, ledger.head()[0])


def _window(ledger: PrivacyLedger, name: PopulationKey) -> WindowSpend | None:
    population = ledger.registered(name)
    days = population.budget.window_days if population else None
    if population is None or days is None:
        return None
    budget = population.budget
    return WindowSpend(
        population=name,
        days=days,
        max_rho=budget.max_rho,
        rho=ledger.counted(name, "device"),
        most_rho=ledger.most_in_any(name, "device", days),
        max_words_epsilon=budget.max_words_epsilon,
        words_epsilon=ledger.counted(name, "words"),
        most_words_epsilon=ledger.most_in_any(name, "words", days),
    )
