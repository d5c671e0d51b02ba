"""Expiry of launches' private files: text by its window, the rest by the retention time.

    half erased   an erasure's statement exists, but the private folder too: the erasure is completed
    window        all text is older than its population's retention
    withdrawal    a person withdrew whose text it has read (``withdrawal``)
    retention     the launch ended longer ago than ``TACIT_RETENTION_DAYS``

Expiry by the window is unconditional: it does not wait for the launch to end or verify, and needs no record and no
launch file. The registration decides it; without a ledger, the file beside the text does. The retention time is the
installation's choice, so a launch that does not verify is kept, and reported.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path

from federated.config.population import PopulationKey, population_key
from federated.devices.withdrawals import Withdrawals
from pipeline.ground import clock
from pipeline.ground.clock import day_of
from pipeline.ground.errors import TEMPORARY, LaunchError, exit_code
from pipeline.ground.settings import Settings
from pipeline.launch.config import load_kept_launch
from pipeline.ledger.budget import Ceilings, days_kept
from pipeline.ledger.entries import AS_OF
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.bookkeeping import TRACES
from pipeline.run.known import run_folder
from pipeline.run.population import FOR_EVER, TextWindow, asked, read_window, recorded_window
from pipeline.run.run_dir import RunDir
from pipeline.verify import withdrawal
from pipeline.verify.erase import ASKED, ended_at, erase, forget

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """A launch whose erasure failed, in whole or in part, with the reason."""

    launch_id: str
    why: str
    exit_code: int


@dataclass(frozen=True)
class Sweep:
    """Erased launches, and those whose erasure failed."""

    erased: list[str] = field(default_factory=list)
    kept: list[Failure] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Exit code: 0, or that of the failures, permanent if a person must act on one of them."""
        codes = {failure.exit_code for failure in self.kept}
        return 0 if not codes else TEMPORARY if codes == {TEMPORARY} else max(codes - {TEMPORARY})


@dataclass(frozen=True)
class Withdrawal(Sweep):
    """Exclusion of devices from a population, and the launches that were erased for it.

    Attributes:
      seen: whether launches here have read text of all, some or none of the devices.
    """

    population: str = ""
    seen: str = ""


def withdraw(settings: Settings, population: str, device_ids: Collection[str]) -> Withdrawal:
    """Exclude devices from a population permanently, and erase launches that read their text; see ``withdrawal``."""
    seen = withdrawal.withdraw(settings, population_key(population), device_ids)
    return Withdrawal(**vars(sweep(replace(settings, retention_days=None))), population=population, seen=seen)


def sweep(settings: Settings) -> Sweep:
    """Erase every expired launch of this installation.

    Guarantee: a launch that cannot be erased does not prevent the erasure of others; an unexpected error is raised
    after all others are done.
    """
    done = Sweep()
    try:
        ledger = PrivacyLedger(settings.ledger_url)
        withdrew = {entry.population for entry in ledger.entries_of_kind("withdrawal")}
        left_out = {population: ledger.withdrawn(population) for population in withdrew}
    except (LaunchError, ValueError, OSError) as error:
        left_out = {}
        done.kept.append(_failure("", error, "the list of withdrawals cannot be read"))
    with ExitStack() as each:
        for path in sorted(settings.runs_dir.glob("*/private"), reverse=True):
            each.callback(_sweep_one, path.parent.name, settings, left_out, done)
    return done


def _failure(launch_id: str, error: Exception, what: str) -> Failure:
    _log.error("%s", f"{launch_id}: {what}: {error}".removeprefix(": "))
    return Failure(launch_id, str(error), exit_code(error) or TEMPORARY)


def _sweep_one(launch_id: str, settings: Settings, left_out: Mapping[PopulationKey, Withdrawals], done: Sweep) -> None:
    try:
        if _erase_if_over(run_folder(settings, launch_id), settings, left_out):
            done.erased.append(launch_id)
    except (LaunchError, ValueError, ArithmeticError, OSError) as error:
        if isinstance(error, FileNotFoundError) and not (settings.runs_dir / launch_id / "private").exists():
            return  # Another sweep has erased it.
        done.kept.append(_failure(launch_id, error, "kept for longer than it should be"))


