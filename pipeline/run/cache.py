"""The cache that launches share: content keys of stages, lookup of identical stages, and reuse of their outputs.

A content key identifies a stage: it covers the stage's name, its code and libraries, the fields of the launch file that
it reads, and everything else that decides its outputs. If another launch ran an identical stage, its files are copied,
so they outlive that launch, and are put in place all at once.

A public stage (``run.stage.is_public``) may come from any machine, through the tracking server. Every other stage
follows private data: its key is an HMAC under the population's split secret, so that it reveals nothing about the text,
and the stage comes from this machine's folders. Reusing a release is post-processing: words or counts that one launch
released cost the devices of that population nothing more in the next. It is paid once: the ledger holds the commit, for
the same amounts and the same population, and records each reuse with the audit that the release passed.
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
from pipeline.ledger.entries import Entry, Spend
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.bookkeeping import AUDIT, CONTENT, PROCESSORS, WINDOW, is_same
from pipeline.run.known import as_it_lies, ledger_belief_now
from pipeline.run.population import require_allowed, require_population
from pipeline.run.run_dir import GIVEN, RESULT, RunDir, StageRecord, receipt_digest, record_digest
from pipeline.run.stage import StageContext, Stages, access, field_of, imported, is_public, kept, view
from pipeline.telemetry.allowed import this_hour, two_digits
from pretrain.access import confined
from pretrain.files import PRIVATE, atomic, private_directory, remove_folder, scratch, sha256, text_sha256, write_text
from reports.disclosure.findings import ReleaseAudit

_log = logging.getLogger(__name__)

# (file name, destination) -> True if the file was found and copied to the destination.
FetchFile = Callable[[str, Path], bool]


class Shelf(Protocol):
    """Source of other machines' finished public stages; the part of ``tracking.MlflowTracker`` needed here."""

    def identical(self, stage: str, content: str) -> Iterator[tuple[StageRecord, FetchFile]]:
        """Yield finished stages with this content key, each with a function that fetches its files."""


@dataclass(frozen=True)
class Source:
    """A finished stage of another launch with the requested content key.

    Attributes:
      fetch: copies one of its public files.
      run: its launch's folder on this machine; None if it comes from the tracking server.
      paid: binding of its release's commit, for the reuse entry; None if it released nothing.
      audit: passed audit of its release; None if it released nothing, or has not been audited yet.
      problem: why it may not be reused; empty if it may.
    """

    record: StageRecord
    fetch: FetchFile
    run: RunDir | None
    paid: Mapping[str, object] | None
    audit: ReleaseAudit | None
    problem: str


@dataclass(frozen=True)
class CacheHit:
    """A stage that another launch has already run with the same content key.

    Attributes:
      launch_id: that launch; for a release, the launch that paid for it.
      problem: why the stage would still run again; empty if its outputs are reused.
      paid: the spend of the release, for messages; empty if it released nothing.
    """

    stage: str
    launch_id: str
    problem: str
    paid: str

    def __str__(self) -> str:
        if self.problem:
            return f"{self.stage}: launch {self.launch_id} has the same result, but {self.problem}: it runs again"
        spent = f" (spent {self.paid}); no new spend" if self.paid else ""
        return f"{self.stage}: reused from launch {self.launch_id}{spent}"


