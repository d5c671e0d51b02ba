"""Preflight: checks of a launch before any data is read, and with rounded counts of devices before a spend.

`tacit check`, `tacit plan`, the first task of the DAG, `tacit launch` and the stages call the same functions, so that a
launch is refused as early as possible.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from federated.config.population import Files, PopulationKey, Retention
from pipeline.ground.errors import LedgerMissing, StageInputMissing
from pipeline.ground.settings import Settings, has_account
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.entries import Spend
from pipeline.preflight.devices import count_devices, countable, retention, stated_devices
from pipeline.preflight.shortfalls import FEW, of_file, parameters, short_of_devices, without_sums
from pipeline.releases.central_words import CENTRAL_WORDS
from pipeline.releases.evaluation import EVALUATION, typed
from pipeline.releases.policy import above_policy, one_number
from pipeline.releases.release import Outlook, asked_for
from pipeline.releases.terms import Terms
from pipeline.run import gang
from pipeline.run.run_dir import RunDir
from pretrain.config import FileCorpus
from pretrain.reading.paths import KERNEL, require_file, require_folder, shown
from pretrain.text.vocabulary import load as load_vocabulary
from reports.config import NOBODY_YET

if TYPE_CHECKING:
    from pipeline.preflight.foresee import Forecast
    from pipeline.run.cache import CacheHit
    from pipeline.run.stage import Stages

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Findings:
    """Findings of the preflight of a launch and its data.

    Attributes:
      problems: why it would be refused or held, one line each with the field, the value and the fix.
      notes: warnings for the launch's owner.
      devices: size of the population, rounded down to tens; None if it was not counted.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    devices: int | None = None


@dataclass(frozen=True)
class Check:
    """Outcome of ``tacit check``: whether the launch may begin, or the reasons why not.

    Attributes:
      errors: one line each with the field, the value and the fix.
      notes: warnings for the launch's owner.
      launch_id: id of the launch; empty if there are errors.
      reuse: stages whose outputs are reused from other launches on this machine.
    """

    ok: bool
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    launch_id: str = ""
    reuse: "tuple[CacheHit, ...]" = ()


def check(config: LaunchConfig, run_id: str, settings: Settings, stages: "Stages", *, dated: bool = False) -> Check:
    """Check a launch by its file, its data files, the ledger and this installation.

    Args:
      dated: add a note with the forecast spend, for a launch of a schedule's date.

    Raises:
      ValueError: every problem, one line each.
    """
    from pipeline.ledger.database import missing
    from pipeline.ledger.ledger import PrivacyLedger
    from pipeline.ledger.log.tiles import Log
    from pipeline.run.cache import preview, reused_stages

    reuse = tuple(preview(config, run_id, settings, stages))
    notes = require(config, settings, run_id, reused_stages(reuse))
    try:
        PrivacyLedger.of(settings)
        rows = forecast_of(config, settings, stages, [run_id]) if dated else []
        notes += tuple(f"worst-case spend: {row}" for row in rows)
    except LedgerMissing:
        if Log(settings.log_dir).size:
            notes += (str(missing(settings)),)
    return Check(True, notes=notes, launch_id=run_id, reuse=reuse)


def check_file(config: LaunchConfig, run_id: str) -> Check:
    """Check a launch by its file alone, without this installation.

    Raises:
      ValueError: every problem, one line each.
    """
    from pretrain.text.tokenise import require_spaced_script

    require_spaced_script(config.locale)
    return Check(True, notes=require_schedule(config), launch_id=run_id)


@dataclass(frozen=True)
class DatesForecast:
    """Worst-case new spend of a schedule's launches, one after another.

    Attributes:
      rho: of one device, over the dates that would not be refused.
      epsilon: of one typed word, over the same dates.
      refused: number of dates that would be refused.
    """

    ok: bool
    population: PopulationKey
    dates: "tuple[Forecast, ...]"
    rho: float
    epsilon: float
    refused: int


