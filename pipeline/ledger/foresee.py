"""What the ledger will say of a launch, before anything is read, trained or spent; nothing is written."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from federated.config.population import Kept
from pipeline.config import SIMULATIONS, LaunchConfig
from pipeline.errors import LedgerMissing, PermanentError
from pipeline.ledger import clock, schedule
from pipeline.ledger.budget import (
    Population,
    ceilings,
    registered,
    require_clock,
    require_no_more,
    require_registered,
)
from pipeline.ledger.entries import GENESIS, SPLIT_RULE, Entry, canonical, with_spend
from pipeline.ledger.launch import asked, day_of, epsilon_of_a_word, kept, require_once, standing_spends
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.room import Asking, require_room
from pipeline.settings import Settings
from pipeline.stage import Spend


@dataclass(frozen=True)
class Foreseen:
    """What it will say.

    Attributes:
      problems: why it would refuse the launch, or its schedule.
      notes: what its owner would want to know.
      kept: which text of the population is kept; None for all.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    kept: Kept | None = None


def foresee(config: LaunchConfig, settings: Settings, run_id: str, device_rho: float, epsilon0: float) -> Foreseen:
    """What the ledger here and now has to say; without one nothing is known.

    Args:
      device_rho: what one device would lose to the launch at worst.
      epsilon0: what one typed word would lose.
    """
    try:
        entries = PrivacyLedger(settings.ledger_url).entries()
    except LedgerMissing:
        entries = None
    population, lines, which = registered(entries or [], config.private_text.name), list[str](), None
    try:
        require_secure(config, population)
    except ValueError as error:
        lines.append(str(error))
    fits = schedule.fits(config, population)
    lines += fits.problems
    # A simulation need not be registered yet.
    if entries is not None and (population is not None or config.private_text.source not in SIMULATIONS):
        try:
            population = require_registered(entries, config.private_text.name)
            require_no_more(population, asked(config))
            require_clock(entries, population.name)
            which = kept(config, population, run_id)
            require_once(entries, population.name, run_id)
            lines += _without_room(config, population, entries, run_id, which, (device_rho, epsilon0))
        except PermanentError as error:
            lines.append(str(error))
    return Foreseen(tuple(lines), fits.notes, which)


@dataclass(frozen=True)
class Forecast:
    """What a dated launch would spend anew, at worst.

    Attributes:
      rho: of one device that trains.
      held_out_rho: of one device that is held out; of the two the larger counts.
      epsilon: of one typed word.
      has_spent: stages that have spent, or reserved it: they spend nothing again.
      problem: why it would be refused; it then spends nothing at all.
    """

    launch_id: str
    rho: float
    held_out_rho: float
    epsilon: float
    has_spent: tuple[str, ...]
    problem: str


def forecast(
    config: LaunchConfig,
    settings: Settings,
    run_ids: Sequence[str],
    training_rho: float,
    taken_over: Callable[[str], Collection[str]],
) -> list[Forecast]:
    """What launches of some dates would spend, each after those before it; nothing is written.

    Guarantee: the amounts, the ceilings and the time by which they count are those of the reservation itself
    (``room.require_room``), and what an earlier date would spend stands beside what is spent. A launch spends at most
    what is said here, as at the worst within its enforced limits.

    Args:
      run_ids: in the order in which they would run.
      taken_over: stages that another launch made for one, by its id.

    Raises:
      LedgerMissing: there is no ledger, so nobody knows what was spent.
      PopulationUnknown: nobody registered the population.
    """
    entries = PrivacyLedger(settings.ledger_url).entries()
    name, rows = config.private_text.name, list[Forecast]()
    population = registered(entries, name)
    if population is None and config.private_text.source not in SIMULATIONS:
        population = require_registered(entries, name)
    for run_id in run_ids:
        done = tuple(stage for launch, stage in standing_spends(entries, name) if launch == run_id)
        rho, epsilon = costs(config, 0.0 if "fine_tune" in done else training_rho, {*done, *taken_over(run_id)})
        held_out = config.evaluation.rho if config.evaluation and "ab_test" not in done else 0.0
        spends, day = _spends(config, rho, held_out, epsilon), day_of(run_id)
        # A launch of a past date spends when it runs.
        at, problem = max(clock.now(), clock.start_of(day.isoformat())) if day else clock.now(), ""
        try:
            if spends:
                require_once(entries, name, run_id)
                if population is not None:
                    require_no_more(population, asked(config))
                asking = _asking(config, population, run_id, kept(config, population, run_id) if population else None)
                for spend in spends:
                    require_room(entries, asking, spend, ceilings(population, asked(config), spend.unit), at)
                entries += [_as_if(spend, asking, at) for spend in spends]
        except PermanentError as error:
            problem = str(error)
        rows.append(Forecast(run_id, rho, held_out, epsilon, done, problem))
    return rows


