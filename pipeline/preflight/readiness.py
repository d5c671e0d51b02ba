"""Preflight: checks of a launch before any data is read, and with rounded counts of devices before a spend.

`tacit check`, `tacit plan`, the first task of the DAG, `tacit launch` and the stages call the same functions, so that a
launch is refused as early as possible.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
from pipeline.preflight.compute import launch_minutes
from pipeline.preflight.devices import count_devices, countable, retention, stated_devices, unlike_locale
from pipeline.preflight.gains import pretrained, public_needs, uncertain
from pipeline.preflight.shortfalls import FEW, refusals
from pipeline.releases.evaluation import EVALUATION, typed
from pipeline.releases.policy import above_policy, one_number
from pipeline.releases.release import asked_for
from pipeline.releases.terms import Terms
from pipeline.run import gang
from pipeline.run.run_dir import RunDir
from pretrain.config import FileCorpus, SampleCorpus
from pretrain.reading.paths import KERNEL, require_file, require_folder, shown
from pretrain.text.packaged import packaged_texts
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
      counted: devices of the launch's files, before and after each filter; a refusal says them too, as they may be why.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """Outcome of ``tacit check``: whether the launch may begin, or the reasons why not.

    Attributes:
      errors: one line each with the field, the value and the fix.
      notes: warnings for the launch's owner.
      launch_id: id of the launch; empty if there are errors.
      cpu_minutes: of the longest stages, by stage, as ``compute.launch_minutes``; Airflow's limits follow them.
      reuse: stages whose outputs are reused from other launches on this machine.
    """

    ok: bool
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    launch_id: str = ""
    cpu_minutes: Mapping[str, int] = field(default_factory=dict)
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
    from pipeline.run.cache import preview

    reuse = tuple(preview(config, run_id, settings, stages))
    notes = require(config, settings, run_id, reuse)
    try:
        PrivacyLedger.of(settings)
        rows = forecast_of(config, settings, stages, [run_id]) if dated else []
        notes += tuple(f"worst-case spend: {row}" for row in rows)
    except LedgerMissing:
        if Log(settings.log_dir).size:
            notes += (str(missing(settings)),)
    return Check(True, notes=notes, launch_id=run_id, cpu_minutes=launch_minutes(config), reuse=reuse)


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

    worst = Terms.of_file(config, estimated_splits(config))

    def reused(run_id: str) -> Collection[str]:
        return reused_stages(preview(config, run_id, settings, stages))

    return forecast(worst, settings, ids, reused)


def look(config: LaunchConfig, settings: Settings, run_id: str, reuse: "Collection[CacheHit]" = ()) -> Findings:
    """Check a launch by its file, its data files, the ledger and this installation.

    Only the beginning and end of the launch's files are read, to identify their format, and of private files the
    columns of device and locale.

    Without a ledger its decision is unknown; `tacit launch` then refuses.

    Args:
      reuse: stages whose outputs are reused from another launch, so that they spend nothing.
    """
    from pipeline.preflight.foresee import foresee
    from pipeline.run.cache import reused_stages

    if unwritten := _no_words(config):
        return Findings(tuple(unwritten))  # what else is computed needs the locale's letters
    kept = retention(config, settings.ledger_url, run_id)
    unusable = unusable_files(config, kept)
    terms, people = _people(config, kept, settings.ledger_url, readable=not unusable)
    foreseen = foresee(terms, settings, run_id, reused_stages(reuse))
    problems = (
        *unusable,
        *people.problems,
        *refusals(terms),
        *_unknown_reviewers(config, settings),
        *_no_gang(config, settings),
        *unusable_places(settings),
        *foreseen.problems,
    )
    of_launch, public = (*one_number(terms), *_nobody_answers(config)), pretrained(settings, run_id, reuse)
    of_gates = (*public_needs(config.policy, public), *uncertain(terms, public))
    notes = (*of_launch, *people.counted, *people.notes, *of_gates, *foreseen.notes)
    return Findings(problems, notes, people.counted)


def _nobody_answers(config: LaunchConfig) -> tuple[str, ...]:
    if config.report.contact != NOBODY_YET:
        return ()
    return (f"report.contact: still {NOBODY_YET!r}, which the report prints; write a name and an address",)


def require_schedule(config: LaunchConfig) -> tuple[str, ...]:
    """Check a schedule by the launch file alone; ValueError with every problem."""
    from pipeline.preflight import schedule

    terms = Terms.of_file(config, estimated_splits(config))
    if problems := above_policy(terms):
        raise ValueError("\n".join(problems))
    return (*one_number(terms), *schedule.require_fits(config, terms.spends["discover"]))


def require(
    config: LaunchConfig, settings: Settings, run_id: str, reuse: "Collection[CacheHit]" = ()
) -> tuple[str, ...]:
    """Return warnings for the launch's owner; ValueError with every problem."""
    seen = look(config, settings, run_id, reuse)
    if seen.problems:
        raise ValueError("\n".join((*seen.counted, *seen.problems)))
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


