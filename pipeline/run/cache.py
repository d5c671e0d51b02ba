"""The cache that launches share: content keys of stages, identical stages of other launches, and taking them over.

A stage is identified by its content key: its name, its code and libraries, the fields of the launch file that it reads,
and all else that decides its outputs. Where another launch made an identical one, its files are copied, so they outlive
that launch, and they are put in place all at once.

A public stage (``run.stage.is_public``) may come from any machine, through the tracking server. Every other stage
follows private data: its key is an HMAC under the population's split secret, so that it tells nothing of the text, and
it comes from this machine's folders. A release is post-processing to whoever uses it again: words or counts that one
launch released cost the people of that population nothing more in the next. It is paid once: the ledger holds the
commit, for the same amounts and of the same population, and notes each re-use with the audit that the release passed.
"""

import hashlib
import hmac
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Protocol

from pydantic import ValidationError

import pretrain
from pipeline.ground.errors import LaunchError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, config_digest
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.spend import Spend
from pipeline.run.bookkeeping import AUDIT, CONTENT, PROCESSORS, WINDOW, is_same
from pipeline.run.known import as_it_lies, ledger_belief_now
from pipeline.run.population import require_population
from pipeline.run.run_dir import GIVEN, RESULT, RunDir, StageRecord, receipt_digest, record_digest
from pipeline.run.stage import Stage, StageContext, Stages, field_of, is_public, view
from pipeline.telemetry.allowed import this_hour, two_digits
from pretrain.files import PRIVATE, atomic, private_directory, scratch, sha256, text_sha256, write_text
from reports.disclosure.findings import ReleaseAudit

_log = logging.getLogger(__name__)

# (file name, destination) -> whether it was found; the file is then at the destination.
FetchFile = Callable[[str, Path], bool]


class Shelf(Protocol):
    """Source of finished public stages of other machines; the part of ``tracking.MlflowTracker`` needed here."""

    def identical(self, stage: str, content: str) -> Iterator[tuple[StageRecord, FetchFile]]:
        """Finished stages with this content key, each with what fetches its files."""


@dataclass(frozen=True)
class Source:
    """A finished stage of another launch with the content key asked for.

    Attributes:
      fetch: brings its public files.
      run: its launch's folder on this machine; None where it comes from the tracking server.
      paid: what the ledger holds of its release, to be noted with a re-use; None where it released nothing.
      audit: of its release, which it passed; None where it released nothing, or nobody has audited it yet.
      problem: why it may not be taken over; empty if it may.
    """

    record: StageRecord
    fetch: FetchFile
    run: RunDir | None
    paid: Mapping[str, object] | None
    audit: ReleaseAudit | None
    problem: str


@dataclass(frozen=True)
class CacheHit:
    """A stage of which another launch made the same.

    Attributes:
      launch_id: that launch; of a release, the one that paid for it.
      problem: why it would be made anew all the same; empty if it is taken over.
      paid: what was paid for it, in words; empty where it released nothing.
    """

    stage: str
    launch_id: str
    problem: str
    paid: str

    def __str__(self) -> str:
        if self.problem:
            return f"{self.stage}: launch {self.launch_id} made the same, but {self.problem}, so it is made anew"
        spent = f", which spent {self.paid}; nothing is spent on it again" if self.paid else ""
        return f"{self.stage}: taken over from launch {self.launch_id}{spent}"


