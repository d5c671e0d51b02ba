"""Public stages are shared by content: what an identical one made in another launch is taken over.

A stage that reads public data alone is identified by its content key: SHA-256 over its name, its code and
libraries, the fields of the launch file that it reads, what the stages before it made, and what else it reads.
"""

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import pretrain
from pipeline.launch.config import LaunchConfig
from pipeline.run.bookkeeping import CONTENT, PROCESSORS
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, record_digest
from pipeline.run.stage import Stage, StageContext, Stages
from pretrain.files import atomic, sha256, text_sha256, write_text

_log = logging.getLogger(__name__)

# (file name, destination) -> whether it was found; the file is then at the destination.
FetchFile = Callable[[str, Path], bool]


class Shelf(Protocol):
    """Source of finished stages of other machines; the part of ``tracking.MlflowTracker`` needed here."""

    def identical(self, stage: str, content: str) -> Iterator[tuple[StageRecord, FetchFile]]:
        """Finished stages with this content key, each with what fetches its files."""


def is_public(name: str, stages: Stages) -> bool:
    """Return whether a stage reads public data alone, so that any launch may reuse its outputs.

    Guarantee: a stage that may spend, that keeps something private for others, or that opens a stage which is not
    public is never public itself.
    """
    stage = stages.get(name)
    if stage is None or stage.spends or stage.private or stage.reads is None:
        return False
    return all(is_public(other, stages) for other in stage.opens)


def fields_of(stage: Stage, config: LaunchConfig) -> tuple[str, ...]:
    """Fields of the launch file that decide what a stage makes."""
    assert stage.reads is not None, f"{stage.name} is given the whole launch file, so it has no content key"
    return stage.reads(config)


def restricted(config: LaunchConfig, stage: Stage) -> LaunchConfig:
    """The configuration with only the fields that a public stage says it reads; any other is an ``AttributeError``.

    Guarantee: a public stage cannot learn where private text is.

    Raises:
      ValueError: it says that it reads ``private_text``.
    """
    names = fields_of(stage, config)
    if any(name.partition(".")[0] == "private_text" for name in names):
        raise ValueError("reads: 'private_text' in a public stage; a stage that needs it is not public")
    return only(config, names)


def content_key(ctx: StageContext, config: LaunchConfig, stage: Stage) -> str | None:
    """The content key of a public stage as things are now; None if something that it reads is not there.

    Args:
      ctx: of the restricted configuration.
      config: the whole of it.
    """
    before = {name: ctx.run.record(name) for name in stage.needs}
    try:
        read = stage.given(ctx)
    except (OSError, ValueError):
        return None  # The stage itself says what is missing, or does without.
    if None in before.values():
        return None
    content = {
        "stage": ctx.stage,
        "code": code_digest(Path(pretrain.__file__).parents[1], stage.code),
        "libraries": {name: version_of(name) for name in stage.libraries},
        "config": {name: field_of(config.model_dump(mode="json"), name) for name in fields_of(stage, config)},
        "after": {name: record_digest(record) for name, record in before.items() if record},
        "given": read,
    }
    return text_sha256(json.dumps(content, sort_keys=True))


def begin(ctx: StageContext, content: str) -> None:
    """Note in the stage's folder what it is made of, unless it was begun before."""
    marker = ctx.public / CONTENT
    if not marker.exists():
        left = any(path.name != PROCESSORS for path in ctx.public.iterdir())
        begun_before = left or ctx.run.left_by_devices(ctx.stage)
        write_text(marker, "unknown" if begun_before else content)


def was_begun_as(ctx: StageContext, content: str) -> bool:
    """Return whether everything in the stage's folder was made of this content."""
    marker = ctx.public / CONTENT
    return marker.is_file() and marker.read_text(encoding="utf-8") == content


def marked(ctx: StageContext, key: Callable[[], str | None], compute: Callable[[], StageRecord]) -> StageRecord:
    """The record of a stage that is run now, with its content key if all that was read was the same all along.

    Args:
      key: the content key as things are when it is asked.
    """
    content = key()
    if content is None:
        return compute()
    begin(ctx, content)
    record = compute()
    # What changed meanwhile, or between this attempt and an earlier one, may have been read both ways.
    same = was_begun_as(ctx, content) and key() == content
    return record.model_copy(update={"content": content if same else None})


