"""The few fields of a launch file that scheduling needs; the rest is for ``tacit``.

A field's absence or a wrong value is not reported here but by the ``check`` task, whose
``tacit check`` knows the whole schema.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import yaml

HOME = Path(os.environ.get("TACIT_HOME") or Path(__file__).resolve().parents[1])


@dataclass(frozen=True)
class LaunchFile:
    """One reviewed launch. ``name`` is the file's name, so no two DAGs can share an id."""

    path: Path
    name: str
    locale: str
    feature: str
    schedule: str | None
    reviewers: tuple[str, ...]
    device: str


def read_launch_files() -> list[LaunchFile]:
    """All files of ``dags/launches``, or those under TACIT_LAUNCHES (one file or one folder)."""
    place = Path(os.environ.get("TACIT_LAUNCHES") or Path(__file__).resolve().parent / "launches")
    return [read_launch_file(path) for path in (sorted(place.glob("*.yaml")) if place.is_dir() else [place])]


def read_launch_file(path: Path) -> LaunchFile:
    """The fields of one launch file that its DAG needs.

    Raises:
      ValueError: it is not YAML of a mapping, or the locale is not text.
      OSError: it cannot be read.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path.name}: not valid YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{path.name}: a launch file is a mapping of fields, got {type(raw).__name__}")
    locale = raw.get("locale")
    if not isinstance(locale, str):
        # YAML 1.1 reads an unquoted `no` (Norwegian) as False.
        raise ValueError(f'{path.name}: locale: YAML read {locale!r}; put the tag in quotes, as in locale: "no"')
    runtime = raw.get("runtime") or {}
    return LaunchFile(
        path=path,
        name=path.stem,
        locale=locale,
        feature=str(raw.get("feature")),
        schedule=raw.get("schedule"),
        reviewers=tuple(raw.get("reviewers") or ()),
        device=runtime.get("device", "cpu"),
    )