def content_key(ctx: StageContext, stages: Stages) -> str | None:
    """The content key of a stage as things are now; None if something that it reads is not there.

    Args:
      ctx: of the whole configuration.
    """
    stage, used = stages[ctx.stage], dict(ctx.run.used)
    content: dict[str, object] = {
        "stage": ctx.stage,
        "code": code_digest(Path(pretrain.__file__).parents[1], stage.code),
        "libraries": {name: version_of(name) for name in stage.libraries},
        "config": {name: field_of(ctx.config.model_dump(mode="json"), name) for name in stage.reads(ctx.config)},
    }
    seen = replace(ctx, config=view(ctx.config, ctx.stage, stages))
    try:
        given = stage.given(seen)
        if given is None:
            return None
        content["given"] = given
        if is_public(ctx.stage, stages):
            before = {name: ctx.run.record(name) for name in stage.opens}
            if None in before.values():
                return None
            # A private stage says in ``given`` what counts of the stages before it: more would ask people again.
            content["after"] = {name: record_digest(record) for name, record in before.items() if record}
            return text_sha256(json.dumps(content, sort_keys=True))
        secret = PrivacyLedger.of(ctx.settings).split_secret(ctx.population)
    except (LaunchError, ValueError, LookupError, OSError):
        return None  # The stage itself says what is missing, or does without.
    finally:
        # What decides the key is no input of the stage yet.
        ctx.run.used.clear()
        ctx.run.used.update(used)
    key = hmac.digest(secret, b"tacit content key", hashlib.sha256)
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def sources(
    ctx: StageContext,
    stages: Stages,
    content: str,
    planned: Spend | None = None,
    shelf: Shelf | None = None,
    *,
    audits: bool = False,
) -> Iterator[Source]:
    """Finished stages of other launches with this content key, those of this machine first; nothing is written.

    Args:
      planned: what the stage would spend, so that a source's spend must be the same; None before that is known.
      shelf: where public stages of other machines are.
      audits: audit a release that no launch has audited yet, from the private files of the one that made it.
    """
    stage = stages[ctx.stage]
    for path in sorted(ctx.run.root.glob(f"*/public/{ctx.stage}/{RESULT}")):
        try:
            run = RunDir(ctx.run.root, path.parents[2].name, as_it_lies)
            record = run.record(ctx.stage)
        except (OSError, ValueError):
            continue  # Damaged, or deleted meanwhile.
        if record is not None and record.content == content and run.launch_id != ctx.run.launch_id:
            paid, audit = paid_for(record, ctx, planned) if stage.spends else None, None
            problem = refusal(ctx, stages, record, run, paid)
            if stage.spends and not problem:
                audit = stage.audit and stage.audit(ctx, record.reused_from or record.launch_id, run.launch_id, audits)
                problem = _unproven(audit, audits)
            yield Source(record, partial(copy, path.parent), run, paid, audit, problem)
    for record, fetch in shelf.identical(ctx.stage, content) if shelf and is_public(ctx.stage, stages) else ():
        if (record.stage, record.content) == (ctx.stage, content) and record.launch_id != ctx.run.launch_id:
            yield Source(record, fetch, None, None, None, refusal(ctx, stages, record, None, None))


def _unproven(audit: ReleaseAudit | None, audits: bool) -> str:
    """Why the audit of a release does not let it be taken over; empty if it does, or is still to be made."""
    if audit is None:
        return "its release was never audited, and its private files no longer let it be" if audits else ""
    wrong = [verdict.name for verdict in audit.verdicts if not verdict.passed]
    return f"the audit of its release speaks against it ({', '.join(wrong)})" if wrong else ""


def refusal(
    ctx: StageContext, stages: Stages, record: StageRecord, run: RunDir | None, paid: Mapping[str, object] | None
) -> str:
    """Why an identical stage of another launch may not be taken over; empty if it may: the one place that decides it.

    Guarantee: the ledger holds the record. A public stage spent nothing and left nothing private; its files are held
    against their digests as they are copied. A release was paid for, and every file of it is as the stage sealed it.

    Args:
      run: the launch's folder; None where it comes from the tracking server.
      paid: what the ledger holds of its release.
    """
    stage = stages[ctx.stage]
    if not ctx.run.believes(record):
        return f"its {RESULT} is not what the ledger holds"
    if is_public(ctx.stage, stages):
        return "it spent, or left private files" if record.private_outputs or "reserve" in record.ledger else ""
    assert run is not None, f"{ctx.stage}: a stage that follows private data is found on this machine alone"
    if stage.spends and paid is None:
        return "the ledger holds no spend of it"
    if changed := [name for name, digest in record.outputs.items() if not run.available(record.stage, name, digest)]:
        return f"{changed[0]} was changed or lost"
    return _private_refusal(stage, record, run) if stage.private else ""


def _private_refusal(stage: Stage, record: StageRecord, run: RunDir) -> str:
    if run.erased or not (run.path / "private" / record.stage).is_dir():
        return "its private files were erased"
    if record.private_digest is None:
        return "its private files were never sealed"
    wrong = run.private_problems(record.stage, record.private_digest)
    return f"its private files are not as it left them: {wrong[0]}" if wrong else ""