def content_key(ctx: StageContext, stages: Stages) -> str | None:
    """Content key of a stage with its current inputs; None if an input is missing.

    Args:
      ctx: context with the whole configuration.
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
        with confined(access(ctx.config, ctx.run, ctx.settings, ctx.stage, stages)):
            given = stage.given(seen)
        if given is None:
            return None
        content["given"] = given
        if is_public(ctx.stage, stages):
            before = {name: ctx.run.record(name) for name in stage.opens}
            if None in before.values():
                return None
            # A private stage names in ``given`` its dependence on earlier stages: more would spend again needlessly.
            content["after"] = {name: record_digest(record) for name, record in before.items() if record}
            return text_sha256(json.dumps(content, sort_keys=True))
        secret = PrivacyLedger.of(ctx.settings).split_secret(ctx.population)
    except (LaunchError, ValueError, LookupError, OSError):
        return None  # The stage itself reports the missing input, or runs without it.
    finally:
        # Files that only decide the key are not recorded as inputs of the stage.
        ctx.run.used.clear()
        ctx.run.used.update(used)
    key = hmac.digest(secret, b"tacit content key", hashlib.sha256)
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def shown_key(content: str, ctx: StageContext, launch_id: str, stages: Stages) -> str:
    """Content key as a launch's public record states it.

    Guarantee: two launches state two keys for one private stage, so that equal text does not show in them; without the
    population's secret neither gives the other.
    """
    if is_public(ctx.stage, stages):
        return content
    return hmac.digest(bytes.fromhex(content), launch_id.encode(), hashlib.sha256).hex()


def sources(
    ctx: StageContext,
    stages: Stages,
    content: str,
    planned: Spend | None = None,
    shelf: Shelf | None = None,
    *,
    audits: bool = False,
) -> Iterator[Source]:
    """Yield finished stages of other launches with this content key, those of this machine first; writes nothing.

    Args:
      planned: the stage's planned spend, which a source's spend must equal; None before it is known.
      shelf: source of other machines' public stages.
      audits: audit a release that no launch has audited yet, from the private files of the launch that made it.
    """
    stage = stages[ctx.stage]
    for path in sorted(ctx.run.root.glob(f"*/public/{ctx.stage}/{RESULT}")):
        try:
            run = RunDir(ctx.run.root, path.parents[2].name, as_it_lies)
            record = run.record(ctx.stage)
        except (OSError, ValueError):
            continue  # Damaged, or deleted since.
        if record is None or run.launch_id == ctx.run.launch_id:
            continue
        if record.content == shown_key(content, ctx, run.launch_id, stages):
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
    """Reason why the audit of a release forbids its reuse; empty if it does not, or has yet to be made."""
    if audit is None:
        return "its release was never audited, and its private files no longer allow an audit" if audits else ""
    wrong = [verdict.name for verdict in audit.verdicts if not verdict.passed]
    return f"the audit of its release failed ({', '.join(wrong)})" if wrong else ""


def refusal(
    ctx: StageContext, stages: Stages, record: StageRecord, run: RunDir | None, paid: Mapping[str, object] | None
) -> str:
    """Reason why an identical stage of another launch may not be reused; empty if it may. No other code decides this.

    Guarantee: the ledger holds the record. A public stage spent nothing and left nothing private; its files are checked
    against their digests as they are copied. A release was paid for, and each of its files is as the stage sealed it.

    Args:
      run: the launch's folder; None if the stage comes from the tracking server.
      paid: binding of its release's commit in the ledger.
    """
    stage = stages[ctx.stage]
    if not ctx.run.believes(record):
        return f"its {RESULT} does not match the ledger"
    if is_public(ctx.stage, stages):
        return "it spent, or left private files" if record.private_outputs or "reserve" in record.ledger else ""
    assert run is not None, f"{ctx.stage}: a stage that follows private data comes from this machine alone"
    if stage.spends and paid is None:
        return "the ledger holds no spend of it"
    if changed := [name for name, digest in record.outputs.items() if not run.available(record.stage, name, digest)]:
        return f"{changed[0]} was changed or lost"
    return _private_refusal(record, run) if kept(ctx.stage, stages) else ""


def _private_refusal(record: StageRecord, run: RunDir) -> str:
    if run.erased or not (run.path / "private" / record.stage).is_dir():
        return "its private files were erased"
    if record.private_digest is None:
        return "its private files were never sealed"
    wrong = run.private_problems(record.stage, record.private_digest)
    return f"its private files have changed: {wrong[0]}" if wrong else ""


def reuse(ctx: StageContext, stages: Stages, planned: Spend | None, shelf: Shelf | None = None) -> StageRecord | None:
    """Reuse the outputs of an identical stage: copy them, and return this launch's record; None if it must run.

    Guarantee: no new release. The reused outputs either release nothing, or come from a launch whose commit the ledger
    holds for the same amounts, and passed an audit that the ledger's entry cites. The record is the one that the ledger
    holds, and every file has the digest that the stage recorded. No key is copied, and no name leads out of the stage's
    folder. A stage that has a standing reservation of its own resumes it. The reuse of a stage that commits to
    text (``salted``) stands in no record and no log line: it would say that no device typed a word since.

    Args:
      ctx: context with the whole configuration, without a key.
      planned: the stage's planned spend; None if it releases nothing.

    Raises:
      PopulationUnknown, BudgetExceeded, RulesBroken: the launch asks for more than its population allows.
    """
    started, clock, stage = this_hour(), time.monotonic(), stages[ctx.stage]
    private = kept(ctx.stage, stages)
    ledger = PrivacyLedger.of(ctx.settings)
    if not is_public(ctx.stage, stages):
        require_allowed(ctx.config, require_population(ctx.config, ledger))
        if ledger.reserved(ctx.run.launch_id, ctx.stage):
            return None
    content = content_key(ctx, stages)
    shown = "" if content is None else shown_key(content, ctx, ctx.run.launch_id, stages)
    for source in sources(ctx, stages, content, planned, shelf, audits=True) if content else ():
        record, problem = source.record, source.problem
        inputs = None if problem else _inputs(record, ctx.run)
        if inputs is None or not _brought(source, ctx, private, shown):
            why = problem or ("its inputs differ from those here" if inputs is None else "its files are incomplete")
            if not stage.salted:
                _log.warning(
                    "%s: launch %s has the same result, but it is not reused: %s", ctx.stage, record.launch_id, why
                )
            continue
        receipts = {}
        if source.paid is not None and source.audit is not None:
            write_text(ctx.private / AUDIT, source.audit.model_dump_json(indent=1) + "\n", PRIVATE)
            cited = {**source.paid, "audit": audit_digest(source.audit)}
            if before := ledger.noted("reuse", ctx.run.launch_id, ctx.stage):
                cited["record"] = before.names("record")  # The source may have run again: another record of the same.
            noted = ledger.note("reuse", ctx.population, ctx.run.launch_id, ctx.stage, cited)
            receipts["reuse"] = noted.hash
        if not stage.salted:
            _log.info("%s: reused from launch %s", ctx.stage, record.launch_id)
        own = imported(stage.salted)(ctx) if stage.salted else {}
        return record.model_copy(
            update={
                "launch_id": ctx.run.launch_id,
                "config_digest": config_digest(ctx.config),
                "inputs": inputs,
                "private_outputs": bool(private),
                "private_digest": ctx.run.seal_private(ctx.stage) if private else None,
                "ledger": receipts,
                "started_at": started,
                "seconds": two_digits(time.monotonic() - clock),
                # This launch spends nothing on it.
                "result": record.result | ({"spend": None} if "spend" in record.result else {}) | own,
                "content": shown,
                "reused_from": None if stage.salted else record.reused_from or record.launch_id,
            }
        )
    return None


def marked(ctx: StageContext, stages: Stages, compute: Callable[[], StageRecord]) -> StageRecord:
    """Run a stage and return its record, with its content key if no input changed while it ran.

    The stage's folder stores the key of its first attempt. An input that changed during an attempt, or between two of
    them, may have been read in both versions, so the record then gets no key.
    """
    content, marker = content_key(ctx, stages), ctx.public / CONTENT
    if content is None:
        return compute()
    shown = shown_key(content, ctx, ctx.run.launch_id, stages)
    if not marker.exists():
        left = any(path.name != PROCESSORS for path in ctx.public.iterdir())
        begun_before = left or ctx.run.left_by_devices(ctx.stage)
        write_text(marker, "unknown" if begun_before else shown)
    record = compute()
    same = marker.is_file() and marker.read_text(encoding="utf-8") == shown and content_key(ctx, stages) == content
    if is_public(ctx.stage, stages):
        undeclared = {path.partition("/")[0] for path in record.inputs} - set(stages[ctx.stage].opens)
        assert not undeclared, f"{ctx.stage}: it read {undeclared}, which its content key does not cover"
        same = same and not record.private_outputs
    return record.model_copy(update={"content": shown if same else None})


def paid_for(record: StageRecord, ctx: StageContext, planned: Spend | None) -> Mapping[str, object] | None:
    """Ledger binding for the reuse of a release; None if no commit paid for it.

    Guarantee: the launch that released it committed, on the same population, exactly the amounts of a new release.
    """
    entries = PrivacyLedger.of(ctx.settings).entries(ctx.population)
    if record.reused_from is not None:
        # Itself reused: its own reuse entry names the launch that paid.
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
    """Return the commit that a reuse names; None if there is none."""
    named = (entry for entry in entries if entry.hash == paid["commit"])
    return next((entry for entry in named if _is(entry, str(paid["launch"]), stage, "commit")), None)


def reused_commit(record: StageRecord, entries: Iterable[Entry]) -> Entry | None:
    """Return the commit that covers a reused release; None if the ledger has no entry of its reuse."""
    entries = list(entries)
    noted = next((entry for entry in entries if _is(entry, record.launch_id, record.stage, "reuse")), None)
    return None if noted is None else commit_of(json.loads(noted.binding), record.stage, entries)


def audit_digest(audit: ReleaseAudit) -> str:
    """SHA-256 of a release's verdicts and the launch that made it, which a reuse cites in the ledger."""
    return text_sha256(json.dumps(audit.model_dump(mode="json", exclude={"cited"}), sort_keys=True))


