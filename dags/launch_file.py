"""The few fields of a launch file that scheduling needs; ``tacit`` reads all others.

The ``check`` task, whose ``tacit check`` knows the whole schema, reports a missing field or a wrong value. A file
from which no DAG can be built has an ``error``: it gets a DAG that reports it, and the other files keep theirs.
"""

import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from stage_graph import STAGES

HOME = Path(os.environ.get("TACIT_HOME") or Path(__file__).resolve().parents[1])
# As ``pipeline.launch.config`` has it. Airflow's own limit on the id of a DAG is 250.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.yaml")
_MOST_BYTES = 1 << 20
# No value, as it is written: every value is read as text.
_NULLS = ("null", "Null", "NULL", "~", "")


@dataclass(frozen=True)
class LaunchFile:
    """One reviewed launch.

    Attributes:
      name: name of the file, so that no two DAGs share an id.
      on_gpu: names of its stages that compute on a GPU.
    """

    path: Path
    name: str
    locale: str = ""
    features: tuple[str, ...] = ()
    schedule: str | None = None
    reviewers: tuple[str, ...] = ()
    on_gpu: frozenset[str] = frozenset()
    approvals: int = 1
    error: str = ""

    @property
    def title(self) -> str:
        """Title in lists of DAGs and runs: the locale and the features, then the file's name."""
        return f"{self.locale} {'+'.join(self.features)}: {self.name}"


def read_launch_files() -> list[LaunchFile]:
    """Read all YAML of ``dags/launches``, or of TACIT_LAUNCHES (one file or one folder), but names in ``.``."""
    place = Path(os.environ.get("TACIT_LAUNCHES") or Path(__file__).resolve().parent / "launches")
    files = sorted(place.glob("[!.]*.*")) if place.is_dir() else [place]
    return [read_or_error(path) for path in files if path == place or path.suffix.lower() in (".yaml", ".yml")]


def read_or_error(path: Path) -> LaunchFile:
    """Read one launch file, or return it with its error."""
    try:
        return read_launch_file(path)
    except (ValueError, OSError) as error:
        return broken(path, str(error))


def broken(path: Path, error: str) -> LaunchFile:
    """Launch file with an error, under a name that Airflow accepts and that no other file has."""
    usual = _FILE_NAME.fullmatch(path.name)
    name = path.stem if usual else f"broken-{zlib.crc32(path.name.encode('utf-8', 'replace')):08x}"
    return LaunchFile(path, name, error=error)


def read_launch_file(path: Path) -> LaunchFile:
    """Read the fields of one launch file that its DAG needs.

    Raises:
      ValueError: it is not a YAML mapping, or a field has the wrong type.
      OSError: it cannot be read.
    """
    raw = fields(path)
    locale = raw.get("locale")
    if not isinstance(locale, str) or not re.fullmatch(r"[A-Za-z0-9-]{1,40}", locale):
        raise ValueError(f"{path.name}: locale: {str(locale)[:40]!r} is no language tag; write one as in en-US")
    runtime, reviewers, schedule = raw.get("runtime") or {}, raw.get("reviewers") or (), raw.get("schedule") or None
    kinds = {"runtime": isinstance(runtime, dict), "schedule": isinstance(schedule, str | None)}
    kinds["reviewers"] = isinstance(reviewers, list | tuple) and all(isinstance(name, str) for name in reviewers)
    if wrong := [name for name, fits in kinds.items() if not fits]:
        raise ValueError(f"{path.name}: {wrong[0]}: has the wrong type; see dags/launches/")
    named = raw.get("features")
    policy = raw.get("policy")
    approvals = policy.get("approvals") if isinstance(policy, dict) else None
    on_device = (name for name, stage in STAGES.items() if stage.device)
    return LaunchFile(
        path=path,
        name=path.stem,
        locale=locale,
        features=tuple(name for name in named if isinstance(name, str)) if isinstance(named, list) else (),
        schedule=schedule,
        reviewers=tuple(reviewers),
        approvals=whole(approvals, 10) or 1,
        on_gpu=frozenset(on_device if runtime.get("device") == "cuda" else ()),
    )


def fields(path: Path) -> dict[str, Any]:
    """Fields of a launch file as text, with those of the file that it is like (``pipeline.launch.config.inherited``).

    Raises:
      ValueError: a file is no YAML mapping, or is like a file that is not there.
      OSError: it cannot be read.
    """
    own = _own_fields(path)
    if "like" not in own:
        return own
    other = str(own["like"])
    if Path(other).name != other:
        raise ValueError(f"{path.name}: like: {other[:40]!r} is no launch file in its folder")
    return _inherited(own, _own_fields(path.with_name(other)))


def _own_fields(path: Path) -> dict[str, Any]:
    if not _FILE_NAME.fullmatch(path.name):
        raise ValueError(
            f"{path.name}: no name of a launch file: up to 64 letters, digits, '.', '_' and '-', the first a letter "
            "or a digit, then .yaml; rename it"
        )
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path.name}: not a file of at most {_MOST_BYTES:,} bytes; remove it")
    return _parsed(path, path.stat().st_mtime_ns)


@cache
def _parsed(path: Path, changed: int) -> dict[str, Any]:
    """Parse a file, once for all files that are like it."""
    try:
        # Every value as text, by libyaml: scheduling needs no more, and YAML 1.1 would read `no` as false.
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CBaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path.name}: not valid YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{path.name}: a launch file is a mapping of fields, got {type(raw).__name__}")
    return raw


def _inherited(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge as ``pipeline.launch.config`` does, which this environment does not have; ``null`` removes a field."""
    merged = dict(other)
    for name, value in own.items():
        if value in _NULLS:
            merged.pop(name, None)
            continue
        before = other.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            alone = any(value.get(kind, before.get(kind)) != before.get(kind) for kind in ("kind", "source"))
            value = value if alone else _inherited(value, before)
        merged[name] = value
    return merged


def whole(text: object, limit: int) -> int | None:
    """The whole number of a text, above zero and below the limit; else None, and `tacit check` says what is wrong."""
    number = int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 4 else 0
    return number if 0 < number < limit else None
