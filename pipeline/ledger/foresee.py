"""What the ledger will say of a launch, before anything is read, trained or spent; nothing is written."""

from collections.abc import Collection
from dataclasses import dataclass

from federated.config.population import Kept
from pipeline.config import SIMULATIONS, LaunchConfig
from pipeline.errors import LedgerMissing, PermanentError
from pipeline.ledger import schedule
from pipeline.ledger.budget import Population, ceilings, registered, require_no_more, require_registered
from pipeline.ledger.entries import Entry
from pipeline.ledger.launch import asked, epsilon_of_a_word, kept
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
            which = kept(config, population, run_id)
            lines += _without_room(config, population, entries, run_id, which, (device_rho, epsilon0))
        except PermanentError as error:
            lines.append(str(error))
    return Foreseen(tuple(lines), fits.notes, which)


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
    rule = population.split_rule(config.private_text.test_fraction)
    asking = Asking(population.name, run_id, rule, which.as_of.isoformat() if which else "")
    training = Spend(unit="device", adjacency="zero-out", rho=rho, epsilon=0.0, delta=config.mechanism.delta)
    words = Spend(unit="item", adjacency="swap", rho=None, epsilon=epsilon0, delta=0.0)
    held_out = training.model_copy(update={"rho": config.evaluation.rho if config.evaluation else 0.0, "split": "test"})
    for spend in (words, training, held_out):
        if not (spend.rho or spend.epsilon):
            continue  # A population may have spent all of it, and more, before its budget was lowered.
        try:
            require_room(others, asking, spend, ceilings(population, asked(config), spend.unit))
        except PermanentError as error:
            lines.append(str(error))
    return lines


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
