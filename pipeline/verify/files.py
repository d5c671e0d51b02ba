"""Verify a launch's files: exactly those that its records name, and records that the ledger holds."""

import json
from collections.abc import Collection, Container, Iterator, Mapping
from functools import cache
from pathlib import Path

from pipeline.launch.config import FOLDER_NAME, LaunchConfig, config_digest
from pipeline.ledger.entries import SPENDING, Entry, Spend
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.answers import answers
from pipeline.publication.approvals import Standing, standing
from pipeline.run import bookkeeping
from pipeline.run.attempts import latest
from pipeline.run.bookkeeping import differences
from pipeline.run.proof import BESIDE, FOLDER, OUTCOME
from pipeline.run.run_dir import ERASED, RESULT, STATE, RunDir, StageRecord, receipt_digest
from pipeline.stages.graph import STAGES, is_evidence
from pipeline.verify.check import Check, in_words, of_missing_stage, strict_json
from pretrain.files import sha256
from reports.standing import badge

# Folders beside those of stages, and their files; None: any.
_BESIDE: dict[str, Mapping[str, Collection[str] | None]] = {
    "public": {**BESIDE, FOLDER: None},  # the proof's files are those of its records: ``verify.proof``
    "private": {},
}


def files(
    config: LaunchConfig, run: RunDir, records: Mapping[str, StageRecord], ledger: PrivacyLedger
) -> Iterator[Check]:
    """Check each stage's files, its record in the ledger and its private folder; then files of no stage."""
    bound = ledger.bound_results(run.launch_id)
    now = cache(lambda: standing(config, run, ledger))
    for name in STAGES:
        record = records.get(name)
        if record is None:
            ended = of_missing_stage(name, config, records, now, latest(run.path, name), is_bound=name in bound)
            yield from () if ended is None else (ended,)
            continue
        yield _stage_files(name, config, run, record)
        yield _bound(name, record, bound, ledger.entries_of_launch(run.launch_id))
        yield from _private(name, run, record, missing(run, ledger))
    if (run.path / "public" / "launch" / STATE).exists():
        yield _state(run, now())
    yield from _outcome(run, ledger.entries_of_launch(run.launch_id))
    added = list(_added(run, records))
    yield Check(id="files", passed=not added, detail=in_words(added) or "no files but those of the stages")


def published(config: LaunchConfig, run: RunDir, records: Mapping[str, StageRecord]) -> Iterator[Check]:
    """Check the public half alone: each stage's files against its record, and that there are no others.

    A launch that was not published ended held or not approved; people's answers are in the ledger.
    """
    held = "decide" in records and records["decide"].result["decision"] != "launch"
    ended = Standing(state="held" if held else "waiting", detail="no model is published")
    for name in STAGES:
        if name in records:
            yield _stage_files(name, config, run, records[name])
        elif missing_stage := of_missing_stage(name, config, records, lambda: ended, None, is_bound=False):
            yield missing_stage
    added = [
        *_added_in("public", run, records),
        *(_of_no_record(run, records, held=held) if "decide" in records else ()),
    ]
    strict_json((run.public("launch") / "launch.json").read_bytes())
    yield Check(id="files", passed=not added, detail=in_words(added) or "no files but those of the stages")


def _of_no_record(run: RunDir, records: Mapping[str, StageRecord], *, held: bool) -> Iterator[str]:
    """Yield messages for files of stages without a record; evidence that failed may have left some in a held launch."""
    for name in STAGES:
        folder = run.path / "public" / name
        if name not in records and folder.is_dir() and not (held and is_evidence(name)):
            yield from (f"{name}/{path.relative_to(folder)} was added" for path in folder.rglob("*") if path.is_file())


def _state(run: RunDir, now: Standing) -> Check:
    """Check that the picture beside the report shows the launch's state."""
    drawn = (run.path / "public" / "launch" / STATE).read_text(encoding="utf-8")
    same = drawn == badge(now.state, now.detail)
    detail = f"{STATE} says {now.state}" if same else f"{STATE} does not say that the launch is {now.state}"
    return Check(id="state", passed=same, detail=detail)


def _outcome(run: RunDir, entries: list[Entry]) -> Iterator[Check]:
    """Check that the ledger's decision about the published model names this file; nothing if nothing was decided."""
    path = run.path / "public" / "launch" / OUTCOME
    decided = {entry.names("result") for entry in entries if entry.kind == "note"} - {""}
    if decided or path.exists():
        same = path.is_file() and {sha256(path)} == decided
        detail = f"{OUTCOME} {'matches' if same else 'is lost, or does not match'} the ledger"
        yield Check(id="outcome", passed=same, detail=detail)


def _stage_files(name: str, config: LaunchConfig, run: RunDir, record: StageRecord) -> Check:
    if record.config_digest != config_digest(config):
        return Check(id=f"files:{name}", passed=False, detail="made from another configuration")
    try:
        wrong = differences(record.outputs, run.manifest(name))
        strict_json((run.path / "public" / name / RESULT).read_bytes())
    except ValueError as error:
        wrong = [str(error)]
    if wrong:
        return Check(id=f"files:{name}", passed=False, detail=in_words(wrong))
    made = f", made by {record.reused_from}" if record.reused_from else ""
    return Check(id=f"files:{name}", passed=True, detail=f"{len(record.outputs)} files have their digests{made}")