def take_over(
    ctx: StageContext, stages: Stages, planned: Spend | None, shelf: Shelf | None = None
) -> StageRecord | None:
    """Reuse the outputs of an identical stage: copy them, and return this launch's record; None if it is to be run.

    Guarantee: nothing is released. What is taken over was released by a launch whose commit the ledger holds for the
    same amounts, and passed its audit, which the ledger's entry cites; or it releases nothing. The record is the one
    that the ledger knows, and every file has the digest that the stage recorded. No key is copied, and no name leads
    out of the stage's folder. A stage that has a standing reservation of its own resumes it.

    Args:
      ctx: of the whole configuration, without a key.
      planned: what the stage would spend; None if it releases nothing.

    Raises:
      PopulationUnknown, BudgetExceeded: the launch asks for more than its population has.
    """
    started, clock, stage = this_hour(), time.monotonic(), stages[ctx.stage]
    ledger = PrivacyLedger.of(ctx.settings)
    if not is_public(ctx.stage, stages):
        require_population(ctx.config, ledger)
        if ledger.reserved(ctx.run.launch_id, ctx.stage):
            return None
    content = content_key(ctx, stages)
    for source in sources(ctx, stages, content, planned, shelf, audits=True) if content else ():
        record, problem = source.record, source.problem
        inputs = None if problem else _inputs(record, ctx.run)
        if inputs is None or not _brought(source, ctx, stage):
            why = problem or (
                "what it was made of is not what is here" if inputs is None else "its files are not whole"
            )
            _log.warning("%s: launch %s made the same, but it is not used: %s", ctx.stage, record.launch_id, why)
            continue
        receipts = {}
        if source.paid is not None and source.audit is not None:
            write_text(ctx.private / AUDIT, source.audit.model_dump_json(indent=1) + "\n", PRIVATE)
            cited = {**source.paid, "audit": audit_digest(source.audit)}
            noted = ledger.note("reuse", ctx.population, ctx.run.launch_id, ctx.stage, cited)
            receipts["reuse"] = noted.hash
        _log.info("%s: the same as %s's, taken over", ctx.stage, record.launch_id)
        return record.model_copy(
            update={
                "launch_id": ctx.run.launch_id,
                "config_digest": config_digest(ctx.config),
                "inputs": inputs,
                "private_outputs": bool(stage.private),
                "private_digest": ctx.run.seal_private(ctx.stage) if stage.private else None,
                "ledger": receipts,
                "started_at": started,
                "seconds": two_digits(time.monotonic() - clock),
                # This launch spends nothing on it.
                "result": record.result | ({"spend": None} if "spend" in record.result else {}),
                "reused_from": record.reused_from or record.launch_id,
            }
        )
    return None


def marked(ctx: StageContext, stages: Stages, compute: Callable[[], StageRecord]) -> StageRecord:
    """The record of a stage that is run now, with its content key if all that was read was the same all along.

    The stage's folder notes the key with which it was begun: what changed meanwhile, or between this attempt and an
    earlier one, may have been read both ways.
    """
    content, marker = content_key(ctx, stages), ctx.public / CONTENT
    if content is None:
        return compute()
    if not marker.exists():
        left = any(path.name != PROCESSORS for path in ctx.public.iterdir())
        begun_before = left or ctx.run.left_by_devices(ctx.stage)
        write_text(marker, "unknown" if begun_before else content)
    record = compute()
    same = marker.is_file() and marker.read_text(encoding="utf-8") == content and content_key(ctx, stages) == content
    if is_public(ctx.stage, stages):
        undeclared = {path.partition("/")[0] for path in record.inputs} - set(stages[ctx.stage].opens)
        assert not undeclared, f"{ctx.stage}: it used {undeclared}, which its content key leaves out"
        same = same and not record.private_outputs
    return record.model_copy(update={"content": content if same else None})


def paid_for(record: StageRecord, ctx: StageContext, planned: Spend | None) -> Mapping[str, object] | None:
    """Ledger binding of a release that is reused; None if nobody paid for it.

    Guarantee: the launch that released it committed, on the same population, exactly what a release anew would spend.
    """
    entries = PrivacyLedger.of(ctx.settings).entries(ctx.population)
    if record.reused_from is not None:
        # Handed on: what was written down when it was taken over, which names who paid.
        payments = (entry for entry in entries if _is(entry, record.launch_id, record.stage, "reuse"))
        paid = next((json.loads(entry.binding) for entry in payments), None)
    else:
        payments = (entry for entry in entries if _is(entry, record.launch_id, record.stage, "commit"))
        paid = next(({"launch": record.launch_id, "commit": entry.hash} for entry in payments), None)
        paid = paid and paid | {"record": receipt_digest(record), "said": said(record)}
    commit = None if paid is None else commit_of(paid, record.stage, entries)
    if commit is None or (planned and commit.spend.model_copy(update={"note": planned.note}) != planned):
        return None
    return paid


