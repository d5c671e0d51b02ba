"""A seeded launch whose stages are stopped at a crash point, and what must hold once they have run again."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.ground import settings
from pipeline.ground.errors import TEMPORARY
from pipeline.launch.config import load_launch
from pipeline.run.bookkeeping import TRACES
from pipeline.run.proof import FOLDER
from pipeline.run.run_dir import RESULT
from pipeline.run.stage import of_launch
from pipeline.stages.graph import STAGES
from pipeline.tracking import mlflow_tracker
from pretrain.files import remove_leavings, sha256
from tests.golden import facts, seeded_launch
from tests.golden.facts import Fact
from tests.helpers.launches.command import LAUNCHED, tacit
from tests.helpers.launches.tiny_launch import leaks
from tests.helpers.processes import crash_points
from tests.helpers.processes.crash_points import CrashPoint, Ended, Fault
from tests.helpers.processes.forked import KILLED

# JSON files of which the values are compared, as times differ between two runs; the first says how often a stage began.
_JSON = (RESULT, "disclosure.json")
_ATTEMPTS = "report/disclosure.json/launch/attempts"
_MOST_REPEATS = 2


@dataclass(frozen=True, eq=False)
class Step:
    """A command of a launch that ran once, without a fault.

    Attributes:
      before: home as it was before.
      points: crash points, in order.
      found: facts of the run after it; None for one that differs between two undisturbed runs.
    """

    command: tuple[str, ...]
    before: Path
    points: tuple[CrashPoint, ...]
    found: dict[str, Fact]


@dataclass(frozen=True)
class Undisturbed:
    """A launch without a fault: one command for each stage, and then the whole launch, which says how it ended.

    Attributes:
      home: where every run takes place, as paths are among what is compared.
    """

    name: str
    home: Path
    program: Path
    steps: tuple[Step, ...]

    @property
    def points(self) -> list[tuple[Step, CrashPoint]]:
        """All crash points, in order."""
        return [(step, point) for step in self.steps for point in step.points]


def undisturbed(name: str, folder: Path, program: Path) -> Undisturbed:
    """Run a seeded launch twice in a folder, count its crash points, and keep its home before each command.

    Args:
      program: ``tacit`` of ``forked``.
    """
    begin, home = folder / "before-0", folder / "home"
    (begin / "runs").mkdir(parents=True)
    mlflow_tracker.connect(settings.load({"TACIT_HOME": str(begin)}))
    file = seeded_launch.begun(begin, name)
    names = of_launch(load_launch(file), STAGES)
    commands = [*(("stage", stage, file.name) for stage in names), ("launch", file.name)]

    shutil.copytree(begin, home)
    first = []
    for command in commands:
        done = tacit(home, *command, program=program)
        assert done.returncode in LAUNCHED, done.stderr
        first.append(_facts(home, name))
    _restore(home, begin)
    steps = []
    for number, (command, before) in enumerate(zip(commands, first, strict=True)):
        kept = folder / f"before-{number}"
        if number:
            shutil.copytree(home, kept)
        ended, points = crash_points.counted(home, program, *command)
        assert ended.code in LAUNCHED, ended.output
        found = {each: value if before.get(each) == value else None for each, value in _facts(home, name).items()}
        steps.append(Step(command, kept, tuple(points), found))
    return Undisturbed(name, home, program, tuple(steps))


def disturbed(whole: Undisturbed, step: Step, point: CrashPoint, fault: Fault, *, to_end: bool) -> Iterator[str]:
    """Stop a command at a crash point, run it again, and yield what is wrong after that.

    Args:
      to_end: run the whole launch again instead of the one command.
    """
    ended = _crashed(whole, step, point, fault)
    yield from _ending(ended, fault)
    yield from _leaks(whole.home)
    again = whole.steps[-1] if to_end else step
    for _ in range(_MOST_REPEATS):
        repeated = tacit(whole.home, *again.command, program=whole.program)
        if repeated.returncode in LAUNCHED:
            break
    else:
        yield f"run again, it ends with {repeated.returncode}: {repeated.stderr[-300:]}"
        return
    run = seeded_launch.run_of(whole.home, whole.name)
    # As ``tacit verify`` does: a copy of text that was being written when its process died.
    remove_leavings(run / "private")
    if not to_end:  # As stage ``decide`` does.
        remove_leavings(run / "public" / FOLDER)
    found = _facts(whole.home, whole.name)
    yield from (f"left behind: {name}" for name in sorted(found.keys() - again.found.keys()))
    yield from (f"lost: {name}" for name in sorted(again.found.keys() - found.keys()))
    yield from (
        f"differs: {name}"
        for name, value in again.found.items()
        if value is not None and found.get(name, value) != value
    )
    yield from _leaks(whole.home)


def _crashed(whole: Undisturbed, step: Step, point: CrashPoint, fault: Fault) -> Ended:
    """Stop a command at a crash point, or at a call before it: MLflow's database takes a few calls more or less."""
    for number in range(point.number, 0, -1):
        _restore(whole.home, step.before)
        ended = crash_points.crashed(whole.home, whole.program, replace(point, number=number), fault, *step.command)
        if ended.injected:
            break
    return ended


def _restore(home: Path, before: Path) -> None:
    shutil.rmtree(home)
    shutil.copytree(before, home)


def _ending(ended: Ended, fault: Fault) -> Iterator[str]:
    """A full disk is told as an error of the machine, or does no harm; nothing is told by a killed command."""
    expected = (KILLED,) if fault == "SIGKILL" else (*LAUNCHED, TEMPORARY)
    if ended.code not in expected:
        yield f"it ended with {ended.code}: {ended.output[-300:]}"
    if "Traceback" in ended.output:
        yield f"it showed a traceback: {ended.output[-300:]}"


def _facts(home: Path, name: str) -> dict[str, Fact]:
    """Entries in the ledger, digests of files of the run, and values of its results."""
    run = seeded_launch.run_of(home, name)
    found = facts.of_ledger(run.name, home / "runs" / "ledger.db")
    for path in sorted(run.rglob("*")):
        # The bookkeeping of attempts tells of the crash.
        if path.is_file() and path.name not in TRACES:
            place = path.relative_to(run).as_posix()
            found[place] = sha256(path)
            if path.name in _JSON:
                found |= facts.leaves(json.loads(path.read_text(encoding="utf-8")), place)
    return {place: value for place, value in found.items() if _ATTEMPTS not in place}


def _leaks(home: Path) -> list[str]:
    """Ids of clients outside the private folders."""
    clients = [f"made-up-{client:03d}" for client in range(seeded_launch.CLIENTS)]
    places = [path for path in (home / "runs").iterdir() if not path.is_dir()]
    places += [path for path in (home / "runs").glob("*/*") if path.name != "private"]
    return leaks(places, {}, clients)
