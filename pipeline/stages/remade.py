"""Make the public half again from public files alone, and name every field that they do not give.

Releases as they lie in ``public/``, public text, the launch file and the stated participation give all fields and
files whose source is in ``public_fields.REMADE``. Each stage has a function for its own (``Stage.remade``), which runs
in a folder that links other stages' public files and nothing else: no key, no store, no ledger. A field that it leaves
out, or gives another value, does not come from where ``pipeline.run.public_fields`` says: it is named, and a gate holds
the launch.

What only training gives (``public_fields.REPEATED``, ``ATTACKED``) is made by repeating it in such a folder
(``Stage.repeated``), as far as these cost a tenth of the launch or a minute together, beside the moved start
(``repeated``); the decision states the others.

Limit: a field of another source (a verdict, a digest under a key, a count of devices) cannot be made without private
files, so that people review its declaration. Of these, times must have two digits, and counts must be whole tens.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from pipeline.ground.errors import LaunchError
from pipeline.ground.settings import Settings, processor
from pipeline.launch.config import LaunchConfig, config_digest
from pipeline.run.public_fields import FREE, REMADE, Source, blocks_of, file_source, key_source, source
from pipeline.run.run_dir import ABSENT, RESULT, RunDir, StageRecord, record_digest
from pipeline.run.second_run import differences, same_json
from pipeline.run.stage import Stage, StageContext, access, imported
from pipeline.stages.graph import STAGES
from pipeline.telemetry.allowed import two_digits
from pretrain.access import Access, confined

Made = Mapping[str, Any]
_HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d:00:00\+00:00")
_TENS = 10
# Most that all repetitions together may take: a share of the launch's seconds, or so many seconds.
_SHARE, _MINUTE = 0.1, 60.0


@dataclass(frozen=True)
class Elsewhere:
    """Place of a field, or of all fields of a block, that comes from another source than in others of its class."""

    source: Source


def of_launch(config: LaunchConfig, run: RunDir, settings: Settings, stages: Mapping[str, Stage] = STAGES) -> list[str]:
    """Return every leak of a launch's finished stages, as messages; see ``of_stage``."""
    records = {name: record for name in stages if (record := run.record(name)) is not None}
    return [
        f"{name}: {problem}"
        for name, record in records.items()
        for problem in of_stage(config, run, settings, stages[name], record)
    ]


def repeated(
    config: LaunchConfig, run: RunDir, settings: Settings, stages: Mapping[str, Stage]
) -> tuple[list[str], tuple[str, ...]]:
    """Return differences of repeated stages from their records, as messages, and all that was not repeated.

    The cheapest come first. Work on a GPU or another type of processor is not repeated, as its last digits may differ,
    nor is reading public text, nor a twin's training.
    """
    records = {name: record for name in stages if (record := run.record(name)) is not None}
    left = max(_SHARE * sum(record.seconds for record in records.values()), _MINUTE)
    differing, skipped = list[str](), dict[str, str]()
    for name, record in sorted(records.items(), key=lambda pair: pair[1].seconds):
        stage = stages[name]
        if not stage.repeated:
            of = get_type_hints(stage.function)["return"]
            sources = (file_source(each, file) for each in get_args(of) or (of,) for file in record.outputs)
            if Source.REPEATED in sources:
                skipped[name] = name
            continue
        # Of training on devices only its start is repeated, whose steps are few.
        cost = 0.0 if stage.spends else record.seconds
        elsewhere = record.processor != processor() or config.runtime.device != "cpu"
        if cost > left or elsewhere:
            skipped[name] = name
            continue
        if record.result.get("twin"):
            skipped[name] = f"{name}: twin"
        left -= cost
        differing += [
            f"{name}: {each} is not what a repetition gives" for each in _again(config, run, settings, stage, record)
        ]
    return differing, tuple(skipped[name] for name in stages if name in skipped)


def _again(config: LaunchConfig, run: RunDir, settings: Settings, stage: Stage, record: StageRecord) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="remade") as folder:
        ctx = StageContext(config, public_files(run, Path(folder), stage.name), settings, stage.name, None)
        try:
            with confined(_public_alone(config, run, settings, stage.name)):
                return list(imported(stage.repeated)(ctx, record, run))
        except (LaunchError, ValueError, ArithmeticError, OSError, LookupError, TypeError) as error:
            return [f"{type(error).__name__}: {error}: it"]


