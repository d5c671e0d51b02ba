"""Resolve the launch that a command names: by its launch file, its name, its id, a prefix of its id, or its locale."""

import difflib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline.ground import settings
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id, load_kept_launch, load_launch
from pipeline.run.run_dir import RESULT
from pretrain.config import LOCALE
from pretrain.reading.paths import shown

_KEPT = "public/launch/launch.json"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MOST_SHOWN = 6


@dataclass(frozen=True)
class Launch:
    """Configuration and id of a launch, which may not have begun.

    Attributes:
      file: the launch file, if the command named it; None where it named an id.
    """

    config: LaunchConfig
    run_id: str
    file: Path | None = None


def completions(incomplete: str) -> list[str]:
    """Shell completions: launches of this machine, then launch files."""
    here = settings.load()
    files = sorted(Path().glob(f"{incomplete}*.yaml"))
    shipped = sorted((here.home / "dags" / "launches").glob("*.yaml")) if not incomplete else []
    return [name for name in begun(here) if name.startswith(incomplete)] + [str(path) for path in (*files, *shipped)]


def begun(here: Settings) -> list[str]:
    """Ids of the launches on this machine."""
    return sorted(path.parents[2].name for path in here.runs_dir.glob(f"*/{_KEPT}"))


def began(here: Settings, run_id: str) -> datetime:
    """Time of a launch's first result or, without one, of its configuration."""
    folder = here.runs_dir / run_id
    files = (*folder.glob(f"public/ingest_*/{RESULT}"), folder / _KEPT)
    return datetime.fromtimestamp(min(path.stat().st_mtime for path in files), UTC)


def kept_config(here: Settings, run_id: str) -> LaunchConfig:
    """Read the configuration that a launch keeps beside its results."""
    return load_kept_launch(here.runs_dir / run_id / _KEPT)


def to_run(name: str, date: str | None = None) -> Launch:
    """Resolve the launch to check, plan, begin or resume; for a launch file with a date, the dated launch.

    Raises:
      ValueError: the launch file is missing or invalid, or no launch has such an id.
    """
    if is_file(name):
        config = load_launch(Path(name))
        return Launch(config, launch_id(config, date), Path(name))
    here = settings.load()
    run_id = _by_beginning(name, here)
    if date is not None:
        raise ValueError(f"date: {date}, but launch {run_id!r} has begun with its own date or none; leave it out")
    return Launch(kept_config(here, run_id), run_id)


def begun_id(name: str, here: Settings) -> str:
    """Id of a launch on this machine; for a launch file, the ``name`` in one, or a locale, its newest launch.

    Raises:
      ValueError: there is no such launch.
    """
    if not is_file(name):
        return _by_beginning(name, here)
    config = load_launch(Path(name))
    wanted, launches = launch_id(config), begun(here)
    matching = [each for each in launches if each == wanted or each.startswith(f"{wanted}-")]
    if not matching:
        others = [each for each in launches if each.startswith(f"{config.name}-")]
        changed = f", and the file changed since {_some(others)} began" if others else ""
        raise ValueError(
            f"launch: no launch of {shown(name)} ({wanted}) is in {here.runs_dir}{changed}; begin it with "
            f"'tacit launch {shown(name)}', or name another one ('tacit runs' lists them)"
        )
    return _newest(matching, here)


def is_file(name: str) -> bool:
    """Return whether a name is a path, by its spelling or because such a file exists."""
    if not _ID.fullmatch(name) or name.endswith((".yaml", ".yml")):
        return True
    return Path(name).is_file() and not any(each.startswith(name) for each in begun(settings.load()))


def _by_beginning(name: str, here: Settings) -> str:
    launches = begun(here)
    fitting = [each for each in launches if each == name] or [each for each in launches if each.startswith(name)]
    of_name = [each for each in fitting if re.fullmatch(rf"{re.escape(name)}-[0-9a-f]{{8}}(-\d+)?", each)]
    if not fitting and re.fullmatch(LOCALE, name):
        of_name = [each for each in launches if kept_config(here, each).locale == name]
    if of_name or len(fitting) == 1:
        return _newest(of_name or fitting, here)
    if fitting:
        raise ValueError(f"launch: {name!r} is the beginning of {_some(fitting)}; write more of the id")
    close = difflib.get_close_matches(name, launches, n=2)
    near = f"did you mean {' or '.join(close)}? " if close else ""
    raise ValueError(
        f"launch: {name!r} is no launch file, and no launch in {here.runs_dir}, which holds {_some(launches)}; {near}"
        "'tacit runs' lists launches, and launch files are kept in dags/launches/"
    )


def _newest(launches: list[str], here: Settings) -> str:
    return max(launches, key=lambda each: (began(here, each), each))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more or "no launch"