def _erase_if_over(run: RunDir, settings: Settings, left_out: Mapping[PopulationKey, Withdrawals]) -> bool:
    """Erase a launch if it has expired; return whether it had."""
    if run.erased:
        forget(run, settings, "")
        return True
    text = text_window(run, settings)
    if text.is_over:
        forget(run, settings, f"typed text may be kept for {text.days} days after {text.as_of}")
        return True
    if withdrawal.holds_text_of(run, left_out):
        forget(run, settings, ASKED)
        return True
    if settings.retention_days is None:
        return False
    config = load_kept_launch(run.path / "public" / "launch" / "launch.json")
    ended = ended_at(config, run, settings)
    if ended is None or ended > clock.now() - timedelta(days=settings.retention_days):
        return False
    erase(config, run, settings, because=f"it ended more than {settings.retention_days:g} days ago")
    return True


def text_window(run: RunDir, settings: Settings) -> TextWindow:
    """Retention window of a launch's text: that of its population's registration, or a shorter one in its files.

    Guarantee: a file of the launch shortens the retention and never extends it, as nothing seals the files. It decides
    alone only where no ledger can be read.

    Raises:
      ValueError: neither a file nor the ledger states it, so a person must decide.
      LaunchError: only the launch file is left, and no ledger has its population.
    """
    newest = max((path.lstat().st_mtime for path in _files(run)), default=None)
    if newest is None:
        return FOR_EVER
    last = date.fromtimestamp(newest)
    stated = read_window(run) or recorded_window(run) or _by_launch_file(run, settings, last)
    try:
        registered = _registered(run, settings)
    except (LaunchError, ValueError, OSError):
        return stated
    if registered.days is None:
        return stated
    days = registered.days if stated.days is None else min(stated.days, registered.days)
    return TextWindow(days, min((day for day in (stated.as_of, registered.as_of) if day), default=last))


def _registered(run: RunDir, settings: Settings) -> TextWindow:
    """Retention that the ledger knows: of the launch's population and, if none is known, the longest of all.

    Its last day is the earliest that a spend of the launch states, or the date of its id.
    """
    ledger = PrivacyLedger(settings.ledger_url)
    own = ledger.entries_of_launch(run.launch_id)
    named = withdrawal.population_of(run)
    # A result names no population.
    keys = {entry.population for entry in own if entry.population}
    keys = keys or ({named} if named and ledger.registered(named) else set())
    keys = keys or {entry.population for entry in ledger.entries_of_kind("register")}
    kept = [days_kept(ledger.population(key), Ceilings()) for key in keys]
    stated = [entry.names(AS_OF) for entry in own if entry.names(AS_OF)]
    days = None if None in kept else max((each for each in kept if each is not None), default=None)
    return TextWindow(days, date.fromisoformat(min(stated)) if stated else day_of(run.launch_id))


def _files(run: RunDir) -> Iterator[Path]:
    """Yield private files that may hold personal data: all except the pipeline's bookkeeping."""
    for path in (run.path / "private").rglob("*"):
        if path.name not in TRACES and not path.is_dir():
            yield path


def _by_launch_file(run: RunDir, settings: Settings, newest: date) -> TextWindow:
    """Window of the launch file and its population, from the date of the launch or of its newest private file."""
    path = run.path / "public" / "launch" / "launch.json"
    try:
        config = load_kept_launch(path)
    except ValueError as error:
        raise ValueError(
            f"{path}: damaged or gone, and no other file states the retention of its text; erase it now: "
            f"tacit erase {run.launch_id} --unverified"
        ) from error
    if config.private_text.simulated:
        return FOR_EVER
    days = days_kept(PrivacyLedger.of(settings).population(config.population), asked(config))
    return TextWindow(days, day_of(run.launch_id) or newest)
