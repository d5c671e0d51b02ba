"""Derive a launch's disclosure again, from its files, its records, the ledger and MLflow."""

import tempfile
from collections.abc import Container, Generator, Iterator, Mapping
from itertools import chain
from pathlib import Path

from pipeline.ground.errors import LaunchError, ServiceUnavailable
from pipeline.ground.settings import Settings, processor
from pipeline.launch.config import LaunchConfig, launch_id, load_kept_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, read_record
from pipeline.stages.graph import STAGES
from pipeline.stages.remade import of_stage
from pipeline.verify import files, guarantee, proof, registered, replay, report, reused
from pipeline.verify.check import Check, in_words
from pretrain.files import remove_leavings

SUBJECTS = (
    *("files", "ledger", "guarantee", "rendered", "sources", "proof", "participation", "disclosure", "again"),
    *("tracked", "registered"),
)
# Takes as long as training.
THOROUGH = (*SUBJECTS, "trained")


def verify(config: LaunchConfig, run: RunDir, settings: Settings, only: Container[str] = SUBJECTS) -> Iterator[Check]:
    """Yield all checks of one launch; it verifies if every one of them passed.

    Guarantee: a file or record that is missing on this machine gives a check that does not pass. Nothing is fetched
    into the launch's folder, so lost or changed files are detected.

    Args:
      only: subjects to check.
    """
    run, ledger = RunDir(run.root, run.launch_id, as_it_lies), PrivacyLedger.of(settings)
    remove_leavings(run.path / "private")
    records = yield from _records(run)
    ours = report.of_this_code(run, settings, ledger)
    subjects: dict[str, Iterator[Check]] = {
        "files": files.files(config, run, records, ledger),
        "ledger": chain(
            files.ledger_checks(run, records, ledger),
            files.answer_checks(config, run, ledger),
            reused.reused(run, records, ledger),
        ),
        **_public(config, run, settings, records, ours),
        "participation": guarantee.participation(config, run, records, files.missing(run, ledger)),
        "disclosure": report.report(config, run, settings, records, ours),
        "again": replay.replay(config, run, settings, records, ours),
        "trained": replay.trained(config, run, settings, records, ours),
        "tracked": registered.tracked(config, run, settings, records),
        "registered": registered.registered(config, run, settings, records),
    }
    for name, checks in subjects.items():
        if name in only:
            yield from _whole(name, checks)


def verify_public(folder: Path, settings: Settings, trusted: str | None = None) -> Iterator[Check]:
    """Yield all checks that the public folder of a launch allows, wherever it lies; they read nothing else.

    Args:
      trusted: SHA-256 of the ``launch.pub`` that the reader trusts; None: the reader compares.

    Raises:
      ValueError: it is no launch's public folder.
    """
    kept, stated = folder / "launch" / "launch.json", next(iter(sorted(folder.glob(f"*/{RESULT}"))), None)
    if not kept.is_file() or stated is None:
        raise ValueError(f"launch: {folder} is not the folder public/ of a launch with a finished stage; name one")
    config = load_kept_launch(kept)
    with tempfile.TemporaryDirectory() as place:
        # Under the launch's id, as its own folder is.
        run = RunDir(Path(place), read_record(stated).launch_id, as_it_lies)
        run.path.mkdir()
        (run.path / "public").symlink_to(folder.resolve(), target_is_directory=True)
        records = yield from _records(run)
        named = run.launch_id == (own := launch_id(config)) or run.launch_id.startswith(f"{own}-")
        yield Check(id="launch", passed=named, detail=f"{run.launch_id}, of a launch file whose id is {own}")
        ours = report.written_by_this_code(run, settings)
        subjects = {
            "files": files.published(config, run, records),
            **_public(config, run, settings, records, ours, trusted),
        }
        for name, checks in subjects.items():
            yield from _whole(name, checks)


def _records(run: RunDir) -> Generator[Check, None, dict[str, StageRecord]]:
    """Return the records of a launch, and yield a failed check for each that is damaged."""
    records = {}
    for name in STAGES:
        try:
            if record := run.record(name):
                records[name] = record
        except ValueError as error:
            yield Check(id=f"record:{name}", passed=False, detail=str(error))
    return records


def _public(
    config: LaunchConfig,
    run: RunDir,
    settings: Settings,
    records: Mapping[str, StageRecord],
    of_this_code: bool,
    trusted: str | None = None,
) -> dict[str, Iterator[Check]]:
    """Subjects that public files alone decide."""
    return {
        "guarantee": chain(
            guarantee.guarantee(config, run, records),
            guarantee.by_the_file(config, records),
            guarantee.whole(config, run, records),
        ),
        "rendered": report.rendered(run, records, of_this_code),
        "sources": _sources(config, run, settings, records, of_this_code),
        "proof": proof.proven(config, run, records, trusted),
    }


def _sources(
    config: LaunchConfig, run: RunDir, settings: Settings, records: Mapping[str, StageRecord], of_this_code: bool
) -> Iterator[Check]:
    """Check each stage's public fields and files; it opens no key, no store and no ledger."""
    for name, record in records.items():
        wrong = list(of_stage(config, run, settings, STAGES[name], record))
        excuse = "" if of_this_code else "other code made it"
        if record.processor != (here := processor()):
            excuse = excuse or f"made on {record.processor}; this is {here}, whose last digits may differ"
        if wrong and excuse:
            yield Check(id=f"sources:{name}", passed=None, detail=f"{excuse}: {in_words(wrong)}")
        else:
            detail = in_words(wrong) or "public files give every figure that says it follows from them"
            yield Check(id=f"sources:{name}", passed=not wrong, detail=detail)


def _whole(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Yield checks, and a failed check for an unreadable file that stops them."""
    try:
        yield from checks
    except ServiceUnavailable as error:
        yield Check(id=f"{name}:unreadable", passed=None, detail=str(error))
    except (LaunchError, ValueError, ArithmeticError, OSError, LookupError, TypeError) as error:
        yield Check(id=f"{name}:unreadable", passed=False, detail=f"{type(error).__name__}: {error}")