def forecast_dates(
    config: LaunchConfig, settings: Settings, stages: "Stages", first: date, last: date
) -> DatesForecast:
    """Forecast the spends of all launches of a schedule between two dates; writes nothing.

    Raises:
      ValueError: the schedule has no date from the first to the last.
      LedgerMissing, PopulationUnknown: as ``forecast``.
    """
    from pipeline.preflight import schedule

    assert config.schedule is not None, "only a schedule has dates"
    ids = [launch_id(config, f"{day:%Y%m%d}") for day in schedule.launch_dates(config.schedule, first, last)]
    if not ids:
        raise ValueError(f"--to: {config.schedule!r} has no date from {first} to {last}")
    rows = forecast_of(config, settings, stages, ids)
    spending = [row for row in rows if not row.problem]
    return DatesForecast(
        ok=len(spending) == len(rows),
        population=config.population,
        dates=tuple(rows),
        rho=math.fsum(max(row.rho, row.held_out_rho) for row in spending),
        epsilon=math.fsum(row.epsilon for row in spending),
        refused=len(rows) - len(spending),
    )


def forecast_of(config: LaunchConfig, settings: Settings, stages: "Stages", ids: Sequence[str]) -> "list[Forecast]":
    """Forecast launches by the file alone, without the spends of reused stages."""
    from pipeline.preflight.foresee import forecast
    from pipeline.run.cache import preview, reused_stages

    worst = Terms.of_file(config, estimated_devices(config))

    def reused(run_id: str) -> Collection[str]:
        return reused_stages(preview(config, run_id, settings, stages))

    return forecast(worst, settings, ids, reused)


def look(config: LaunchConfig, settings: Settings, run_id: str, reused: Collection[str] = ()) -> Findings:
    """Check a launch by its file, its data files, the ledger and this installation.

    Only the beginning and end of the launch's files are read, to identify their format, and of private files the
    columns of device and locale.

    Without a ledger its decision is unknown; `tacit launch` then refuses.

    Args:
      reused: stages whose outputs are reused from another launch, so that they spend nothing.
    """
    from pipeline.preflight.foresee import foresee

    if unwritten := _no_words(config):
        return Findings(tuple(unwritten))  # what else is computed needs the locale's letters
    kept = retention(config, settings.ledger_url, run_id)
    unusable = unusable_files(config, kept)
    population = _population(config, kept, settings.ledger_url, readable=not unusable)
    terms = Terms.of_file(config, _training(config, population.devices))
    foreseen = foresee(terms, settings, run_id, reused)
    problems = (
        *of_file(config),
        *without_sums(config, terms.seen.devices or 0),
        *unusable,
        *population.problems,
        *above_policy(terms),
        *_unknown_reviewers(config, settings),
        *_no_gang(config, settings),
        *unusable_places(settings),
        *foreseen.problems,
    )
    notes = (*one_number(terms), *_nobody_answers(config), *population.notes, *foreseen.notes)
    return Findings(problems, notes, population.devices)


def _nobody_answers(config: LaunchConfig) -> tuple[str, ...]:
    if config.report.contact != NOBODY_YET:
        return ()
    return (f"report.contact: still {NOBODY_YET!r}, which the report prints; write a name and an address",)


def require_schedule(config: LaunchConfig) -> tuple[str, ...]:
    """Check a schedule by the launch file alone; ValueError with every problem."""
    from pipeline.preflight import schedule

    terms = Terms.of_file(config, estimated_devices(config))
    if problems := above_policy(terms):
        raise ValueError("\n".join(problems))
    return (*one_number(terms), *schedule.require_fits(config, terms.spends["discover"]))


def require(config: LaunchConfig, settings: Settings, run_id: str, reused: Collection[str] = ()) -> tuple[str, ...]:
    """Return warnings for the launch's owner; ValueError with every problem."""
    seen = look(config, settings, run_id, reused)
    if seen.problems:
        raise ValueError("\n".join(seen.problems))
    return seen.notes


def _no_words(config: LaunchConfig) -> list[str]:
    from pretrain.text.tokenise import require_spaced_script

    try:
        require_spaced_script(config.locale)
    except ValueError as error:
        return [str(error)]
    return []


def _no_gang(config: LaunchConfig, settings: Settings) -> list[str]:
    try:
        gang.require(config.runtime.hosts, settings.gang)
    except ValueError as error:
        return [str(error)]
    return []


