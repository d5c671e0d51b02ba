"""Processes of this stack, identified by number and start time, and all their descendants."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

# Marks the environment of every service and of all its descendants, even if they are re-parented.
MARK = "TACIT_STACK"
PATIENCE_SECONDS = 20


@dataclass(frozen=True)
class Command:
    """Command of a service; ``user`` is the account that it runs as, if not the current one."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    user: str | None = None


def start(name: str, command: Command, started: Path, log: Path) -> None:
    """Start a service in a session of its own, and record its process."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command.arguments,
            cwd=command.folder,
            env={**command.environment, MARK: mark(started)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **({"user": command.user, "group": command.user, "extra_groups": ()} if command.user else {}),
        )
    born = psutil.Process(process.pid).create_time()
    (started / f"{name}.json").write_text(json.dumps({"pid": process.pid, "born": born}), encoding="utf-8")


def mark(started: Path) -> str:
    return str(started)


def running(name: str, started: Path) -> psutil.Process | None:
    """Return the service's process; None if it has ended, as its number may be reused."""
    try:
        note = json.loads((started / f"{name}.json").read_text(encoding="utf-8"))
        process = psutil.Process(note["pid"])
        same = abs(process.create_time() - note["born"]) < 0.05 and process.status() != psutil.STATUS_ZOMBIE
        return process if same else None
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return None


def stop(names: Sequence[str], started: Path, signals: Mapping[str, signal.Signals]) -> list[str]:
    """End services together with all their descendants, and return the names of those that ran.

    Args:
      signals: signal that ends a service, if not SIGTERM.
    """
    leaders = {name: process for name in names if (process := running(name, started))}
    below = [child for process in leaders.values() for child in children(process)]
    for name, process in leaders.items():
        send(process, signals.get(name, signal.SIGTERM))
    _, left = psutil.wait_procs([*leaders.values(), *below], timeout=PATIENCE_SECONDS)
    for process in left:
        send(process, signal.SIGKILL)
    psutil.wait_procs(left, timeout=5)
    for name in names:
        (started / f"{name}.json").unlink(missing_ok=True)
    return list(leaders)


def stop_leavings(names: Sequence[str], started: Path) -> int:
    """End processes left by services that died, such as the stage of a killed worker.

    Args:
      names: services that may still run, with their descendants.
    """
    leaders = [process for name in names if (process := running(name, started))]
    spared = {process.pid for leader in leaders for process in (leader, *children(leader))}
    left = [process for process in psutil.process_iter() if process.pid not in spared and marked(process, started)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            send(process, number)
        _, left = psutil.wait_procs(left, timeout=10)
    return len(left)


def children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def marked(process: psutil.Process, started: Path) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        return process.environ().get(MARK) == mark(started) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)  # psutil checks that it is still the same process
    except psutil.NoSuchProcess:
        return


def tail(log: Path, lines: int = 20) -> str:
    if not log.is_file():
        return ""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def since(begun: float) -> str:
    return f"{time.monotonic() - begun:.0f} s"
