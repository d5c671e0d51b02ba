"""Compare a stage with a second run of it: its result number by number, its files byte by byte."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.stage import Stage, StageContext, StageResult

# Relative tolerance: results computed with a model differ in their last digits between processor types.
REPLAYED = 1e-6


def made_again(stage: Stage, ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    """Run the stage again in the folder of ``ctx``, and yield differences from its record and files."""
    moving = stage.replay.moving if stage.replay else frozenset()
    return outcome_differences(stage.function(ctx), ctx, record, run, moving)


def outcome_differences(
    result: StageResult, ctx: StageContext, record: StageRecord, run: RunDir, moving: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Yield fields and files in which a second outcome differs.

    Args:
      result: result of the second run, whose files are in the folder of ``ctx``.
      moving: fields that later launches change.
    """
    both = map(_untimed, (record.result, result.model_dump(mode="json")))
    stated, again = ({name: each[name] for name in each.keys() - moving} for each in both)
    yield from differences(stated, again)
    yield from file_differences(record, run, ctx.run)


def _untimed(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result without the durations in its curve."""
    curve = [{name: point[name] for name in point if name != "seconds"} for point in result.get("curve", ())]
    return {**result, "curve": curve} if curve else dict(result)


def differences(stated: object, again: object, name: str = "") -> Iterator[str]:
    """Yield paths at which two JSON values differ; numbers may differ in their last digits."""
    if isinstance(stated, Mapping) and isinstance(again, Mapping):
        for key in sorted(stated.keys() | again.keys()):
            place = f"{name}.{key}" if name else str(key)
            if key in stated and key in again:
                yield from differences(stated[key], again[key], place)
            else:
                yield place
    elif isinstance(stated, list | tuple) and isinstance(again, list | tuple):
        if len(stated) != len(again):
            yield name
        for number, (one, other) in enumerate(zip(stated, again, strict=False)):
            yield from differences(one, other, f"{name}[{number}]")
    elif _is_number(stated) and _is_number(again):
        if not math.isclose(stated, again, rel_tol=REPLAYED, abs_tol=REPLAYED):  # type: ignore[arg-type]
            yield name
    elif stated != again:
        yield name


def file_differences(record: StageRecord, run: RunDir, again: RunDir) -> Iterator[str]:
    """Yield public files of a stage that were changed, lost or added; numbers in JSON may differ in their last digits.

    The search for a mechanism depends in its last digits on the processor and the number of threads.
    """
    stated, present = record.outputs, again.manifest(record.stage)
    for name in sorted(stated.keys() & present.keys()):
        if stated[name] != present[name] and not (name.endswith(".json") and same_json(name, record.stage, run, again)):
            yield f"{name} was changed"
    yield from (f"{name} is lost" for name in stated if name not in present)
    yield from (f"{name} was added" for name in present if name not in stated)


def same_json(name: str, stage: str, *runs: RunDir) -> bool:
    """Return whether a JSON file of a stage is the same in two folders, up to last digits of numbers."""
    stated, again = (json.loads((run.public(stage) / name).read_bytes()) for run in runs)
    return not any(True for _ in differences(stated, again))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