def cited_audit(run: RunDir, stage: str, ledger: PrivacyLedger) -> ReleaseAudit | None:
    """Return the audit that a launch cites for a reused release; None unless the ledger holds its digest."""
    path, noted = run.path / "private" / stage / AUDIT, ledger.noted("reuse", run.launch_id, stage)
    if noted is None or not path.is_file():
        return None
    try:
        audit = ReleaseAudit.model_validate_json(path.read_bytes())
    except ValidationError:
        return None
    return audit if audit_digest(audit) == noted.names("audit") else None


def said(record: StageRecord) -> str:
    """SHA-256 of a release's result and files without its spend: the same in every launch that reuses it."""
    result = {name: value for name, value in record.result.items() if name != "spend"}
    return text_sha256(json.dumps({"outputs": record.outputs, "result": result}, sort_keys=True))


def _is(entry: Entry, launch_id: str, stage: str, kind: str) -> bool:
    return (entry.launch_id, entry.stage, entry.kind) == (launch_id, stage, kind)


def _inputs(record: StageRecord, run: RunDir) -> dict[str, str] | None:
    """Return a source's inputs with this launch's digests; None if one of them has other bytes here."""
    here = {}
    for path, digest in record.inputs.items():
        stage, _, name = path.partition("/")
        if stage == GIVEN:
            here[path] = run.given_digest(name) or ""
        elif (made := run.record(stage)) is None:
            return None
        elif name == RESULT:
            # Its result may differ in spend or time; the content key covers the part that matters.
            here[path] = record_digest(made)
            continue
        else:
            here[path] = made.outputs.get(name, "")
        if here[path] != digest:
            return None
    return here