def costs(config: LaunchConfig, training_rho: float, taken_over: Collection[str]) -> tuple[float, float]:
    """Rho of one device and epsilon of one typed word that a launch costs at worst.

    Args:
      taken_over: stages that another launch made for it, so that they spend nothing here.
    """
    made = {"counts": "count", "discovery": "discover", "vote": "vote"}
    rho = training_rho + sum(cost for name, cost in config.beside_training.items() if made[name] not in taken_over)
    return rho, 0.0 if "discover" in taken_over else epsilon_of_a_word(config)


def _without_room(
    config: LaunchConfig,
    population: Population,
    entries: list[Entry],
    run_id: str,
    which: Kept | None,
    amounts: tuple[float, float],
) -> list[str]:
    rho, epsilon0 = amounts
    others, lines = [entry for entry in entries if entry.launch_id != run_id], list[str]()
    asking = _asking(config, population, run_id, which)
    for spend in _spends(config, rho, config.evaluation.rho if config.evaluation else 0.0, epsilon0):
        try:
            require_room(others, asking, spend, ceilings(population, asked(config), spend.unit))
        except PermanentError as error:
            lines.append(str(error))
    return lines


def _asking(config: LaunchConfig, population: Population | None, run_id: str, which: Kept | None) -> Asking:
    rule = population.split_rule(config.private_text.test_fraction) if population else ""
    return Asking(config.private_text.name, run_id, rule, which.as_of.isoformat() if which else "")


def _as_if(spend: Spend, asking: Asking, at: datetime) -> Entry:
    """The entry that reserving a spend would write; it stands in no chain."""
    amounts = spend.model_dump(include={"unit", "adjacency", "rho", "epsilon", "delta"})
    return Entry(
        seq=0,
        kind="reserve",
        population=asking.population,
        launch_id=asking.launch_id,
        stage=f"{spend.unit} {spend.split}",
        binding=canonical(with_spend({SPLIT_RULE: asking.rule} if asking.rule else {}, spend)),
        note="foreseen",
        created_at=clock.written(at),
        prev_hash=GENESIS,
        hash=GENESIS,
        **amounts,
    )


def _spends(config: LaunchConfig, rho: float, held_out_rho: float, epsilon0: float) -> list[Spend]:
    """What a launch spends on a typed word, on a device that trains and on one that is held out, where it does.

    A population may have spent all of its budget, and more, before that was lowered; what costs nothing has room.
    """
    training = Spend(unit="device", adjacency="zero-out", rho=rho, epsilon=0.0, delta=config.mechanism.delta)
    words = Spend(unit="item", adjacency="swap", rho=None, epsilon=epsilon0, delta=0.0)
    held_out = training.model_copy(update={"rho": held_out_rho, "split": "test"})
    return [spend for spend in (words, training, held_out) if spend.rho or spend.epsilon]


def require_secure(config: LaunchConfig, population: Population | None) -> None:
    """See that noise before people's text is secret.

    Guarantee: people's text is never protected by a seed, which anyone can use too: only what is nobody's, public or
    made up, may be, and that is what a simulation is or what somebody registered as such.

    Raises:
      ValueError: it is seeded.
    """
    is_open = config.private_text.source in SIMULATIONS or (population is not None and population.simulated)
    if config.mechanism.randomness == "seeded" and not is_open:
        raise ValueError(_seeded(config))


def _seeded(config: LaunchConfig) -> str:
    name = config.private_text.name
    return (
        f"mechanism.randomness: seeded, so that anyone can subtract the noise, and {name!r} is people's text; "
        f"write secure. Text that is nobody's, made up or public, is registered so: tacit ledger register {name} "
        "--simulated --max-rho ..."
    )