def of_stage(config: LaunchConfig, run: RunDir, settings: Settings, stage: Stage, record: StageRecord) -> Iterator[str]:
    """Yield fields and files of a stage that public files do not give, or give with another value."""
    try:
        result = TypeAdapter(get_type_hints(stage.function)["return"]).validate_python(record.result)
    except ValidationError as error:
        yield from (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return
    with tempfile.TemporaryDirectory(prefix="remade") as folder:
        there = public_files(run, Path(folder), stage.name)
        ctx = StageContext(config, there, settings, stage.name, None)
        try:
            with confined(_public_alone(config, run, settings, stage.name)):
                made = imported(stage.remade)(ctx, record, run.path / "public" / stage.name) if stage.remade else {}
        except (LaunchError, ValueError, ArithmeticError, OSError, LookupError, TypeError) as error:
            yield f"cannot be made from public files: {type(error).__name__}: {error}"
            return
        if record.reused_from is not None:
            made = {**made, "spend": None}  # the launch that made it has paid (``pipeline.run.cache``)
        yield from fields(result, record.result, made)
        yield from _files(type(result), record, run, there)
    yield from _record(config, run, record)


def _public_alone(config: LaunchConfig, run: RunDir, settings: Settings, name: str) -> Access:
    """Return the rule by which a stage's public half is made again: no private file of any launch."""
    public = os.path.realpath(run.path / "public")
    return replace(access(config, run, settings, name, STAGES), allowed=frozenset({public}))


def public_files(run: RunDir, folder: Path, without: str) -> RunDir:
    """Link all public files of a launch into a folder, but those of one stage; return the launch there.

    Guarantee: the folder has nothing private, so that what is made in it follows from public files.
    """
    there = replace(run, root=folder, fetch=None)
    (there.path / "public").mkdir(parents=True)
    for other in sorted((run.path / "public").iterdir()):
        if other.name != without and other.is_dir():
            (there.path / "public" / other.name).symlink_to(other.resolve(), target_is_directory=True)
    return there


def fields(value: BaseModel, stated: Mapping[str, Any], made: Any, place: str = "") -> Iterator[str]:
    """Yield fields of a result, and of its blocks, that differ from what was made, or should have been made.

    Args:
      stated: the same result as JSON values.
      made: what public files give: a mapping for a block, a list for a list of blocks; fields may be absent.
    """
    if isinstance(made, Elsewhere):
        made = dict.fromkeys(type(value).model_fields, made)
    made = made if isinstance(made, Mapping) else {}
    for name, field in type(value).model_fields.items():
        here = f"{place}.{name}" if place else name
        content, again = stated.get(name), made.get(name, _ABSENT)
        if blocks_of(field.annotation):
            yield from _blocks(getattr(value, name), content, again, here)
        elif name in FREE and source(type(value), name) is None:
            yield from _free(type(value), name, content, again, here)
        else:
            yield from _leaf(source(type(value), name), content, again, here)


class _Absent:
    """A field that no function made."""


_ABSENT = _Absent()


def _blocks(value: Any, stated: Any, made: Any, place: str) -> Iterator[str]:
    """Compare a field that holds a block, several of them, or none."""
    if isinstance(value, BaseModel):
        yield from fields(value, stated, made, place)
    elif isinstance(value, Mapping):
        given = made if isinstance(made, Mapping) else {}
        if isinstance(made, Mapping) and made.keys() != stated.keys():
            yield f"{place}: public files give {', '.join(map(str, made)) or 'none'}"
        for key, block in value.items():
            yield from _blocks(block, stated[key], given.get(key, _ABSENT), f"{place}.{key}")
    elif isinstance(value, tuple | list):
        rows = made if isinstance(made, tuple | list) else [made] * len(value)
        if len(rows) != len(value):
            yield f"{place}: public files give {len(rows)} rows, not {len(value)}"
        for number, block in enumerate(value[: len(rows)]):
            yield from _blocks(block, stated[number], rows[number], f"{place}[{number}]")
    elif isinstance(made, _Absent | Elsewhere):
        if stated not in (None, {}, []) and not isinstance(stated, bool | int | float | str):
            yield f"{place}: nothing public gives it again"
    elif stated != made:
        yield f"{place}: public files give another value"


def _free(of: type[BaseModel], name: str, stated: Any, made: Any, place: str) -> Iterator[str]:
    """Compare a mapping whose keys are figures of their own, or a list of such mappings."""
    several = isinstance(stated, list)
    rows = stated if several else [stated or {}]
    given = made if several else [made]
    if not isinstance(given, list | tuple):
        given = [_ABSENT] * len(rows)
    if len(given) != len(rows):
        yield f"{place}: public files give {len(given)} rows, not {len(rows)}"
    for number, (row, again) in enumerate(zip(rows, given, strict=False)):
        for key, content in row.items():
            found = again.get(key, _ABSENT) if isinstance(again, Mapping) else _ABSENT
            yield from _leaf(
                key_source(of, name, key), content, found, f"{place}[{number}].{key}" if several else f"{place}.{key}"
            )


def _leaf(stated_source: Source | None, stated: Any, made: Any, place: str) -> Iterator[str]:
    if isinstance(made, Elsewhere):
        stated_source, made = made.source, _ABSENT
    if stated_source is None:
        yield f"{place}: no source"
    elif isinstance(made, _Absent):
        if stated_source in REMADE and stated not in (None, [], {}):
            yield f"{place}: nothing public gives it again, though its source is '{stated_source}'"
        yield from _form(stated_source, stated, place)
    elif any(True for _ in differences(stated, made)):
        yield f"{place}: public files give another value"


def _form(of: Source, stated: Any, place: str) -> Iterator[str]:
    """Yield a field that shows more digits than its source may."""
    if of is Source.CLOCK and stated is not None:
        hour = isinstance(stated, str) and _HOUR.fullmatch(stated)
        if not (hour or (isinstance(stated, int | float) and stated == two_digits(stated))):
            yield f"{place}: a time must be an hour, or have two digits"
    if of is Source.STORE:
        counts = stated.values() if isinstance(stated, Mapping) else [stated]
        if any(isinstance(count, int) and count % _TENS for count in counts):
            yield f"{place}: a count of devices must be whole tens"


def _files(of: type[BaseModel], record: StageRecord, run: RunDir, there: RunDir) -> Iterator[str]:
    """Yield public files that have no source, or that public files do not give again."""
    present, made = run.manifest(record.stage), there.manifest(record.stage)
    for name, digest in present.items():
        found = file_source(of, name)
        if found is None:
            yield f"{name}: no source"
        elif name not in made and found in REMADE:
            yield f"{name}: nothing public gives it again, though its source is '{found}'"
        elif name in made and made[name] != digest and not _same(name, record.stage, run, there):
            yield f"{name}: public files give another"
    yield from (f"{name}: a file of the stage is lost" for name in record.outputs if name not in present)


def _same(name: str, stage: str, *runs: RunDir) -> bool:
    return name.endswith(".json") and same_json(name, stage, *runs)


def _record(config: LaunchConfig, run: RunDir, record: StageRecord) -> Iterator[str]:
    """Yield fields of a stage's record, beside its result, that do not follow from public files."""
    made: dict[str, object] = {
        "stage": record.stage,
        "config_digest": config_digest(config),
        "outputs": run.manifest(record.stage),
        "result": record.result,
    }
    yield from fields(record, json.loads(record.model_dump_json()), made)
    for name, digest in record.inputs.items():
        stage, _, file = name.partition("/")
        if stage in STAGES and digest != _digest(run, stage, file):
            yield f"inputs.{name}: not the digest of the public file"
        if stage in STAGES and stage not in STAGES[record.stage].opens:
            yield f"inputs.{name}: the stage does not declare that it opens {stage}"


def _digest(run: RunDir, stage: str, file: str) -> str:
    """Digest by which another stage's record names a file that it opened."""
    made = run.record(stage)
    if made is None:
        return ABSENT
    return record_digest(made) if file == RESULT else made.outputs.get(file, "")