def _brought(source: Source, ctx: StageContext, private: tuple[str, ...], shown: str) -> bool:
    """Copy public files and the named private ones, and check their digests; True for all of them, False for none.

    After a crash the public folder is the old one, the new one or absent.
    """
    try:
        with scratch(ctx.public.parent, ctx.stage) as folder:
            staged = folder / ctx.stage
            if not _bring(source, staged):
                return False
            if private and (source.run is None or not _brought_private(source.run, ctx, private)):
                return False
            write_text(staged / CONTENT, shown)
            remove_folder(ctx.public)
            staged.rename(ctx.public)
            return True
    except OSError as error:
        _log.warning("%s: %s", ctx.stage, error)
        return False


def _bring(source: Source, staged: Path) -> bool:
    """Copy all outputs into the folder ``staged`` and check their digests; return whether that worked."""
    for name, digest in source.record.outputs.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            return False
        if not source.fetch(name, staged / path) or sha256(staged / path) != digest:
            return False
    return True


def _brought_private(there: RunDir, ctx: StageContext, names: tuple[str, ...]) -> bool:
    """Copy the named private files and folders over those of an interrupted attempt; return whether that worked."""
    files, folder = there.sealed(ctx.stage, names), there.path / "private" / ctx.stage
    if not files:
        return False
    ctx.run.unseal_private(ctx.stage)
    if (window := folder / WINDOW).is_file():  # Written before the text that it covers.
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
            if (taken / name).exists():  # the files that a release keeps depend on its mechanism
                private_directory((ctx.private / name).parent)
                (taken / name).replace(ctx.private / name)
    return True


