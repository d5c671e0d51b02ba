"""Derive a launch's disclosure again, from its files, its records, the ledger and MLflow."""

from collections.abc import Callable, Container, Iterator
from itertools import chain

from pipeline.ground.errors import LaunchError, ServiceUnavailable
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RunDir
from pipeline.stages.graph import STAGES
from pipeline.verify import files, guarantee, registered, replay, report, reused, sources
from pipeline.verify.check import Check, Verification, verification
from pretrain.files import remove_leavings

SUBJECTS = ("files", "ledger", "guarantee", "participation", "disclosure", "sources", "again", "tracked", "registered")
# Takes as long as training.
THOROUGH = (*SUBJECTS, "trained")


def verify_launch(
    config: LaunchConfig,
    run: RunDir,
    settings: Settings,
    *,
    thorough: bool = False,
    on_check: Callable[[Check], None] = lambda check: None,
) -> Verification:
    """Make every check of one launch, and summarise them; see ``verify``.

    Args:
      thorough: also repeat training, which takes as long as before.
      on_check: called with each check.
    """
    checks = []
    for check in verify(config, run, settings, THOROUGH if thorough else SUBJECTS):
        on_check(check)
        checks.append(check)
    return verification(checks)


def verify(config: LaunchConfig, run: RunDir, settings: Settings, only: Container[str] = SUBJECTS) -> Iterator[Check]:
    """Yield all checks of one launch; it verifies if every one of them passed.

    Guarantee: a file or record that is missing on this machine gives a check that does not pass. Nothing is fetched
    into the launch's folder, so lost or changed files are detected.

    Args:
      only: subjects to check.
    """
    run, ledger = RunDir(run.root, run.launch_id, as_it_lies), PrivacyLedger.of(settings)
    remove_leavings(run.path / "private", below=False)
    records = {}
    for name in STAGES:
        try:
            if record := run.record(name):
                records[name] = record
        except ValueError as error:
            yield Check(id=f"record:{name}", passed=False, detail=str(error))
    ours = report.of_this_code(run, settings, ledger)
    subjects: dict[str, Iterator[Check]] = {
        "files": chain(files.files(config, run, records, ledger), files.experiment_ended(config, run, ledger)),
        "ledger": chain(
            files.ledger_checks(run, records | files.experiment_record(run), ledger),
            reused.reused(run, records, ledger),
        ),
        "guarantee": chain(
            guarantee.guarantee(config, run, records),
            guarantee.by_the_file(config, records),
            guarantee.whole(config, run, records),
        ),
        "participation": guarantee.participation(config, run, records, files.missing(run, ledger)),
        "disclosure": report.report(config, run, settings, records, ours),
        "sources": sources.sources(config, run, settings, records, ours),
        "again": replay.replay(config, run, settings, records, ours),
        "trained": replay.trained(config, run, settings, records, ours),
        "tracked": registered.tracked(config, run, settings, records | files.experiment_record(run)),
        "registered": registered.registered(config, run, settings, records),
    }
    for name, checks in subjects.items():
        if name in only:
            yield from _whole(name, checks)


def _whole(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Yield checks, and a failed check for an unreadable file that stops them."""
    try:
        yield from checks
    except ServiceUnavailable as error:
        yield Check(id=f"{name}:unreadable", passed=None, detail=str(error))
    except (LaunchError, ValueError, ArithmeticError, OSError, LookupError, TypeError) as error:
        yield Check(id=f"{name}:unreadable", passed=False, detail=f"{type(error).__name__}: {error}")