def _bound(name: str, record: StageRecord, bound: Mapping[str, tuple[str, str]], entries: list[Entry]) -> Check:
    """Check that the ledger holds the record's digest, and its receipts."""
    digest, receipt = bound.get(name, ("", ""))
    spent = {entry.does: entry.hash for entry in entries if (entry.launch_id, entry.stage) == (record.launch_id, name)}
    # A launch whose source was lost during a reuse made a new release.
    kinds = ("reserve", "commit") if "commit" in spent else ("reuse",)
    receipts = {kind: spent[kind] for kind in kinds if kind in spent} | {"result": receipt}
    if receipt_digest(record) != digest:
        return Check(id=f"bound:{name}", passed=False, detail=f"{RESULT} does not match the ledger")
    if record.ledger != receipts:
        return Check(id=f"bound:{name}", passed=False, detail="its receipts do not match the ledger's entries")
    return Check(id=f"bound:{name}", passed=True, detail=f"{RESULT} matches the ledger")


def is_gone(run: RunDir, stage: str) -> bool:
    """Return whether a stage's private folder holds only bookkeeping files."""
    folder = run.path / "private" / stage
    return not folder.is_dir() or {entry.name for entry in folder.iterdir()} <= bookkeeping.TRACES


def missing(run: RunDir, ledger: PrivacyLedger) -> tuple[bool | None, str]:
    """Result for a missing private folder: verified only if it was erased after a verification.

    Guarantee: a statement of that verification counts only if the ledger holds its digest.
    """
    path = run.path / "public" / "launch" / ERASED
    if not path.is_file():
        return None, "cannot be checked: the private folder is not on this machine"
    stated = json.loads(path.read_text(encoding="utf-8"))
    if not stated["verified"]:
        return None, f"cannot be checked: erased on {stated['erased_at'][:10]} without verification"
    if ledger.bound_results(run.launch_id).get(ERASED, ("", ""))[0] != sha256(path):
        return False, f"{ERASED} does not match the ledger"
    return True, f"erased on {stated['erased_at'][:10]}; the whole launch had verified before"


def _private(name: str, run: RunDir, record: StageRecord, gone: tuple[bool | None, str]) -> Iterator[Check]:
    if not record.private_outputs:
        return
    if is_gone(run, name):
        yield Check(id=f"private:{name}", passed=gone[0], detail=gone[1])
    elif record.private_digest is None:
        yield Check(id=f"private:{name}", passed=False, detail="its record has no digest of the private folder")
    else:
        try:
            wrong = run.private_problems(name, record.private_digest)
        except ValueError as error:
            wrong = [str(error)]
        yield Check(id=f"private:{name}", passed=not wrong, detail=in_words(wrong) or "as the stage left it")


def _added(run: RunDir, finished: Container[str]) -> Iterator[str]:
    """Yield messages for files and folders of a launch that no stage writes."""
    for path in sorted(run.path.iterdir()):
        known = path.is_dir() if path.name in _BESIDE else path.name == FOLDER_NAME and path.is_file()
        if not known or path.is_symlink():
            yield f"{path.name} was added"
    for half in _BESIDE:
        yield from _added_in(half, run, finished)


def _added_in(half: str, run: RunDir, finished: Container[str]) -> Iterator[str]:
    beside = _BESIDE[half]
    for folder in sorted((run.path / half).iterdir()) if (run.path / half).is_dir() else ():
        place = f"{half}/{folder.name}"
        if folder.name in beside:
            allowed = beside[folder.name]
            yield from (
                f"{place}/{path.name} was added"
                for path in folder.iterdir()
                if path.is_symlink() or (allowed is not None and not (path.name in allowed and path.is_file()))
            )
        elif folder.name not in STAGES or not folder.is_dir() or folder.is_symlink():
            yield f"{place} was added"
        else:
            yield from _left_over(folder, place, is_finished=folder.name in finished)


def _left_over(folder: Path, place: str, *, is_finished: bool) -> Iterator[str]:
    """Yield messages for unknown hidden files in a stage's folder, and for empty folders of a finished stage."""
    for path in sorted(folder.rglob("*")):
        if not is_finished and (path.is_dir() or bookkeeping.is_in_progress(path.relative_to(folder))):
            continue
        hidden = path.name.startswith(".") and not bookkeeping.is_known(path, folder)
        if hidden or (path.is_dir() and not any(path.iterdir())):
            yield f"{place}/{path.relative_to(folder).as_posix()} was left or added"


def ledger_checks(run: RunDir, records: Mapping[str, StageRecord], ledger: PrivacyLedger) -> Iterator[Check]:
    """Check that the ledger is whole, and holds every receipt of the launch and the spends of its stages."""
    problems = ledger.verify([receipt for record in records.values() for receipt in record.ledger.values()])
    yield Check(id="ledger", passed=not problems, detail="; ".join(problems) or "the ledger is whole")
    ours = [entry for entry in ledger.entries_of_launch(run.launch_id) if entry.kind in SPENDING]
    entries = {entry.stage: entry for entry in ours}
    for name, record in records.items():
        if record.result.get("spend") is None:
            continue
        spend, entry = record.result["spend"], entries.get(name)
        same = entry is not None and entry.kind == "commit" and entry.spend == Spend.model_validate(spend)
        detail = "the ledger holds the stage's spend" if same else "the ledger does not hold the stage's spend"
        yield Check(id=f"spend:{name}", passed=same, detail=detail)


def answer_checks(config: LaunchConfig, run: RunDir, ledger: PrivacyLedger) -> Iterator[Check]:
    """Check that each answer about the launch was signed for it by who gave it; nothing without answers."""
    given = answers(ledger, config.population, ledger.entries_of_launch(run.launch_id))
    wrong = [each.problem for each in given if each.problem]
    who = ", ".join(each.review.who for each in given if each.review is not None)
    if given:
        detail = in_words(wrong) or f"each is signed for this launch and the report that was read: {who}"
        yield Check(id="answers", passed=not wrong, detail=detail)
