"""Cache keys of private stages, and earlier launches with the same key.

A release is post-processing to whoever uses it again: words that one launch discovered, or counts that it released,
cost the people of that population nothing more in the next. So a stage is known by all that decides its outputs, under
a content key, and a later launch on the population takes over what an identical one made, from this machine's folders.

Guarantee: a key is an HMAC under the population's split secret, so that it tells nothing of the text that it is of; and
what a release is taken over from is committed in the ledger for the same amounts.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pretrain
from federated.config.population import PopulationKey
from pipeline.ground.errors import LaunchError
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.spend import Spend
from pipeline.run.bookkeeping import SEAL
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, receipt_digest
from pipeline.run.sharing import code_digest, field_of, fields_of, version_of
from pipeline.run.stage import Stage, StageContext
from pretrain.files import sha256, text_sha256


@dataclass(frozen=True)
class Source:
    """A finished stage of another launch with the content key asked for.

    Attributes:
      paid: what the ledger holds of its release, to be written down with a re-use; None where it released nothing.
      problem: why it cannot be taken over; empty if it can.
    """

    run: RunDir
    record: StageRecord
    paid: Mapping[str, object] | None
    problem: str


def content_key(ctx: StageContext, config: LaunchConfig, stage: Stage) -> str | None:
    """The content key of a stage as things are now; None if something that it reads is not there.

    Args:
      ctx: of the whole configuration.
    """
    used = dict(ctx.run.used)
    try:
        read = stage.given(ctx)
        secret = PrivacyLedger.of(ctx.settings).split_secret(ctx.population)
    except (LaunchError, ValueError, LookupError, OSError):
        return None  # The stage itself says what is missing.
    finally:
        # What decides the key is no input of the stage yet.
        ctx.run.used.clear()
        ctx.run.used.update(used)
    if read is None:
        return None
    content = {
        "stage": ctx.stage,
        "code": code_digest(Path(pretrain.__file__).parents[1], stage.code),
        "libraries": {name: version_of(name) for name in stage.libraries},
        "config": {name: field_of(config.model_dump(mode="json"), name) for name in fields_of(stage, config)},
        "given": read,
    }
    key = hmac.digest(secret, b"tacit content key", hashlib.sha256)
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def sources(
    ctx: StageContext, content: str, stage: Stage, released: bool, planned: Spend | None = None
) -> Iterator[Source]:
    """Finished stages of other launches with this content key; nothing is written.

    Args:
      released: whether the stage spends.
      planned: what it would spend, so that a source's spend must be the same; None before that is known.
    """
    ledger = PrivacyLedger.of(ctx.settings)
    for path in sorted(ctx.run.root.glob(f"*/public/{ctx.stage}/{RESULT}")):
        try:
            run = RunDir(ctx.run.root, path.parents[2].name, as_it_lies)
            record = run.record(ctx.stage)
        except (OSError, ValueError):
            continue  # Damaged, or deleted meanwhile.
        if record is None or record.content != content or run.launch_id == ctx.run.launch_id:
            continue
        paid = paid_for(record, ctx.population, planned, ledger) if released else None
        yield Source(run, record, paid, _problem(run, record, stage, ctx, unpaid=released and paid is None))


def _problem(run: RunDir, record: StageRecord, stage: Stage, ctx: StageContext, *, unpaid: bool) -> str:
    """Why a source cannot be taken over; empty if it can."""
    if not ctx.run.believes(record):
        return f"its {RESULT} is not what the ledger holds"
    if unpaid:
        return "the ledger holds no spend of it"
    if changed := [name for name, digest in record.outputs.items() if not run.available(record.stage, name, digest)]:
        return f"{changed[0]} was changed or lost"
    if stage.private and (run.erased or not (run.path / "private" / record.stage).is_dir()):
        return "its private files were erased"
    if stage.private and record.private_digest is None:
        return "its private files were never sealed"
    if stage.private and record.private_digest and (wrong := run.private_problems(record.stage, record.private_digest)):
        return f"its private files are not as it left them: {wrong[0]}"
    return ""


def paid_for(
    record: StageRecord, population: PopulationKey, planned: Spend | None, ledger: PrivacyLedger
) -> Mapping[str, object] | None:
    """Ledger binding of a release that is reused; None if nobody paid for it.

    Guarantee: the launch that released it committed, on the same population, exactly what a release anew would spend.
    """
    entries = ledger.entries(population)
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


def said(record: StageRecord) -> str:
    """SHA-256 of what a stage said of a release and left of it, but for who paid: the same in every launch."""
    result = {name: value for name, value in record.result.items() if name != "spend"}
    return text_sha256(json.dumps({"outputs": record.outputs, "result": result}, sort_keys=True))


def sealed(run: RunDir, stage: str, names: Iterable[str]) -> dict[str, str]:
    """Digests of those private files of a stage that are, or are in, what is named; from its seal."""
    path = run.path / "private" / stage / SEAL
    files = json.loads(path.read_text(encoding="utf-8"))["files"]
    return {
        name: digest
        for name, digest in files.items()
        if any(name == wanted or name.startswith(f"{wanted}/") for wanted in names)
    }


def is_same(path: Path, digest: str) -> bool:
    """Return whether a file is there and has these bytes."""
    return path.is_file() and not path.is_symlink() and sha256(path) == digest


def _is(entry: Entry, launch_id: str, stage: str, kind: str) -> bool:
    return (entry.launch_id, entry.stage, entry.kind) == (launch_id, stage, kind)