def attempted_on(folder: Path, here: str) -> str:
    """Processors of all attempts at a stage, this one among them: training goes on from where another one stopped.

    Args:
      folder: public one of the stage, where they are noted.
    """
    path = folder / PROCESSORS
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if here not in before:
        write_text(path, "".join(f"{line}\n" for line in [*before, here]))
    return "; ".join([*before, *([] if here in before else [here])])


def take_over(ctx: StageContext, content: str, shelf: Shelf | None) -> StageRecord | None:
    """Put what an identical stage made in place of whatever the stage's folder holds; its record, or None.

    The files are copies, so they outlive the launch that made them, and they are put in place all at once.

    Guarantee: nothing private is taken over. Only a public stage has a content key; it has no key, sees no field of
    private data and spends nothing. A stage that left private files is passed over, and so is a name that leads out
    of its public folder. What is put in place has the digests of the record, or nothing is; a record of another
    launch, on this machine or another, counts only if the ledger holds its digest.
    """
    staged = ctx.public.with_name(f".{ctx.stage}.taken")
    for source, fetch in identical(ctx, content, shelf):
        if bring(source, fetch, staged):
            write_text(staged / CONTENT, content)
            put(staged, ctx.public)
            _log.info("%s: the same as %s's, taken over", ctx.stage, source.launch_id)
            return source
        _log.warning("%s: the same as %s's, but not whole there, so not taken over", ctx.stage, source.launch_id)
    shutil.rmtree(staged, ignore_errors=True)
    return None


def identical(ctx: StageContext, content: str, shelf: Shelf | None) -> Iterator[tuple[StageRecord, FetchFile]]:
    """Stages of other launches with this content key, those of this machine first."""
    for path in sorted(ctx.run.root.glob(f"*/public/{ctx.stage}/{RESULT}")):
        try:
            record = RunDir(ctx.run.root, path.parents[2].name, ctx.run.believes).record(ctx.stage)
        except (OSError, ValueError):
            continue  # Damaged, or deleted meanwhile.
        if record and _may_share(record, ctx, content):
            yield record, partial(copy, path.parent)
    for record, fetch in shelf.identical(ctx.stage, content) if shelf else ():
        if _may_share(record, ctx, content) and ctx.run.believes(record):
            yield record, fetch


def _may_share(record: StageRecord, ctx: StageContext, content: str) -> bool:
    same = record.content == content and record.stage == ctx.stage and record.launch_id != ctx.run.launch_id
    return same and not record.private_outputs and "reserve" not in record.ledger


def copy(folder: Path, filename: str, destination: Path) -> bool:
    """Copy a file of a folder; False if it is not there, or is no file."""
    source = folder / filename
    if source.is_symlink() or not source.is_file():
        return False
    with atomic(destination) as temporary:
        shutil.copyfile(source, temporary)
    return True


def bring(source: StageRecord, fetch: FetchFile, staged: Path) -> bool:
    """Bring all outputs into the folder ``staged``, with the digests of the record; return whether that worked."""
    shutil.rmtree(staged, ignore_errors=True)
    try:
        for name, digest in source.outputs.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                return False
            if not fetch(name, staged / path) or sha256(staged / path) != digest:
                return False
    except OSError:
        return False
    return True


def put(staged: Path, folder: Path) -> None:
    """Replace a folder whole: after a crash it is the old one, the new one or not there."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    staged.rename(folder)
    shutil.rmtree(old)


def only(block: Any, names: Iterable[str]) -> Any:
    """A configuration block with some of its fields; those of inner blocks are dotted."""
    parts = [name.partition(".") for name in names]
    inner = {first: [rest for name, _, rest in parts if name == first] for first, _, _ in parts}
    fields = {
        name: getattr(block, name) if "" in rests else only(getattr(block, name), rests)
        for name, rests in inner.items()
    }
    view = type(block).model_construct(**fields)
    # It fills in defaults, which would be read unnoticed.
    for name in view.__dict__.keys() - fields:
        del view.__dict__[name]
    return view


def field_of(content: dict[str, Any], name: str) -> object:
    """A field by its dotted name; None where the block leaves it out."""
    value: Any = content
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


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
