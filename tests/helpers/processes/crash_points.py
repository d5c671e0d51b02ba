"""Kill a command, or fill its disk, at one chosen system call; strace counts the calls that reach the disk.

A crash point is a system call of the command's main thread that changes files of its home, by name and number. All
points of a command that repeats itself bit by bit can be tried one after the other. SQLite goes back to the last commit
from wherever in a transaction it was stopped, so of each transaction three calls count: its first write, its first sync
and its commit, which removes the journal.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from tests.helpers.launches.command import environment
from tests.helpers.processes.forked import KILLED, STOPPED

# Calls that reach a file's content, its name or its disk.
_CALLS = (
    *("write", "pwrite64", "writev", "ftruncate", "fallocate", "fsync", "fdatasync"),
    *("rename", "renameat", "renameat2", "link", "linkat", "symlink", "unlink", "unlinkat", "mkdir", "rmdir"),
)
_CHANGES = f"trace={','.join(_CALLS)}"
Fault = Literal["SIGKILL", "ENOSPC"]
# These need no space.
_FREEING = frozenset({"unlink", "unlinkat", "rmdir"})
_INJECTED = {"SIGKILL": "signal=SIGKILL", "ENOSPC": "error=ENOSPC"}
_LINE = re.compile(r"(\d+) +(\w+)\((.*)")
_FAILED = re.compile(r" = -1 E[A-Z]+ \(")
_JOURNAL = "-journal"
# What differs between two runs in a file's path: process, launch, keys of caches, eight letters of a temporary file.
_PASSING = re.compile(r"(?<=[.-])[a-z0-9_]{8}(?=[./]|$)|[0-9a-f]{8,}|\d+")
_NAMED = 2  # parts of a path: of deeper files the folder says the kind
_SECONDS = 600


@dataclass(frozen=True)
class CrashPoint:
    """The ``number``-th time that the main thread makes a call; ``file`` is the file's path below the home."""

    call: str
    number: int
    file: str

    @property
    def kind(self) -> str:
        """Call and folder of the file, without what differs between two runs or between rounds of one."""
        path = PurePosixPath(_PASSING.sub("*", self.file))
        return f"{self.call} {path if len(path.parts) <= _NAMED else path.parent}"

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Faults that may happen there."""
        return ("SIGKILL",) if self.call in _FREEING else ("SIGKILL", "ENOSPC")


@dataclass(frozen=True)
class Ended:
    """Exit code of a traced command, and all that it said.

    Attributes:
      injected: True if it made the call of the crash point.
    """

    code: int
    output: str
    injected: bool


def counted(home: Path, program: Path, *arguments: str) -> tuple[Ended, list[CrashPoint]]:
    """Run a command to its end, and list its crash points in order.

    Args:
      program: a script of ``forked``, which stops for the tracer.
    """
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        ended, main = traced(home, program, arguments, ["-y", "-s", "0", "-e", _CHANGES], trace)
        return ended, list(_without_inner(_points(trace, main, home)))


def crashed(home: Path, program: Path, point: CrashPoint, fault: Fault, *arguments: str) -> Ended:
    """Run a command with a fault at one point."""
    inject = f"inject={point.call}:{_INJECTED[fault]}:when={point.number}"
    with tempfile.TemporaryDirectory() as folder:
        return traced(home, program, arguments, ["-e", inject, "-e", _CHANGES], Path(folder) / "trace")[0]


def traced(
    home: Path, program: Path, arguments: Sequence[str], options: Sequence[str], trace: Path
) -> tuple[Ended, int]:
    """The end of a command that strace saw from its first call on, and the id of its process."""
    with tempfile.TemporaryDirectory() as folder:
        place, said = Path(folder) / "pid", Path(folder) / "said"
        with said.open("wb") as output:
            command = subprocess.Popen(
                [program, *arguments],
                cwd=home,
                env=environment(home, **{STOPPED: str(place)}),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            main = _stopped(place)
            with subprocess.Popen(["strace", "-f", "-qq", "-p", str(main), "-o", trace, *options]):
                _until(lambda: not re.search(r"^TracerPid:\s0$", _status(main), re.MULTILINE))
                os.kill(main, signal.SIGCONT)
                code = command.wait(timeout=_SECONDS)
        output = said.read_text(encoding="utf-8", errors="replace")
        return Ended(code, output, code == KILLED or b"(INJECTED)" in trace.read_bytes()), main


def _stopped(place: Path) -> int:
    _until(lambda: place.exists() and place.read_text(encoding="utf-8").isdecimal())
    number = int(place.read_text(encoding="utf-8"))
    _until(lambda: re.search(r"^State:\sT", _status(number), re.MULTILINE) is not None)
    return number


def _status(number: int) -> str:
    return Path(f"/proc/{number}/status").read_text(encoding="utf-8")


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not true():
        assert time.monotonic() < end, "the command did not stop for its tracer"
        time.sleep(0.005)


def _points(trace: Path, main: int, home: Path) -> Iterator[CrashPoint]:
    """Calls of the main thread that changed a file below the home, from a trace."""
    made: Counter[str] = Counter()
    below = re.compile(rf"{re.escape(str(home))}/([^>\"]*)")
    with trace.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = _LINE.match(line)
            if not found or int(found[1]) != main:
                continue
            made[found[2]] += 1
            about = below.search(found[3])
            if about and not _FAILED.search(line):
                yield CrashPoint(found[2], made[found[2]], about[1])


def _without_inner(points: Iterator[CrashPoint]) -> Iterator[CrashPoint]:
    """Leave out SQLite's calls within a transaction, but for its first write and its first sync."""
    seen = set[str]()
    for point in points:
        database = point.file.removesuffix(_JOURNAL)
        if not database.endswith(".db"):
            yield point
        elif point.call.startswith("unlink"):
            seen = {each for each in seen if not each.endswith(database)}
            yield point
        elif (inner := f"{point.call} {database}") not in seen:
            seen.add(inner)
            yield point
