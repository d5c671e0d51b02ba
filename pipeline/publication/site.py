"""Build the site of all launches, an index and keyboards to try, from ledger entries and accepted records."""

import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path

from evaluation.keyboard import layouts
from federated.config.population import PopulationKey
from pipeline.ground import clock
from pipeline.ground.settings import Settings
from pipeline.ledger.budget import Ceilings, ceilings, registered
from pipeline.ledger.entries import SPENDING, Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.loss import added, releases
from pipeline.ledger.statement import spent_by
from pipeline.publication.answers import counting
from pipeline.publication.launches import entries_of, listed
from pipeline.run import named
from pipeline.run.known import ledger_belief_now
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import Stages
from pretrain.files import sha256
from pretrain.text import tokenise
from reports import site
from reports.figures.trends import Course
from reports.keyboard import Writing
from reports.site import Launches, LedgerLaunch, Site

_WEIGHTS = "model.safetensors"


def build(here: Settings, stages: Stages) -> Site:
    """Write an index of all launches into the runs directory, and keyboards to try published ones on."""
    entries, rows = entries_of(here) or (), listed(here, stages)
    return site.build(
        here.runs_dir,
        here.web_dir,
        lambda locale: Writing(layouts.rows(locale), tokenise.for_browsers(locale)),
        _published(here),
        public_models(here),
        Launches(
            rows=[asdict(row) | {"began": row.began.isoformat(timespec="seconds")} for row in rows],
            elsewhere=_elsewhere(here, entries, named.begun(here)),
            courses=[
                course
                for name in dict.fromkeys(PopulationKey(row.population) for row in rows)
                for course in courses(entries, name)
            ],
        ),
    )


def _published(here: Settings) -> Callable[[str], Mapping[str, str]]:
    """Return a function that lists a launch's published files, from records that the ledger holds."""
    believes = ledger_belief_now(here.ledger_url)

    def files(run_id: str) -> Mapping[str, str]:
        record = RunDir(here.runs_dir, run_id, believes).record("publish")
        return record.outputs if record and record.result["published"] else {}

    return files


def public_models(here: Settings) -> Callable[[str, Path], bytes | None]:
    """Return a function that writes the model from which a launch's training began as a graph with int8 weights.

    Guarantee: it is the file that stage ``adapt`` left in the public folder, whose digest the ledger holds.
    """
    believes = ledger_belief_now(here.ledger_url)

    def graph(run_id: str, bundle: Path) -> bytes | None:
        record = RunDir(here.runs_dir, run_id, believes).record("adapt")
        weights = here.runs_dir / run_id / "public" / "adapt" / _WEIGHTS
        if record is None or not weights.is_file() or sha256(weights) != record.outputs.get(_WEIGHTS):
            return None
        # Slow to import: torch.
        from pretrain.model import export

        with tempfile.TemporaryDirectory() as folder:
            exact, small = Path(folder) / "start.onnx", Path(folder) / "start.int8.onnx"
            export.export_onnx(export.same_shape(weights, bundle / "model.onnx"), exact)
            export.quantise(exact, small)
            return small.read_bytes()

    return graph


def _elsewhere(here: Settings, entries: Collection[Entry], begun: Collection[str]) -> list[LedgerLaunch]:
    """Launches of other machines, which only the ledger holds, newest first."""
    others: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.launch_id and entry.launch_id not in begun:
            others.setdefault(entry.launch_id, []).append(entry)
    listed = [
        LedgerLaunch(
            launch_id=name,
            populations=tuple(dict.fromkeys(entry.population for entry in theirs if entry.does in SPENDING)),
            spent=tuple(map(str, spent_by(name, theirs))),
            began=theirs[0].created_at,
            ended=theirs[-1].created_at,
            approvers=_approvers(here, theirs),
        )
        for name, theirs in others.items()
    ]
    return sorted(listed, key=lambda each: each.began, reverse=True)


def _approvers(here: Settings, of_launch: Collection[Entry]) -> tuple[str, ...]:
    """Accounts that approved a launch, each once, in order of their approval."""
    answers = counting(PrivacyLedger.of(here), next(iter(of_launch)).population, of_launch)
    return tuple(dict.fromkeys(review.who for _, review in answers if review.answer == "approve"))


def courses(entries: Collection[Entry], population: PopulationKey) -> list[Course]:
    """Time series of a device's rho against each ceiling of a population, from its registration to now.

    A spend counts as the ledger counts it now: with its committed amount, from the time of its reservation.
    """
    theirs = [entry for entry in entries if entry.population == population]
    changes = [entry.created_at for entry in theirs if entry.kind in ("register", "budget")]
    counted, now = releases(theirs, population, "device"), clock.written(clock.now())

    def ceiling(days: int | None, at: str) -> float | None:
        then = registered((entry for entry in theirs if entry.created_at <= at), population)
        every = ceilings(then, Ceilings())
        return next((each.amount for each in every if (each.unit, each.days) == ("device", days)), None)

    def point(days: int | None, at: str) -> tuple[datetime, float, float | None]:
        since = clock.counts_since(days, at=datetime.fromisoformat(at))
        spent = added(each for each in counted if since <= each.written <= at)
        return datetime.fromisoformat(at), spent, ceiling(days, at)

    rows = []
    every = ceilings(registered(theirs, population), Ceilings())
    for days in dict.fromkeys(each.days for each in every if each.unit == "device"):
        times = {*changes, *(each.written for each in counted), now}
        if days is not None:  # It leaves the sum just after the last window that contains it.
            over = timedelta(days=days, microseconds=1)
            times |= {clock.written(datetime.fromisoformat(each.written) + over) for each in counted}
        rows.append(Course(population, days, tuple(point(days, at) for at in sorted(times) if at <= now)))
    return rows
