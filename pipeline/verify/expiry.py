"""Expiry of launches' private files: text by its window, the rest by the retention time.

    half erased   a statement of it stands there, but the private folder does too: the erasure is finished
    window        all text is older than the days for which its population's may be kept
    withdrawal    somebody withdrew whose text it has read (``withdrawal``)
    retention     the launch was over longer ago than ``TACIT_RETENTION_DAYS``

A window waits for nothing: neither for the launch to end nor for it to verify, and not for a record, a launch file or
the ledger. The retention time is the installation's own wish, so a launch that does not verify is kept then, and named.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path

from federated.config.population import PopulationKey, population_key
from federated.devices.withdrawals import Withdrawals
from pipeline.ground.errors import TEMPORARY, LaunchError, exit_code
from pipeline.ground.settings import Settings
from pipeline.launch.config import load_kept_launch
from pipeline.ledger import clock
from pipeline.ledger.budget import days_kept
from pipeline.ledger.dates import day_of
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
    """A launch that was to be erased and was not, or not wholly; and why."""

    launch_id: str
    why: str
    exit_code: int


@dataclass(frozen=True)
class Sweep:
    """Erased launches, and those that were kept because they could not be erased."""

    erased: list[str] = field(default_factory=list)
    kept: list[Failure] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0; or that of the failures: permanent if a person must act on one of them."""
        codes = {failure.exit_code for failure in self.kept}
        return 0 if not codes else TEMPORARY if codes == {TEMPORARY} else max(codes - {TEMPORARY})


@dataclass(frozen=True)
class Withdrawal(Sweep):
    """Devices left out of a population from now on, and the launches that were erased for it.

    Attributes:
      seen: of how many of them launches here have read text: all, some or none.
    """

    population: str = ""
    seen: str = ""


def withdraw(settings: Settings, population: str, device_ids: Collection[str]) -> Withdrawal:
    """Leave devices out of a population for good, and erase launches that read their text; see ``withdrawal``."""
    seen = withdrawal.withdraw(settings, population_key(population), device_ids)
    return Withdrawal(**vars(sweep(replace(settings, retention_days=None))), population=population, seen=seen)


def sweep(settings: Settings) -> Sweep:
    """Erase every launch of this installation whose time is over.

    Guarantee: one launch that cannot be erased keeps no other from it; not even by a bug, whose error is raised when
    all others are done.
    """
    done = Sweep()
    try:
        left_out = withdrawal.lists(settings)
    except (LaunchError, ValueError, OSError) as error:
        left_out = {}
        done.kept.append(_failure("", error, "who withdrew is not known"))
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
            return  # Another sweep was there first.
        done.kept.append(_failure(launch_id, error, "kept for longer than it should be"))


def _erase_if_over(run: RunDir, settings: Settings, left_out: Mapping[PopulationKey, Withdrawals]) -> bool:
    """Erase a launch if its time is over; whether it was."""
    if run.erased:
        forget(run, settings, "")
        return True
    text = text_window(run, settings)
    if text.is_over:
        forget(run, settings, f"what people typed may be kept for {text.days} days after {text.as_of}")
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
    erase(config, run, settings, because=f"it was over for {settings.retention_days:g} days")
    return True


def text_window(run: RunDir, settings: Settings) -> TextWindow:
    """Retention of a launch's text: as was written down, or else as its record or its launch file says.

    Raises:
      ValueError: none of them can be read, so that a person has to say.
      LaunchError: there is only the launch file, and no ledger that knows its population.
    """
    written = read_window(run) or recorded_window(run)
    if written is not None:
        return written
    newest = max((path.lstat().st_mtime for path in _files(run)), default=None)
    return FOR_EVER if newest is None else _by_launch_file(run, settings, date.fromtimestamp(newest))


def _files(run: RunDir) -> Iterator[Path]:
    """Private files that may say something of somebody: all but the pipeline's own."""
    for path in (run.path / "private").rglob("*"):
        if path.name not in TRACES and not path.is_dir():
            yield path


def _by_launch_file(run: RunDir, settings: Settings, newest: date) -> TextWindow:
    """The window of the launch file and its population, from the day of the launch or of its newest private file."""
    path = run.path / "public" / "launch" / "launch.json"
    try:
        config = load_kept_launch(path)
    except ValueError as error:
        raise ValueError(
            f"{path}: damaged or gone, as is what else says how long its text may be kept; erase it now: "
            f"tacit erase {run.launch_id} --unverified"
        ) from error
    if config.private_text.simulated:
        return FOR_EVER
    days = days_kept(PrivacyLedger.of(settings).population(config.population), asked(config))
    return TextWindow(days, day_of(run.launch_id) or newest)
