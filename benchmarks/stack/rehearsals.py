"""What operators do to launches, on the production stack: clear, rotate secrets, backfill, update, restore.

    .venv/stages/bin/python -m benchmarks.stack.rehearsals [--only clear rotate backfill update restore]

Services are those of `make stack`, launches tiny. Each step is a row: what was done, and what was seen; a row that
differs makes the exit code 1. For `update`, `newer.py` stands for the next version of tacit.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import yaml

from pipeline.launch.config import launch_id, load_launch
from pipeline.ledger.migrations import versioning
from tests.helpers.launches.installed import keyed
from tests.helpers.launches.tiny_launch import POLICY
from tests.helpers.processes.forked import begun
from tests.helpers.processes.server import latest_monthly, token_of, until
from tests.helpers.processes.stack import DAG, PYTHON, ROOT, Stack, stack
from tests.pipeline.test_upgrade import NEXT

PATIENCE = 1800.0
DAY = timedelta(days=1)
# The next version of tacit, where a file says that workers have it.
TACIT = """#!/bin/sh
[ -e {folder}/newer ] && exec {forked.python} -m benchmarks.stack.newer {folder}/migrations "$@"
exec {forked.tacit} "$@"
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
# Small steps, so that the gates let it pass.
SETTINGS: dict[str, object] = {"mechanism": MECHANISM, "server": {"learning_rate": 0.05}}


