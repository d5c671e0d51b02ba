"""Faults of real servers under a launch: `make stack`, a tiny launch, kill -9, a full disk, a stage that hangs.

    .venv/stages/bin/python -m benchmarks.stack.faults [--times 3] [--only servers worker timeout disk]

Each launch goes through Airflow from the same state, as the stages before ``fine_tune`` left it, and is held against
one that nothing happened to: same bits of the trained model, one spend a stage in the ledger, one answer in it, and
published only if that answer approved: people approve and reject at the same moment. Root alone may mount the small
disk of ``disk``. For ``timeout`` a policy of Airflow's own takes the hours of `fine_tune` down to seconds.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import psycopg2
from psycopg2 import sql

from pipeline.launch.config import launch_id, load_launch
from pipeline.stages.graph import STAGES
from tests.helpers.processes.forked import begun
from tests.helpers.processes.proc import tree
from tests.helpers.processes.server import until
from tests.helpers.processes.stack import DAG, ROOT, Stack, stack

BEFORE = tuple(takewhile(lambda name: name != "fine_tune", STAGES))
SERVERS = ("scheduler", "redis", "postgres", "mlflow", "api-server")
DATABASES = {"ledger": "ledger", "mlflow": "mlflow"}
MIB = 1 << 20
HELD = "not asked"
# Longer than the command takes to import what it needs and to reach its first checkpoint on a busy machine.
SHORT_SECONDS = 90
# In airflow/config of the stack; the file that it looks for is there while a try is to be ended.
POLICY = """
from datetime import timedelta
from pathlib import Path


def task_policy(task):
    if task.task_id == "fine_tune" and Path({short!r}).exists():
        task.execution_timeout = timedelta(seconds={seconds})
