"""A seeded launch that is stopped at a crash point, and what must hold once the same command has run again."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.ground import settings
from pipeline.ground.errors import TEMPORARY
from pipeline.run.bookkeeping import TRACES
from pipeline.tracking import mlflow_tracker
from pretrain.files import remove_leavings
from tests.golden import facts, seeded_launch
from tests.golden.facts import Fact
from tests.helpers.launches.command import LAUNCHED, tacit
from tests.helpers.launches.installed import installed
from tests.helpers.launches.tiny_launch import leaks
from tests.helpers.processes import crash_points
from tests.helpers.processes.crash_points import CrashPoint, Ended, Fault
from tests.helpers.processes.forked import KILLED

# Numbers of attempts, and what a stage that was begun twice says of that.
_ATTEMPTS = ("ledger/attempt", "disclosure/launch/attempts")
_MOST_REPEATS = 2


@dataclass(frozen=True)
class Undisturbed:
    """A launch that ran once, without a fault.

    Attributes:
      before: home as it was before the launch.
      home: where every run takes place, as paths are among what is compared.
      points: crash points, in order.
      found: facts of its run.
      files: files of its run below its folder.
    """

    name: str
    before: Path
    home: Path
    program: Path
    points: tuple[CrashPoint, ...]
    found: dict[str, Fact]
    files: frozenset[str]

    @property
    def command(self) -> tuple[str, str]:
        """The command that is stopped, and run again."""
        return "launch", f"tiny-{self.name}.yaml"


def undisturbed(name: str, folder: Path, program: Path) -> Undisturbed:
    """Run a seeded launch in a folder, and count its crash points.

    Args:
      program: ``tacit`` of ``forked``.
    """
    before, home = folder / "before", folder / "home"
    (before / "runs").mkdir(parents=True)
    mlflow_tracker.connect(settings.load({"TACIT_HOME": str(before)}))
    seeded_launch.write_data(before)
    seeded_launch.write_launch(before, name)
    installed(before, seeded_launch.population(name))
    shutil.copytree(before, home)
    ended, points = crash_points.counted(home, program, "launch", f"tiny-{name}.yaml")
    assert ended.code in LAUNCHED, ended.output
    return Undisturbed(name, before, home, program, tuple(points), _facts(home, name), _files(home, name))


def disturbed(whole: Undisturbed, point: CrashPoint, fault: Fault) -> Iterator[str]:
    """Stop the launch at a crash point, run it again, and yield what is wrong after that."""
    shutil.rmtree(whole.home)
    shutil.copytree(whole.before, whole.home)
    ended = crash_points.crashed(whole.home, whole.program, point, fault, *whole.command)
    yield from _ending(ended, fault)
    yield from _leaks(whole.home)
    for _ in range(_MOST_REPEATS):
        again = tacit(whole.home, *whole.command, program=whole.program)
        if again.returncode in LAUNCHED:
            break
    else:
        yield f"run again, it ends with {again.returncode}: {again.stderr[-300:]}"
        return
    # As ``tacit verify`` does: a copy of text that was being written when its process died.
    remove_leavings(seeded_launch.run_of(whole.home, whole.name) / "private")
    found = _facts(whole.home, whole.name)
    yield from (f"{name} differs" for name in sorted(whole.found.keys() | found.keys()) if _differs(name, whole, found))
    yield from (f"left behind: {name}" for name in sorted(_files(whole.home, whole.name) - whole.files))
    yield from (f"lost: {name}" for name in sorted(whole.files - _files(whole.home, whole.name)))
    yield from _leaks(whole.home)


def _ending(ended: Ended, fault: Fault) -> Iterator[str]:
    """A full disk is told as an error of the machine, or does no harm; nothing is told by a killed command."""
    expected = (KILLED,) if fault == "SIGKILL" else (*LAUNCHED, TEMPORARY)
    if ended.code not in expected:
        yield f"it ended with {ended.code}: {ended.output[-300:]}"
    if "Traceback" in ended.output:
        yield f"it showed a traceback: {ended.output[-300:]}"


def _differs(name: str, whole: Undisturbed, found: dict[str, Fact]) -> bool:
    return not name.startswith(_ATTEMPTS) and whole.found.get(name) != found.get(name)


def _facts(home: Path, name: str) -> dict[str, Fact]:
    return facts.of_run(seeded_launch.run_of(home, name), home / "runs" / "ledger.db")


def _files(home: Path, name: str) -> frozenset[str]:
    run = seeded_launch.run_of(home, name)
    # The bookkeeping of attempts tells of the crash.
    found = (path for path in run.rglob("*") if path.is_file() and path.name not in TRACES)
    return frozenset(path.relative_to(run).as_posix() for path in found)


def _leaks(home: Path) -> list[str]:
    """Ids of clients outside the private folders."""
    clients = [f"made-up-{client:03d}" for client in range(seeded_launch.CLIENTS)]
    places = [path for path in (home / "runs").iterdir() if not path.is_dir()]
    places += [path for path in (home / "runs").glob("*/*") if path.name != "private"]
    return leaks(places, {}, clients)