class Rehearsal:
    """Steps on one stack, a row each."""

    def __init__(self, servers: Stack, folder: Path) -> None:
        self.servers, self.folder = servers, folder
        self.begun, self.differences = time.monotonic(), 0
        self.launches = Path(servers.environment["TACIT_LAUNCHES"])

    def row(self, what: str, seen: Any, expected: Any) -> None:
        right = seen == expected
        self.differences += not right
        said = str(seen) if right else f"DIFFERS: {seen!r}, not {expected!r}"
        print(f"| {time.monotonic() - self.begun:.0f} s | {what} | {said} |", flush=True)

    def file(self, name: str, **changes: object) -> str:
        """Another launch file like the tiny one; returns its launch's id, whose keys are drawn."""
        raw = yaml.safe_load((self.launches / f"{DAG}.yaml").read_text(encoding="utf-8"))
        path = self.launches / f"{name}.yaml"
        path.write_text(yaml.safe_dump(raw | {"name": name} | changes), encoding="utf-8")
        keyed(self.servers.home / "runs", path)
        until(lambda: name in self.dags(), PATIENCE)
        return launch_id(load_launch(path))

    def dags(self) -> set[str]:
        return {each["dag_id"] for each in self.servers.airflow.api("GET", "/dags")["dags"]}

    def entries(self) -> list[dict[str, Any]]:
        return self.servers.tacit("ledger", "show")["entries"]

    def spends(self, launch: str) -> list[str]:
        """Stages of a launch that spent."""
        return sorted(each["stage"] for each in self.entries() if each["launch_id"] == launch and spent(each))

    def end(self, run: str, dag: str) -> dict[str, str]:
        """States of a run's tasks at its end; where it asks, its reviewer approves."""
        self.asks(run, dag)
        if not self.servers.ended(run, dag):
            self.servers.answer(run, dag=dag)
        until(lambda: self.servers.ended(run, dag), PATIENCE)
        return self.servers.airflow.states(dag, run)

    def asks(self, run: str, dag: str) -> None:
        until(
            lambda: self.servers.state(run, "approve", dag) == "awaiting_input" or self.servers.ended(run, dag),
            PATIENCE,
        )
        time.sleep(4)  # an answer that comes at once may meet the task before it is parked

    def airflow(self, *words: str) -> None:
        told = self.servers.done("environment", "airflow")
        environment = dict(line.split("=", 1) for line in told.split("\0") if line)
        command = [str(PYTHON.parent / "airflow"), *words]
        subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, timeout=600)

    # What operators do.

    def clear(self) -> None:
        """A held launch is cleared in three ways: a task, the run, and by the command line a task and what follows."""
        run, before = self.held(), self.entries()
        ways: dict[str, Callable[[], None]] = {
            "task fine_tune": lambda: self.servers.clear(run, "fine_tune", dag="held"),
            "task publish, which it may not reach": lambda: self.servers.clear(run, "publish", dag="held"),
            "the run": lambda: self.servers.clear(run, dag="held"),
            "decide and what follows, by airflow tasks clear": lambda: self.airflow(
                "tasks", "clear", "held", "--yes", "--downstream", "-t", "decide"
            ),
        }
        for name, way in ways.items():
            way()
            ended = self.end(run, "held")
            self.row(f"cleared: {name}", (*published(ended), self.entries() == before), (*HELD, True))

    def held(self) -> str:
        """The run of a launch that its gates hold."""
        if "held" not in self.dags():
            launch = self.file("held", policy=POLICY | {"min_top1_gain": 0.9})
            ended = self.end(self.servers.trigger("held"), "held")
            self.row("a launch that its gates hold", (*published(ended), self.spends(launch)), (*HELD, SPENDS))
        return self.servers.airflow.api("GET", "/dags/held/dagRuns")["dag_runs"][0]["dag_run_id"]

    def update(self) -> None:
        """The ledger is updated while one launch trains and another waits for approval; workers follow later."""
        waiting = launch_id(load_launch(self.launches / f"{DAG}.yaml"))
        first = self.servers.trigger()
        self.asks(first, DAG)
        self.row("one launch", self.servers.state(first, "approve"), "awaiting_input")
        self.dump("before")
        launch = self.file("trains", seed=6)
        second = self.servers.trigger("trains")
        holder = until(lambda: self.halted(launch), PATIENCE)
        self.row("another, halted in its rounds", self.servers.state(second, "fine_tune", "trains"), "running")
        before = self.entries()
        migrations = self.folder / "migrations"
        shutil.copytree(Path(versioning.__file__).parent, migrations)
        (migrations / "versions" / "r2_next.py").write_text(NEXT, encoding="utf-8")
        (self.folder / "newer").touch()
        verified = self.servers.tacit("ledger", "verify")["problems"]
        self.row("ledger updated by the next version", (verified, self.entries() == before), ([], True))
        (self.folder / "newer").unlink()
        old = self.servers.command("tacit", "ledger", "show", "--json")
        self.row("the version before", (old.returncode, "update tacit here" in old.stdout), (75, True))
        (self.folder / "newer").touch()
        # Before the other publishes, with which it was not compared.
        self.row("the one that waited, approved", set(self.end(first, DAG).values()), {"success"})
        os.kill(holder, signal.SIGCONT)
        log = self.servers.home / "airflow" / "logs" / "dag_id=trains" / f"run_id={second}" / "task_id=fine_tune"
        ended = self.end(second, "trains")
        said = (log / "attempt=1.log").read_text(encoding="utf-8")
        self.row("its stage, left behind", "update tacit here" in said and "temporary" in said, True)
        seen = (set(ended.values()), self.spends(launch), self.spends(waiting))
        self.row("it ends by updated workers, and has spent", seen, ({"success"}, SPENDS, SPENDS))
        kept = [each for each in self.entries() if each in before]
        self.row("entries that changed", len(before) - len(kept), 0)

    def restore(self) -> None:
        """A dump from before spends is restored, as docs/settings.md says, then the newest."""
        if not (self.folder / "before.dump").exists():
            self.dump("before")
            self.end(self.servers.trigger(), DAG)
        self.dump("newest")
        before = self.entries()
        self.put("before")
        told = self.servers.command("tacit", "ledger", "verify", "--json")
        missing = [each for each in json.loads(told.stdout)["problems"] if "log holds entry" in each]
        self.row("an older dump: ledger verify", (told.returncode, bool(missing)), (65, True))
        self.file("after", seed=7)
        run = self.servers.trigger("after")
        until(lambda: self.servers.ended(run, "after"), PATIENCE)
        seen = (self.servers.ended(run, "after"), self.servers.state(run, "fine_tune", "after"))
        self.row("a launch", seen, ("failed", "upstream_failed"))
        self.put("newest")
        told = self.servers.tacit("ledger", "verify")
        self.row("the newest dump", (told["problems"], self.entries() == before), ([], True))
        self.servers.clear(run, dag="after")
        self.row("that launch, cleared", set(self.end(run, "after").values()), {"success"})

    def rotate(self) -> None:
        """docker/rotate.sh, then a run that asks every service."""
        run, entries, before = self.held(), self.entries(), self.servers.secrets()
        done = subprocess.run(
            ["bash", "docker/rotate.sh"], cwd=ROOT, env=self.servers.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        after = self.servers.secrets()
        same = sorted(name for name in before if before[name] == after[name])
        self.row("secrets that stay", (same, len(after)), (["AIRFLOW_FERNET_KEY"], len(before)))
        self.servers.done("down")
        self.servers.done("up")
        token_of.cache_clear()
        self.row("services", self.servers.command("status").returncode, 0)
        for name in ("postgres", "ledger", "airflow", "mlflow", "mlflow_login"):
            key = "POSTGRES_PASSWORD" if name == "postgres" else f"{name.upper()}_DB_PASSWORD"
            seen = (self.servers.opens_database(name, before[key]), self.servers.opens_database(name, after[key]))
            self.row(f"PostgreSQL, {name}: old, new", seen, (False, True))
        self.servers.clear(run, dag="held")
        ended = self.end(run, "held")
        self.row("the held run, cleared", (*published(ended), self.entries() == entries), (*HELD, True))

    def backfill(self) -> None:
        """The schedule's latest month and the last but two ran; a backfill of all three runs the one between them."""
        raw = {"source": "synthetic", "name": "tiny-clients", "devices": 80, "max_words_per_device": 60}
        self.file("monthly", schedule="@monthly", reviewers=[], private_text=raw | {"test_fraction": 0.35})
        file = str(self.launches / "monthly.yaml")
        until(lambda: "public_model-monthly" in self.dags(), PATIENCE)
        for dag in ("monthly", "public_model-monthly"):
            self.servers.airflow.api("PATCH", f"/dags/{dag}", {"is_paused": False})
        latest = latest_monthly("monthly").date()
        between = (latest - DAY).replace(day=1)
        first = (between - DAY).replace(day=1)
        self.published(latest)
        said = self.servers.done("backfill", file, str(first), str(first + DAY), "1").splitlines()[-1]
        self.row("backfill of one month", said, f"public_model-monthly: runs of {first:%Y%m%d}")
        self.published(first)
        before, words = self.entries(), ("backfill", file, str(first), str(latest + DAY))
        forecast = self.servers.done(*words)
        spends = {first: "spends nothing", between: "rho", latest: "spends nothing"}
        seen = [f"-{day:%Y%m%d}: {what}" in forecast for day, what in spends.items()]
        self.row("forecast of three: the one between spends, others nothing", seen, [True] * 3)
        said = self.servers.done(*words, "1").splitlines()[-1].partition(", and")[0]
        expected = f"public_model-monthly: runs of {between:%Y%m%d}; 2 already have a run"
        self.row("backfill of three", said, expected)
        self.published(between)
        new = [each for each in self.entries() if each not in before and spent(each)]
        seen = ({each["launch_id"][-8:] for each in new}, sorted(each["stage"] for each in new))
        self.row("spent by", seen, ({f"{between:%Y%m%d}"}, SPENDS))

    def published(self, month: date) -> None:
        run = until(lambda: self.runs().get(f"{month:%Y%m%d}"), PATIENCE)
        until(lambda: self.servers.ended(run, "monthly"), PATIENCE)
        self.row(f"launch of {month}", set(self.servers.airflow.states("monthly", run).values()), {"success"})

    def runs(self) -> dict[str, str]:
        listed = self.servers.airflow.api("GET", "/dags/monthly/dagRuns")["dag_runs"]
        return {run["partition_key"]: run["dag_run_id"] for run in listed}

    # Files and databases.

    def halted(self, launch: str) -> int:
        """The process that trains, stopped once it has a checkpoint; 0 before."""
        folder = self.servers.home / "runs" / launch / "private" / "fine_tune"
        if not list(folder.rglob("round-*.ckpt")):
            return 0
        holder = int((folder / ".lock").read_text().strip())
        os.kill(holder, signal.SIGSTOP)
        return holder

    def dump(self, name: str) -> None:
        """The backup of docs/settings.md."""
        self.postgres("pg_dump", "--format=custom", f"--file={self.folder / f'{name}.dump'}", "ledger")

    def put(self, name: str) -> None:
        """The restore of docs/settings.md."""
        self.postgres("psql", "--quiet", "--command=DROP OWNED BY ledger", "ledger")
        self.postgres("pg_restore", "--single-transaction", "--dbname=ledger", str(self.folder / f"{name}.dump"))

    def postgres(self, *words: str) -> None:
        subprocess.run(words, env=self.servers.login("ledger", self.servers.secret("LEDGER_DB_PASSWORD")), check=True)


SPENDS = ["discover", "fine_tune"]
HELD = ("upstream_failed", ["launch_or_hold"])
STEPS = ("clear", "rotate", "backfill", "update", "restore")


def published(states: dict[str, str]) -> tuple[str, list[str]]:
    """State of publication, and tasks that failed."""
    return states["publish"], sorted(task for task, state in states.items() if state == "failed")


def spent(entry: dict[str, Any]) -> bool:
    return entry["kind"] in ("commit", "reuse")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=STEPS, default=STEPS, help="which steps")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "tacit"
        script.write_text(TACIT.format(folder=folder, forked=begun(folder, os.getpid())), encoding="utf-8")
        script.chmod(0o755)
        with stack(script, **SETTINGS) as servers:
            rehearsal = Rehearsal(servers, folder)
            for step in asked.only:
                print(f"\n{getattr(rehearsal, step).__doc__}\n\n| after | step | seen |\n|---|---|---|", flush=True)
                getattr(rehearsal, step)()
        return 1 if rehearsal.differences else 0


if __name__ == "__main__":
    sys.exit(main())
