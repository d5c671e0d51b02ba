"""Flatten a stage's results and a launch's configuration into MLflow metrics and parameters."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.run.run_dir import StageRecord
from pretrain.files import sha256

_MOST_OF_VALUE = 6_000  # characters of a parameter, MLflow's limit


@dataclass(frozen=True)
class LoggedRun:
    """One run in MLflow: ``metrics`` by step, the ``latest`` values shown, and digests of its files."""

    status: str
    latest: Mapping[str, float]
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, list[tuple[int, float]]]
    files: Mapping[str, str]


def points(record: StageRecord) -> Iterator[tuple[str, int, float]]:
    """Yield (name, step, value): seconds, top-level numbers of the result, its curve point by point.

    Nested numbers (hundreds, for a comparison) are only in ``result.json``, as each would be a column.
    """
    yield "stage/seconds", 0, record.seconds
    for key, value in numbers(record.result).items():
        yield _name(f"{record.stage}/{key}"), 0, value
    for index, point in enumerate(record.result.get("curve", [])):
        step = int(point.get("step", index))
        for key, value in numbers(point).items():
            if key != "step":
                yield _name(f"{record.stage}_curve/{key}"), step, value


def numbers(values: Mapping[str, object]) -> dict[str, float]:
    """Return the entries that are numbers; booleans are not."""
    return {
        key: float(value)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def stage_parameters(content: Mapping[str, object], fields: Collection[str]) -> dict[str, str]:
    """Flatten the part of a configuration that a stage is given, by its dotted fields."""
    names = tuple(f"{field}." for field in fields)
    return {name: value for name, value in parameters(content).items() if f"{name}.".startswith(names)}


def parameters(content: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Flatten a configuration to dotted names, as ``mechanism.rounds``; a field without a value is left out."""
    flat: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            flat |= parameters(value, f"{prefix}{key}.")
        elif value is not None:
            flat[prefix + key] = str(value)[:_MOST_OF_VALUE]
    return flat


def _name(key: str) -> str:
    # '@' and '=' as in 'epsilon@1e-6' are not allowed in a metric's name.
    return re.sub(r"[^A-Za-z0-9_\-. :/]", "_", key)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder, by relative path."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256(path) for path in paths}