def _people(config: LaunchConfig, kept: Retention | None, ledger_url: str, *, readable: bool) -> tuple[Terms, Findings]:
    """The launch's terms with its devices as counted, or as the launch file states them.

    The devices of a registered population are split here as ``ingest_private`` splits them, and stage ``plan`` asks the
    same questions of the same numbers.

    Args:
      readable: False if a file is unusable, so that none are counted.
    """
    stated = Terms.of_file(config, estimated_splits(config), drawn=isinstance(config.private_text, Files))
    if not readable:
        return stated, Findings(())
    if not isinstance(config.private_text, Files):
        return stated, Findings(())
    try:
        unlike = unlike_locale(config, ledger_url, kept)
        if not countable(config):
            large = "private_text.paths: large files, so devices are counted when the launch reads them"
            return stated, Findings((), (large, *unlike))
        seen = count_devices(config, ledger_url, kept)
    except ValueError as error:
        return stated, Findings((str(error),))
    expected = config.private_text.splits.expected(seen.devices)
    splits, about, more = (seen.splits, "", "+") if seen.splits else (expected, "about ", "")
    parts = ", ".join(f"{name} {splits[name]:,}{more}" for name in ("train", "validation", "test"))
    counted = f"private_text: {seen.devices:,}+ devices of {config.locale}{seen.rows}; {about}{parts}"
    drawn = splits is not expected and seen.devices >= FEW
    terms = Terms.of_file(config, splits if drawn else expected, drawn=drawn)
    return terms, Findings((), (*unlike, *_needed(config, splits["test"])), (seen.filters, counted))


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
    """Return a check of each of the launch's texts; readers are imported only if there are files."""
    looks: list[Callable[[], object]] = []
    if isinstance(config.public_text, FileCorpus):
        from pretrain.text import sources

        looks.append(partial(sources.inspect, config.public_text))
    if isinstance(config.public_text, SampleCorpus):
        chat = config.public_text.source == "sample-with-chat"
        looks.append(partial(packaged_texts, config.locale, chat=chat))
    if isinstance(config.private_text, Files):
        from federated.devices import readers

        looks.append(partial(readers.inspect, config.private_text.paths, kept))
    if config.discovery.blocklist is not None:
        from discovery import review

        looks.append(partial(review.read_blocklist, Path(config.discovery.blocklist)))
    return looks


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


def estimated_splits(config: LaunchConfig) -> Mapping[str, int] | None:
    """Expected devices by split from the launch file alone; None if it states no number."""
    stated = stated_devices(config)
    return None if stated is None else config.private_text.splits.expected(stated)


def planned_discovery(config: LaunchConfig, run: RunDir) -> Spend:
    """Planned spend of word discovery: central, or local with the number of messages of the smallest layer.

    The plan ran before the vocabulary, which decides the layers' and the model's sizes, so the terms are checked again.

    Raises:
      ValueError: the launch would be refused or held.
      StageInputMissing: stage ``plan``, which makes all other checks, has not finished.
    """
    plan = run.record("plan")
    if plan is None:
        raise StageInputMissing(f"{run.launch_id}: stage 'plan' has not finished; it comes before anything is spent")
    known_words = load_vocabulary(run.input("ingest_public", "vocabulary.json")).words
    splits = run.result("ingest_private")["devices_by_split"]
    terms = Terms.of(config, plan.result["rho"], splits, known_words=known_words)
    if problems := refusals(terms):
        raise ValueError("\n".join((*problems, "nothing was spent on words")))
    return terms.spends["discover"]
