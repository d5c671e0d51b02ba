"""Verify the report: derive the disclosure from the stages again, and its renderings from the disclosure."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.ground.errors import LaunchError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.statement import composition
from pipeline.releases.total import spent_alone
from pipeline.run.bookkeeping import differences as file_differences
from pipeline.run.population import asked
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.second_run import differences
from pipeline.run.stage import StageContext
from pipeline.stages.report import decision_of, disclosed, disclosure, same_launch, says_otherwise
from pipeline.verify.check import Check, in_words
from pretrain.files import sha256
from reports import render
from reports.disclosure.document import Disclosure
from reports.paper import printed

_FILE = "disclosure.json"


def of_this_code(run: RunDir, settings: Settings, ledger: PrivacyLedger) -> bool:
    """Return whether the running commit wrote a launch's report; other code may give other results."""
    return bool(ledger.bound_results(run.launch_id)) and written_by_this_code(run, settings)


def written_by_this_code(run: RunDir, settings: Settings) -> bool:
    """Return whether a launch's disclosure names the running commit and its locked environments."""
    stated = disclosed(run)
    if stated is None:
        return False
    return (stated.tool.git_commit, stated.tool.lock_digests) == (settings.git_commit, dict(settings.lock_digests))


def report(
    config: LaunchConfig,
    run: RunDir,
    settings: Settings,
    records: Mapping[str, StageRecord],
    of_this_code: bool,
) -> Iterator[Check]:
    """Check the disclosure against the stages and the ledger."""
    stated = disclosed(run)
    if "report" not in records or stated is None:
        return  # ``rendered`` reports it.
    yield _derived(StageContext(config, run, settings, "report", None), stated, of_this_code)
    yield _ledger_then(stated, config, settings, of_this_code)


def rendered(run: RunDir, records: Mapping[str, StageRecord], of_this_code: bool) -> Iterator[Check]:
    """Check the disclosure's digest, every page against the disclosure, and the disclosure in the bundle."""
    stated = disclosed(run)
    if "report" not in records:
        return  # Unfinished or lost, which ``files`` reports.
    if stated is None:
        yield Check(id="disclosure", passed=False, detail="the disclosure is missing or unreadable")
        return
    yield _digest(run, records["report"])
    yield _rendered(stated, records["report"], of_this_code)
    if "publish" in records and records["publish"].result["published"]:
        yield _shipped(run, stated)
    if render.PDF in records["report"].outputs:
        yield _printed(run, stated)


def _digest(run: RunDir, record: StageRecord) -> Check:
    stated = record.result["disclosure_sha256"]
    same = sha256(run.path / "public" / "report" / _FILE) == stated
    detail = f"SHA-256 {stated[:12]}..." if same else f"{_FILE} differs from the one that stage report wrote"
    return Check(id="disclosure", passed=same, detail=detail)


def _derived(ctx: StageContext, stated: Disclosure, of_this_code: bool) -> Check:
    try:
        again = disclosure(ctx, decision_of(ctx))
    except (LaunchError, ValueError, KeyError) as error:
        return Check(id="disclosure:again", passed=False, detail=f"it cannot be derived again: {error}")
    wrong = list(says_otherwise(stated, again))
    if wrong and not of_this_code:
        detail = f"other code wrote it, and the running code gives another result: {in_words(wrong)}"
        return Check(id="disclosure:again", passed=None, detail=detail)
    detail = (
        f"differs from the stages: {in_words(wrong)}" if wrong else "every statement follows from the stages' results"
    )
    return Check(id="disclosure:again", passed=not wrong, detail=detail)


def _ledger_then(stated: Disclosure, config: LaunchConfig, settings: Settings, of_this_code: bool) -> Check:
    """Check that the ledger, at its length of that time, ended as disclosed and held the disclosed spends."""
    count, head = stated.verification.ledger_entries, stated.verification.ledger_head
    ledger = PrivacyLedger.of(settings)
    then = [entry for entry in ledger.entries() if entry.seq <= count]
    same = (ledger.hash_at(count) or None) == head
    again = composition(then, config.population, asked(config), spent_alone)
    detail = f"{count} entries then, ending in {str(head)[:12]}, with these spends"
    # Fields of later code were not stated at that time.
    listed = stated.composition.model_dump(exclude_unset=not of_this_code)
    same = same and not any(differences(listed, _like(listed, again.model_dump())))
    return Check(
        id="disclosure:ledger", passed=same, detail=detail if same else "the ledger did not hold the disclosed entries"
    )


def _like(stated: Any, again: Any) -> Any:
    """Restrict a value to the fields of another one."""
    if isinstance(stated, Mapping) and isinstance(again, Mapping):
        return {name: _like(stated[name], again[name]) for name in stated.keys() & again.keys()}
    if isinstance(stated, list | tuple) and isinstance(again, list | tuple) and len(stated) == len(again):
        return [_like(one, other) for one, other in zip(stated, again, strict=True)]
    return again


def _shipped(run: RunDir, stated: Disclosure) -> Check:
    """Check that the bundle's disclosure states the same; a report may have been written again since."""
    path = run.path / "public" / "publish" / "bundle" / _FILE
    same = same_launch(Disclosure.model_validate_json(path.read_bytes()), stated)
    detail = "the bundle's states the same of the launch" if same else "the bundle's states something else"
    return Check(id="disclosure:bundle", passed=same, detail=detail)


def _printed(run: RunDir, stated: Disclosure) -> Check:
    """Check that the PDF is the printed page; another machine's fonts and libraries may give other bytes."""
    folder = run.path / "public" / "report"
    page, paper = (folder / render.PAGE).read_text(encoding="utf-8"), (folder / render.PDF).read_bytes()
    if printed(page, stated.launch.created_at) == paper:
        return Check(id="rendered:pdf", passed=True, detail="the page, printed again, byte by byte")
    detail = "differs from this machine's print of the page: other fonts or libraries, or another text; read the page"
    return Check(id="rendered:pdf", passed=None, detail=detail)


def _rendered(stated: Disclosure, record: StageRecord, of_this_code: bool) -> Check:
    with tempfile.TemporaryDirectory() as folder:
        made = render.render(stated, Path(folder))
        again = {path.relative_to(folder).as_posix(): sha256(path) for path in made}
    wrong = file_differences({name: digest for name, digest in record.outputs.items() if name != render.PDF}, again)
    if wrong and not of_this_code:
        detail = f"other code rendered them, and the running code gives another result: {in_words(wrong)}"
        return Check(id="rendered", passed=None, detail=detail)
    detail = in_words(wrong) or f"{len(again)} files rendered again from the disclosure, byte by byte"
    return Check(id="rendered", passed=not wrong, detail=detail)