def commit_of(paid: Mapping[str, object], stage: str, entries: Iterable[Entry]) -> Entry | None:
    """The commit that a re-use names; None if there is none."""
    named = (entry for entry in entries if entry.hash == paid["commit"])
    return next((entry for entry in named if _is(entry, str(paid["launch"]), stage, "commit")), None)


def reused_commit(record: StageRecord, entries: Iterable[Entry]) -> Entry | None:
    """The commit that covers a release taken over; None if the ledger holds no re-use of it."""
    entries = list(entries)
    noted = next((entry for entry in entries if _is(entry, record.launch_id, record.stage, "reuse")), None)
    return None if noted is None else commit_of(json.loads(noted.binding), record.stage, entries)


def audit_digest(audit: ReleaseAudit) -> str:
    """SHA-256 of the verdicts on a release and of who made it, whoever audited it: a re-use cites it in the ledger."""
    return text_sha256(json.dumps(audit.model_dump(mode="json", exclude={"cited"}), sort_keys=True))


def cited_audit(run: RunDir, stage: str, ledger: PrivacyLedger) -> ReleaseAudit | None:
    """The audit that a launch cites of a release that it took over; None unless the ledger holds its digest."""
    path, noted = run.path / "private" / stage / AUDIT, ledger.noted("reuse", run.launch_id, stage)
    if noted is None or not path.is_file():
        return None
    try:
        audit = ReleaseAudit.model_validate_json(path.read_bytes())
    except ValidationError:
        return None
    return audit if audit_digest(audit) == noted.names("audit") else None


def said(record: StageRecord) -> str:
    """SHA-256 of what a stage said of a release and left of it, but for who paid: the same in every launch."""
    result = {name: value for name, value in record.result.items() if name != "spend"}
    return text_sha256(json.dumps({"outputs": record.outputs, "result": result}, sort_keys=True))


def _is(entry: Entry, launch_id: str, stage: str, kind: str) -> bool:
    return (entry.launch_id, entry.stage, entry.kind) == (launch_id, stage, kind)


def _inputs(record: StageRecord, run: RunDir) -> dict[str, str] | None:
    """The inputs of a source as this launch has them; None if one of them has other bytes here."""
    here = {}
    for path, digest in record.inputs.items():
        stage, _, name = path.partition("/")
        if stage == GIVEN:
            here[path] = run.given_digest(name) or ""
        elif (made := run.record(stage)) is None:
            return None
        elif name == RESULT:
            # What it said of its spend, or of its time, is another launch's; what counts of it is in the content key.
            here[path] = record_digest(made)
            continue
        else:
            here[path] = made.outputs.get(name, "")
        if here[path] != digest:
            return None
    return here


def _brought(source: Source, ctx: StageContext, stage: Stage) -> bool:
    """Bring the files into this launch's folders, with the digests of the source; True for all, False for none."""
    staged = ctx.public.with_name(f".{ctx.stage}.taken")
    try:
        if not _bring(source, staged):
            return False
        if stage.private and (source.run is None or not _brought_private(source.run, ctx, stage.private)):
            return False
        write_text(staged / CONTENT, source.record.content or "")
        _put(staged, ctx.public)
        return True
    except OSError as error:
        _log.warning("%s: %s", ctx.stage, error)
        return False
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _bring(source: Source, staged: Path) -> bool:
    """Bring all outputs into the folder ``staged``, with the digests of the record; return whether that worked."""
    shutil.rmtree(staged, ignore_errors=True)
    for name, digest in source.record.outputs.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            return False
        if not source.fetch(name, staged / path) or sha256(staged / path) != digest:
            return False
    return True


def _brought_private(there: RunDir, ctx: StageContext, names: tuple[str, ...]) -> bool:
    """Copy the private files and folders named, in place of an interrupted attempt's; return whether that worked."""
    files, folder = there.sealed(ctx.stage, names), there.path / "private" / ctx.stage
    if not files:
        return False
    if (window := folder / WINDOW).is_file():  # Before the text for which it is.
        for name in names:
            shutil.rmtree(ctx.private / name, ignore_errors=True)
        write_text(ctx.private / WINDOW, window.read_text(encoding="utf-8"), PRIVATE)
    with scratch(ctx.private, "taken") as taken:
        for name, digest in files.items():
            target = taken / name
            private_directory(target.parent)
            if not copy(folder, name, target) or not is_same(target, digest):
                return False
            target.chmod(0o600)
        for name in names:
            if (ctx.private / name).is_dir():
                shutil.rmtree(ctx.private / name)
            if (taken / name).exists():  # what a release keeps depends on how it was made
                private_directory((ctx.private / name).parent)
                (taken / name).replace(ctx.private / name)
    return True