def _population(config: LaunchConfig, kept: Retention | None, ledger_url: str, *, readable: bool) -> Findings:
    """Check that the population has enough devices, by its files, or by the number that the launch file states.

    The devices of a registered population are split here as ``ingest_private`` splits them, and stage ``plan`` asks the
    same question of the same numbers.

    Args:
      readable: False if a file is unusable, so that none are counted.
    """
    private, devices, splits = config.private_text, stated_devices(config), None
    notes: tuple[str, ...] = ()
    if readable and countable(config):
        try:
            seen = count_devices(config, ledger_url, kept)
        except ValueError as error:
            return Findings((str(error),))
        devices, splits = seen.devices, seen.splits
        stated, about, more = (splits, "", "+") if splits else (private.splits.expected(devices), "about ", "")
        parts = ", ".join(f"{name} {stated[name]:,}{more}" for name in ("train", "validation", "test"))
        counted = f"private_text: {devices:,}+ devices of {config.locale}{seen.rows}; {about}{parts}"
        notes = (seen.filters, counted, *_needed(config, stated["test"]))
    elif readable and isinstance(private, Files):
        notes = ("private_text.paths: large files, so devices are counted when the launch reads them",)
    if devices is None:
        return Findings((), notes)
    problems = short_of_devices(config, splits) if splits and devices >= FEW else _hopeless(config, devices)
    return Findings(tuple(problems), notes, devices)


def _needed(config: LaunchConfig, test: int) -> list[str]:
    """Note on the number of words that test devices must have typed for results above the noise."""
    if not (test and EVALUATION.asked(config)):
        return []
    from evaluation.noisy.questions import words_needed

    words = words_needed(asked_for(config.evaluation).noise_multiplier, test, typed=typed(config))
    return [
        f"evaluation: about {words:.2g} words of each of {test:,} test devices are needed; with fewer, noise "
        "dominates and the comparison is inconclusive"
    ]


def unusable_files(config: LaunchConfig, kept: Retention | None = None) -> list[str]:
    """One line for each unusable file, judged by its beginning and end; with the field, the value and the fix.

    Raises:
      OSError: the disk does not answer.
    """
    problems = []
    for look in _looks(config, kept):
        try:
            look()
        except ValueError as error:
            problems.append(str(error))
    return problems


def _looks(config: LaunchConfig, kept: Retention | None) -> list[Callable[[], object]]:
    """Return a check for each of the launch's files; readers are imported only if there are files."""
    looks: list[Callable[[], object]] = []
    if isinstance(config.public_text, FileCorpus):
        from pretrain.text import sources

        looks.append(partial(sources.inspect, config.public_text))
    if isinstance(config.private_text, Files):
        from federated.devices import readers

        looks.append(partial(readers.inspect, config.private_text.paths, kept))
    if config.discovery.blocklist is not None:
        from discovery import review

        looks.append(partial(review.read_blocklist, Path(config.discovery.blocklist)))
    return looks


def _hopeless(config: LaunchConfig, devices: int) -> list[str]:
    """Problems of the expected splits that no draw of the keyed hash would mend; counted splits may have more.

    Args:
      devices: rounded down to tens, as in ``short_of_devices``.
    """
    expected = config.private_text.splits.expected(devices)
    # Includes the nine devices that rounding may hide; exceeded with probability one in a thousand.
    most = {
        name: math.floor(part + 3 * math.sqrt(part * (1 - part / devices))) + 9 if devices else 9
        for name, part in expected.items()
    }
    if devices and config.mechanism.delta >= 1 / devices:
        return [
            f"mechanism.delta: {config.mechanism.delta:g} allows all text of one of {devices}+ devices to be released; "
            f"lower it to {1 / (100 * devices):.0e} or less"
        ]
    lines, sure = (short_of_devices(config, splits) for splits in (expected, most))
    fields = {line.partition(":")[0] for line in sure}
    return [line for line in lines if line.partition(":")[0] in fields or (fields and devices < FEW)]