def copy(folder: Path, filename: str, destination: Path) -> bool:
    """Copy a file of a folder; False if it does not exist, or is not a file."""
    source = folder / filename
    if source.is_symlink() or not source.is_file():
        return False
    with atomic(destination) as temporary:
        shutil.copyfile(source, temporary)
    return True


@cache
def version_of(library: str) -> str:
    """Installed version of a library, cached because each lookup searches a folder."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""  # An extra: whoever reads its text says that it is missing.


@cache
def code_digest(root: Path, places: tuple[str, ...]) -> str:
    """SHA-256 over the source files that a stage may run, below the packages' root.

    Raises:
      ValueError: a place has no source file, as after a folder was moved; the key would silently lose it.
    """
    files = set[Path]()
    for place in places:
        there = {path for path in [root / place, *(root / place).rglob("*.py")] if path.suffix == ".py"}
        if not any(path.is_file() for path in there):
            raise ValueError(f"code: {place!r} has no source file; correct the field code of the stage")
        files |= there
    return text_sha256(json.dumps({path.relative_to(root).as_posix(): sha256(path) for path in files}, sort_keys=True))


@dataclass(frozen=True)
class _Preview(RunDir):
    """The launch's folder with the records that its stages would reuse."""

    hits: dict[str, StageRecord] = field(default_factory=dict, compare=False, repr=False)

    def record(self, stage: str) -> StageRecord | None:
        return self.hits.get(stage) or super().record(stage)

    def folder_of(self, stage: str) -> Path:
        return self.root / self.hits[stage].launch_id if stage in self.hits else self.path


def reused_stages(hits: Iterable[CacheHit]) -> frozenset[str]:
    """Names of the stages whose outputs are reused."""
    return frozenset(each.stage for each in hits if not each.problem)


def _are_others(run_id: str, settings: Settings) -> bool:
    """True if another launch on this machine has a finished stage that could be reused."""
    return any(path.parents[2].name != run_id for path in settings.runs_dir.glob(f"*/public/ingest_private/{RESULT}"))


def preview(config: LaunchConfig, run_id: str, settings: Settings, stages: Stages) -> list[CacheHit]:
    """List stages that another launch on this machine has already run, in order; runs and writes nothing.

    A finished stage is listed if it was reused, as its release spends nothing again. A stage that commits to text is
    not listed; see ``reuse``.

    Text files are read for their digests.
    """
    if not _are_others(run_id, settings):
        return []
    run, hits = _Preview(settings.runs_dir, run_id, ledger_belief_now(settings.ledger_url)), list[CacheHit]()
    for name in (name for name, stage in stages.items() if stage.cached):
        ctx = StageContext(config, run, settings, name, None, config.population)
        try:
            if (record := run.record(name)) is not None:
                hits += [CacheHit(name, record.reused_from, "", "")] if record.reused_from else []
                continue
            if (source := _first(ctx, stages)) is None:
                continue
            if not stages[name].salted:
                hits.append(_hit(source, ctx))
        except (LaunchError, ValueError, LookupError, OSError):
            continue  # The stage itself reports the error.
        if not source.problem:
            run.hits[name] = source.record
    return hits


def _first(ctx: StageContext, stages: Stages) -> Source | None:
    """Return the source that would be reused; if none may be, the first identical one."""
    public = is_public(ctx.stage, stages)
    content = content_key(ctx, stages)
    if content is None or (not public and PrivacyLedger.of(ctx.settings).reserved(ctx.run.launch_id, ctx.stage)):
        return None
    alike = list(sources(ctx, stages, content))
    return next((source for source in alike if not source.problem), None) or next(iter(alike), None)


def _hit(source: Source, ctx: StageContext) -> CacheHit:
    record, paid, ledger = source.record, "", PrivacyLedger.of(ctx.settings)
    if source.paid is not None and (
        commit := commit_of(source.paid, ctx.stage, ledger.entries_of_launch(str(source.paid["launch"])))
    ):
        paid = f"epsilon {commit.epsilon:g} per typed word" if commit.unit == "item" else f"rho {commit.rho:.4g}"
        paid += f" on {commit.created_at[:10]}"
    return CacheHit(ctx.stage, record.reused_from or record.launch_id, source.problem, paid)