def copy(folder: Path, filename: str, destination: Path) -> bool:
    """Copy a file of a folder; False if it is not there, or is no file."""
    source = folder / filename
    if source.is_symlink() or not source.is_file():
        return False
    with atomic(destination) as temporary:
        shutil.copyfile(source, temporary)
    return True


def _put(staged: Path, folder: Path) -> None:
    """Replace a folder whole: after a crash it is the old one, the new one or not there."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    staged.rename(folder)
    shutil.rmtree(old)


@cache
def version_of(library: str) -> str:
    """Installed version of a library, which stays the same while a process runs; each look-up searches a folder."""
    return metadata.version(library)


@cache
def code_digest(root: Path, places: tuple[str, ...]) -> str:
    """SHA-256 over the source files that a stage may run, in the folder of the packages.

    Raises:
      ValueError: a place has none, as where a folder was moved; it would leave the key unnoticed.
    """
    files = set[Path]()
    for place in places:
        there = {path for path in [root / place, *(root / place).rglob("*.py")] if path.suffix == ".py"}
        if not any(path.is_file() for path in there):
            raise ValueError(f"code: {place!r} is no source of ours; name what the stage runs in its list of code")
        files |= there
    return text_sha256(json.dumps({path.relative_to(root).as_posix(): sha256(path) for path in files}, sort_keys=True))


@dataclass(frozen=True)
class _Preview(RunDir):
    """The launch's folder with the records that its stages would take over."""

    hits: dict[str, StageRecord] = field(default_factory=dict, compare=False, repr=False)

    def record(self, stage: str) -> StageRecord | None:
        return self.hits.get(stage) or super().record(stage)


def reused_stages(hits: Iterable[CacheHit]) -> frozenset[str]:
    """Stages that are reused and not made anew."""
    return frozenset(each.stage for each in hits if not each.problem)


def _are_others(run_id: str, settings: Settings) -> bool:
    """True if another launch on this machine has finished anything that could be reused."""
    return any(path.parents[2].name != run_id for path in settings.runs_dir.glob(f"*/public/ingest_private/{RESULT}"))


def preview(config: LaunchConfig, run_id: str, settings: Settings, stages: Stages) -> list[CacheHit]:
    """Unfinished stages of which another launch on this machine made the same, in order; nothing is run or written.

    Files that text is in are read for their digests. Text that a champion selects is not foreseen, as the registry
    would have to be asked.
    """
    if not _are_others(run_id, settings):
        return []
    run, hits = _Preview(settings.runs_dir, run_id, ledger_belief_now(settings.ledger_url)), list[CacheHit]()
    for name in (name for name, stage in stages.items() if stage.cached):
        ctx = StageContext(config, run, settings, name, None, config.population)
        try:
            if run.record(name) is not None or (source := _first(ctx, stages)) is None:
                continue
            hits.append(_hit(source, ctx))
        except (LaunchError, ValueError, LookupError, OSError):
            continue  # The stage itself will say so.
        if not source.problem:
            run.hits[name] = source.record
    return hits


def _first(ctx: StageContext, stages: Stages) -> Source | None:
    """The source that would be taken over; if none may be, the first that is identical."""
    public = is_public(ctx.stage, stages)
    if public and ctx.config.public_text.select_by == "champion":
        return None
    content = content_key(ctx, stages)
    if content is None or (not public and PrivacyLedger.of(ctx.settings).reserved(ctx.run.launch_id, ctx.stage)):
        return None
    alike = list(sources(ctx, stages, content))
    return next((source for source in alike if not source.problem), None) or next(iter(alike), None)


def _hit(source: Source, ctx: StageContext) -> CacheHit:
    record, paid, ledger = source.record, "", PrivacyLedger.of(ctx.settings)
    if source.paid is not None and (commit := commit_of(source.paid, ctx.stage, ledger.entries())):
        paid = f"epsilon {commit.epsilon:g} per typed word" if commit.unit == "item" else f"rho {commit.rho:.4g}"
        paid += f" on it on {commit.created_at[:10]}"
    return CacheHit(ctx.stage, record.reused_from or record.launch_id, source.problem, paid)