def unusable_places(settings: Settings) -> list[str]:
    """Files and folders of this installation that a launch could not write, one line each; addresses were checked."""
    folders = {"TACIT_RUNS_DIR": settings.runs_dir, "TACIT_KEYS": settings.keys_dir}
    folders |= {"TACIT_TRANSPARENCY_LOG": settings.log_dir}
    if isinstance(settings.witness, Path):
        folders["TACIT_WITNESS"] = settings.witness
    if (root := settings.artifact_root or "").startswith("file:"):
        folders["TACIT_ARTIFACT_ROOT"] = Path(unquote(urlsplit(root).path))
    databases = {"TACIT_LEDGER_URL": settings.ledger_url, "MLFLOW_TRACKING_URI": settings.tracking_uri}
    files = {
        name: Path(address.partition("///")[2]) for name, address in databases.items() if address.startswith("sqlite:")
    }
    problems = []
    for name, path in (folders | files).items():
        # Of what is not there yet, the folder in which it will be made.
        there = next(each for each in (path, *path.parents) if os.path.lexists(each))
        try:
            if there == path and name in files:
                require_file(path, name, "name a file of your own")
            else:
                require_folder(there, name, "name a folder of your own")
            if there.resolve().parts[1:2] in KERNEL:
                raise ValueError(f"{name}: {shown(path)} is in a file system of the kernel, which keeps nothing")
            if not os.access(there, os.W_OK if there.is_file() else os.W_OK | os.X_OK, effective_ids=True):
                raise ValueError(
                    f"{name}: {shown(there)} may not be written by this account, or its disk is read-only; change its "
                    "owner, or name another place"
                )
        except ValueError as error:
            problems.append(str(error))
    return problems


def _unknown_reviewers(config: LaunchConfig, settings: Settings) -> list[str]:
    if settings.users_are_uuids:
        strange = [name for name in config.reviewers if not _UUID.fullmatch(name) and not has_account(name)]
        return [
            f"reviewers: {name!r} is no ID of a user of Keycloak and no account of this machine, so no one could "
            "approve; write the ID that Keycloak shows on the user's page, as in 8b5f2c8e-3d0a-4c55-9b0e-2f4b7a7d9a10"
            for name in strange
        ]
    users = settings.airflow_users
    if users is None:
        return []
    missing = [name for name in config.reviewers if name not in users and not has_account(name)]
    return [
        f"reviewers: {name!r} is no user of Airflow and no account of this machine, so no one could approve; Airflow "
        f"has {', '.join(users)}. Correct it, or add it in dags/airflow.env"
        for name in missing
    ]


def estimated_devices(config: LaunchConfig) -> int | None:
    """Estimated number of training devices from the launch file alone; None if it states none."""
    return _training(config, stated_devices(config))


def _training(config: LaunchConfig, devices: int | None) -> int | None:
    return None if devices is None else config.private_text.splits.training(devices)


def planned_discovery(config: LaunchConfig, run: RunDir) -> Spend:
    """Planned spend of word discovery: central, or local with the number of messages of the smallest layer.

    The plan ran before the vocabulary, which decides the layers' sizes, so total epsilon is checked against its ceiling
    again.

    Raises:
      ValueError: total epsilon would exceed its ceiling.
      StageInputMissing: stage ``plan``, which makes all other checks, has not finished.
    """
    plan = run.record("plan")
    if plan is None:
        raise StageInputMissing(f"{run.launch_id}: stage 'plan' has not finished; it comes before anything is spent")
    _require_parameters(config, run)
    if CENTRAL_WORDS.asked(config):
        return CENTRAL_WORDS.paid(config, {})
    devices = run.result("ingest_private")["devices_by_split"]["train"]
    known_words = load_vocabulary(run.input("ingest_public", "vocabulary.json")).words
    terms = Terms.of(config, Outlook(plan.result["rho"], devices, known_words))
    if problems := above_policy(terms):
        raise ValueError("\n".join((*problems, "nothing was spent on words")))
    return terms.spends["discover"]


def _require_parameters(config: LaunchConfig, run: RunDir) -> None:
    """ValueError, before the first spend, if the model over the public vocabulary is too small for its audits."""
    made = run.record("ingest_public")
    if made is None:  # The stage itself then refuses.
        return
    words = made.result.get("vocabulary_size", config.vocabulary.base_size)
    if lines := of_file(config, parameters(config, words)):
        raise ValueError("\n".join(lines))