"""
# A stage that hangs is the command itself, as Airflow ends it by its process group; others fork, which is quicker.
TACIT = """#!/bin/sh
case " $* " in *" stage fine_tune "*) [ ! -e '{short}' ] || exec '{command}' "$@" ;; esac
exec '{forked}' "$@"
"""
MECHANISM = {
    "kind": "tree",
    "noise_multiplier": 16.0,
    "clip_norm": 0.3,
    "rounds": 24,
    "report_goal": 12,
    "min_sep": 2,
    "max_participations": 12,
    "delta": 1e-6,
    "randomness": "secure",
}
# Small steps, so that the gates let it pass and people are asked: what nobody is asked about cannot be answered twice.
SERVER = {"learning_rate": 0.05}


def main() -> int:
    asked = _arguments()
    names = [name for name in asked.only if name != "disk" or os.geteuid() == 0]
    rows = []
    with (
        tempfile.TemporaryDirectory() as meeting,
        stack(tacit(Path(meeting)), mechanism=MECHANISM, server=SERVER) as servers,
    ):
        launch = Launch(servers, Path(meeting) / "short")
        if "disk" in names:
            mount = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", str(launch.runs)]
            subprocess.run(mount, check=True)
        try:
            launch.prepare()
            for turn in range(1, asked.times + 1):
                for name in names:
                    launch.restore()
                    launch.short.unlink(missing_ok=True)
                    if name == "timeout":
                        launch.short.touch()
                    rows.append((turn, name, *launch.go(FAULTS[name])))
                    print(f"| {' | '.join(map(str, rows[-1]))} |", flush=True)
        finally:
            if "disk" in names:
                servers.command("down")
                subprocess.run(["umount", "--lazy", str(launch.runs)], check=False)
    return 0 if all("no" not in row for row in rows) else 1


def tacit(folder: Path) -> Path:
    """The program of workers: processes that fork, but for a stage that is to hang."""
    script, short = folder / "tacit", folder / "short"
    command, forked = ROOT / ".venv" / "stages" / "bin" / "tacit", begun(folder, os.getpid()).tacit
    script.write_text(TACIT.format(short=short, command=command, forked=forked), encoding="utf-8")
    script.chmod(0o755)
    return script


class Launch:
    """One launch that is begun again and again from where its public stages ended.

    Args:
      short: a file that is there while `fine_tune` has little time.
    """

    def __init__(self, servers: Stack, short: Path) -> None:
        self.servers, self.short = servers, short
        self.file = Path(servers.environment["TACIT_LAUNCHES"], f"{DAG}.yaml")
        self.id = launch_id(load_launch(self.file))
        self.runs = servers.home / "runs"
        self.base = servers.home / "runs-before"
        self.undisturbed = ""

    @property
    def fine_tune(self) -> Path:
        return self.runs / self.id / "private" / "fine_tune"

    def stage(self, name: str) -> None:
        self.servers.tacit("stage", name, str(self.file), "--id", self.id)

    def prepare(self) -> None:
        """The stages before training, kept aside; then training as it is when nothing happens."""
        for name in BEFORE:
            self.stage(name)
        policy = self.servers.home / "airflow" / "config" / "airflow_local_settings.py"
        policy.parent.mkdir(exist_ok=True)
        policy.write_text(POLICY.format(short=str(self.short), seconds=SHORT_SECONDS), encoding="utf-8")
        self.servers.control("restart", "worker-cpu")  # the next one reads the policy
        self.servers.control("stop", "mlflow")
        shutil.copytree(self.runs, self.base, copy_function=shutil.copy2)
        self.databases(lambda name: [(f"{name}_before", name)])
        self.servers.done("up")
        self.stage("fine_tune")
        self.undisturbed = self.bits()

    def restore(self) -> None:
        """The state that ``prepare`` kept aside."""
        self.servers.control("stop", "mlflow")
        for path in self.runs.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self.base, self.runs, dirs_exist_ok=True)
        self.databases(lambda name: [(name, f"{name}_before")])
        self.servers.done("up")

    def databases(self, pairs: Callable[[str], list[tuple[str, str]]]) -> None:
        """Make databases anew from others: (new, template) of each of the two that hold what a launch did."""
        password = self.servers.secret("POSTGRES_PASSWORD")
        port = self.servers.environment["POSTGRES_PORT"]
        link = psycopg2.connect(host="127.0.0.1", port=port, user="postgres", password=password, dbname="postgres")
        link.autocommit = True
        with link.cursor() as cursor:
            for owner in DATABASES:
                for new, template in pairs(owner):
                    gone = "select pg_terminate_backend(pid) from pg_stat_activity where datname in (%s, %s)"
                    cursor.execute(gone, (new, template))
                    cursor.execute(sql.SQL("drop database if exists {}").format(sql.Identifier(new)))
                    make = sql.SQL("create database {} template {} owner {}")
                    cursor.execute(make.format(*map(sql.Identifier, (new, template, owner))))
        link.close()

    def bits(self) -> str:
        files = sorted((self.runs / self.id / "public" / "fine_tune").glob("*.safetensors"))
        assert files
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    def go(self, fault: Callable[["Launch", int], str]) -> tuple[str, ...]:
        """One launch with its fault: what happened, tries, bits, spends, the answer and how it ended."""
        begun_at = time.monotonic()
        run = self.servers.trigger()
        holder = until(self.halted, 400)
        said = fault(self, holder)
        until(lambda: self.servers.state(run, "approve") == "awaiting_input" or self.servers.ended(run), 500)
        answered = HELD
        if not self.servers.ended(run):
            time.sleep(4)
            answered = self.answers(run)
            until(lambda: self.servers.ended(run), 300)
        tasks = self.servers.airflow.api("GET", f"/dags/{DAG}/dagRuns/{run}/taskInstances")["task_instances"]
        tries = next(task["try_number"] for task in tasks if task["task_id"] == "fine_tune")
        entries = [each for each in self.servers.tacit("ledger", "show")["entries"] if each["launch_id"] == self.id]
        spends = sorted(each["stage"] for each in entries if each["kind"] == "commit")
        reviews = [json.loads(each["binding"])["answer"] for each in entries if each["kind"] == "review"]
        published = self.servers.state(run, "publish") == "success"
        # A launch that its gates hold asks nobody.
        consistent = len(reviews) == (answered != HELD) and published == (reviews == ["approve"])
        return (
            said,
            str(tries),
            "yes" if self.bits() == self.undisturbed else "no",
            "yes" if spends == ["discover", "fine_tune"] else "no",
            f"{answered}; {'yes' if consistent else 'no'}: {', '.join(reviews) or 'none'}",
            f"{self.servers.ended(run)}, {'published' if published else 'held'}",
            f"{time.monotonic() - begun_at:.0f} s",
        )

    def halted(self) -> int:
        """The process that trains, stopped between two rounds; 0 until it has a checkpoint."""
        while not list(self.fine_tune.rglob("round-*.ckpt")):
            time.sleep(0.02)
        holder = int((self.fine_tune / ".lock").read_text().strip())
        os.kill(holder, signal.SIGSTOP)
        return holder

    def answers(self, run: str) -> str:
        """Approve and reject at the same moment."""

        def one(word: str) -> str:
            try:
                self.servers.answer(run, word)
            except urllib.error.HTTPError as error:
                return f"{word} {error.code}"
            return f"{word} taken"

        with ThreadPoolExecutor() as both:
            return ", ".join(both.map(one, ("Approve", "Reject")))


def kill(servers: Stack, name: str) -> None:
    """kill -9 of a service and all of its processes, as when its container ends; not of what its tasks started."""
    leader = servers.pid(name)
    # A stage has a session of its own; so has each process of PostgreSQL, which has no stages.
    group = [number for number in tree(leader) if name == "postgres" or session(number) == leader]
    for number in group:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    until(lambda: not any(alive(number) for number in group), 20)


def session(number: int) -> int:
    with suppress(ProcessLookupError):
        return os.getsid(number)
    return 0


def alive(number: int) -> bool:
    """Return whether a process still runs; one that only waits to be collected has no program any more."""
    with suppress(OSError):
        return bool(Path(f"/proc/{number}/exe").readlink())
    return False


def servers_die(launch: Launch, holder: int) -> str:
    """All servers one after the other, each back by itself, while a stage is halted in its rounds."""
    for name in SERVERS:
        kill(launch.servers, name)
        until(lambda: launch.servers.command("status").returncode == 0, 300)
    os.kill(holder, signal.SIGCONT)
    return f"kill -9 of {', '.join(SERVERS)}"


def worker_dies(launch: Launch, holder: int) -> str:
    """The worker alone: the stage that it leaves must not go on."""
    os.kill(holder, signal.SIGCONT)
    kill(launch.servers, "worker-cpu")
    until(lambda: not alive(holder), 60)
    return "kill -9 of the worker"


def disk_fills(launch: Launch, holder: int) -> str:
    """No byte is left under runs/ until the try has failed."""
    filler = launch.runs / "filler"
    with filler.open("wb") as file, suppress(OSError):
        while True:
            file.write(bytes(MIB))
            file.flush()
    os.kill(holder, signal.SIGCONT)
    until(lambda: not alive(holder), 120)
    filler.unlink()
    return "full disk"


def stage_hangs(launch: Launch, holder: int) -> str:
    """The stage stays halted until Airflow ends its try, by force; the next one has its hours."""
    launch.short.unlink()
    until(lambda: not alive(holder), SHORT_SECONDS + 120)
    logs = launch.servers.home / "airflow" / "logs"
    newest = max(logs.glob("*/*/task_id=fine_tune/attempt=1.log"), key=lambda path: path.stat().st_mtime)
    until(lambda: "AirflowTaskTimeout" in newest.read_text(encoding="utf-8"), 60)
    return f"halted past its timeout of {SHORT_SECONDS} s"


FAULTS = {"servers": servers_die, "worker": worker_dies, "timeout": stage_hangs, "disk": disk_fills}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3, help="how often in a row (default 3)")
    parser.add_argument("--only", nargs="+", choices=list(FAULTS), default=list(FAULTS), help="which faults")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
