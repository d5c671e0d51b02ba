"""Statements of the ledger: creation, totals and remaining budgets, spends of a launch, composition, integrity."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from federated.config.population import PopulationKey, population_key
from pipeline.ground import clock
from pipeline.ground.errors import LedgerMissing, PopulationUnknown
from pipeline.ground.settings import Settings
from pipeline.ledger.budget import NAMES, Ceilings, ceilings, registered, standing_spends
from pipeline.ledger.database import missing
from pipeline.ledger.entries import NO_UNIT, Entry, Spend
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.log.tiles import Log
from pipeline.ledger.loss import Unit, added, most_in_any, releases
from pretrain.reading.paths import shown
from reports.disclosure.guarantee import Composition, LaunchSpend, PopulationSpend, WindowLoss
from reports.disclosure.total import Total

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
class Remainder:
    """Remaining budget of one unit of a population.

    Attributes:
      spent: in the window that ends now.
      most: in the worst window.
      days: length of the ceiling's window; None for all time.
    """

    population: PopulationKey
    unit: Unit
    amount: float
    spent: float
    most: float
    days: int | None
    left: float

    def __str__(self) -> str:
        within = f" in any {self.days} days" if self.days else ""
        return f"{NAMES[self.unit]} {self.left:.4g} of {self.amount:g}{within}"


@dataclass(frozen=True)
class Statement:
    """Entries of the ledger, and the total spend of each population.

    Attributes:
      totals: device-level rho.
      discovery_totals: epsilon of one typed word.
      words_totals: epsilon of one device to words found locally.
      epsilons: ceiling of one device over all releases, at the population's delta (``Budget.epsilon``).
      left: under each ceiling of the registered budgets.
    """

    ledger: str
    entries: tuple[Entry, ...]
    totals: Mapping[PopulationKey, float]
    discovery_totals: Mapping[PopulationKey, float]
    words_totals: Mapping[PopulationKey, float]
    epsilons: Mapping[PopulationKey, float]
    deltas: Mapping[PopulationKey, float]
    left: tuple[Remainder, ...]


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
    budgets = {name: owner.budget for name in names if (owner := registered(entries, name))}
    return Statement(
        ledger=ledger.address,
        entries=tuple(entries),
        totals={name: added(releases(entries, name, "device")) for name in names},
        discovery_totals={name: added(releases(entries, name, "item")) for name in names},
        words_totals={name: added(releases(entries, name, "words")) for name in names},
        epsilons={name: budget.epsilon for name, budget in budgets.items()},
        deltas={name: budget.delta for name, budget in budgets.items()},
        left=remainders(entries, names),
    )


def integrity(here: Settings) -> Integrity:
    """Check all entries, secrets, signatures and triggers, and the log on this machine."""
    ledger = PrivacyLedger.of(here)
    problems = tuple(ledger.verify())
    return Integrity(ledger.address, not problems, problems, ledger.head()[0])


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
            counted, since = releases(entries, name, ceiling.unit), clock.counts_since(ceiling.days)
            spent = added(each for each in counted if each.written >= since)
            most, left = most_in_any(counted, ceiling.days), max(ceiling.amount - spent, 0.0)
            rows.append(Remainder(name, ceiling.unit, ceiling.amount, spent, most, ceiling.days, left))
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
    return tuple(
        StageSpend(entry.stage, entry.unit, entry.epsilon if entry.rho is None else entry.rho, entry.does)
        for entry in standing_spends(entries)
        if entry.launch_id == run_id
    )


def composition(
    entries: Collection[Entry],
    population: PopulationKey,
    asked: Ceilings,
    total: Callable[[Mapping[str, Spend]], Total],
) -> Composition:
    """Total privacy loss of one device of a population, and the releases that it adds up.

    Args:
      asked: the launch file's ceilings, stated beside the loss.
      total: returns the loss of one device to the spends of a launch, by stage.
    """
    by_launch: dict[str, dict[str, Spend]] = {}
    for entry in standing_spends(entries):
        if entry.population == population:
            by_launch.setdefault(entry.launch_id, {})[entry.stage] = entry.spend
    losses = {launch_id: total(spends) for launch_id, spends in by_launch.items()}
    spending = [entry for entry in entries if entry.population == population and entry.rho is not None]
    latest = {(entry.launch_id, entry.stage): entry for entry in spending}
    counted, window = releases(entries, population, "device"), None
    if asked.days is not None and asked.window_rho is not None:
        most = most_in_any(counted, asked.days)
        window = WindowLoss(days=asked.days, ceiling_rho=asked.window_rho, most_rho=most)
    failures = [replace(each, amount=of.failure) for each, of in zip(counted, latest.values(), strict=True)]
    return Composition(
        spends=[
            PopulationSpend(
                launch_id=entry.launch_id,
                stage=entry.stage,
                kind=entry.kind,
                rho=entry.rho or 0.0,
                split=entry.split,
                failure=entry.failure,
                reserved=release.written[: len("2026-01-31")],
            )
            for entry, release in zip(latest.values(), counted, strict=True)
        ],
        launches=[
            LaunchSpend(
                launch_id=launch_id,
                rho=max(part.rho or 0.0 for part in loss.parts),
                epsilon=loss.epsilon,
                delta=loss.delta,
            )
            for launch_id, loss in losses.items()
        ],
        total_rho=added(counted),
        total_failure=added(failures),
        ceiling_rho=asked.rho,
        window=window,
    )
