"""The production stack in a folder of a test's own, and a tiny launch that goes through it."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.helpers.launches.installed import keyed
from tests.helpers.launches.tiny_launch import write_launch
from tests.helpers.processes.ports import free_port
from tests.helpers.processes.server import Server, ask_mlflow, until

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv" / "airflow" / "bin" / "python"
REVIEWER = "privacy-reviewer"
DAG = "tiny"
AIRFLOW = ("api-server", "scheduler", "dag-processor", "triggerer", "worker-cpu", "worker-gpu")
SERVICES = ("postgres", "redis", "mlflow", "witness", *AIRFLOW)
PORTS = ("POSTGRES_PORT", "REDIS_PORT", "AIRFLOW_PORT", "MLFLOW_PORT", "HEALTH_PORT", "WITNESS_PORT")


@dataclass(frozen=True)
class Stack:
    """A stack that is up. ``environment`` is that of its commands."""

    home: Path
    environment: dict[str, str]

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(PYTHON), "docker/stack", *words]
        return subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=900)

    def done(self, *words: str) -> str:
        done = self.command(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tacit(self, *words: str) -> dict[str, Any]:
        return json.loads(self.done("tacit", *words, "--json"))

    @property
    def airflow(self) -> Server:
        return Server(f"http://127.0.0.1:{self.environment['AIRFLOW_PORT']}", self.home / "passwords")

    def control(self, action: str, service: str) -> str:
        """What supervisor answers: ``pid``, ``stop``, ``start``, ``restart``."""
        name = f"airflow:{service}" if service in AIRFLOW else service
        command = [str(PYTHON.parent / "supervisorctl"), "-c", str(self.home / "supervisord.conf"), action, name]
        return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout

    def pid(self, service: str) -> int:
        """Process of a service; 0 while it has none."""
        return int(self.control("pid", service))

    def passwords(self) -> list[Path]:
        return [path for path in (self.home / "passwords").iterdir() if not path.name.startswith(".")]

    def mlflow(
        self, path: str, method: str = "GET", body: dict[str, Any] | None = None, login: bool = True, **query: str
    ) -> dict[str, Any]:
        """Answer of MLflow to a person."""
        reader = self.home / "passwords" / "mlflow-reader" if login else None
        return ask_mlflow(self.environment["MLFLOW_PORT"], reader, path, method, body, **query)

    def trigger(self, dag: str = DAG) -> str:
        """Begin a launch through the API; returns the run's id."""
        until(lambda: self.airflow.api("GET", f"/dags/{dag}"))
        self.airflow.api("PATCH", f"/dags/{dag}", {"is_paused": False})
        body = {"conf": {}, "logical_date": None}
        return self.airflow.api("POST", f"/dags/{dag}/dagRuns", body)["dag_run_id"]

    def state(self, run: str, task: str, dag: str = DAG) -> str | None:
        return self.airflow.states(dag, run).get(task)

    def ended(self, run: str, dag: str = DAG) -> str:
        """State of a run that ended; empty before."""
        state = self.airflow.api("GET", f"/dags/{dag}/dagRuns/{run}")["state"]
        return state if state in ("success", "failed") else ""

    def log(self, run: str, task: str, dag: str = DAG) -> str:
        """The last events that a task's newest try logged, without what Airflow adds to each."""
        folder = self.home / "airflow" / "logs" / f"dag_id={dag}" / f"run_id={run}" / f"task_id={task}"
        path = max(folder.glob("attempt=*.log"), key=lambda path: path.stat().st_mtime, default=None)
        if path is None:
            return f"no log in {folder}"
        lines = path.read_text(encoding="utf-8").splitlines()
        return "\n".join(f"{task}: {json.loads(line)['event']}" for line in lines)[-6000:]

    def clear(self, run: str, *tasks: str, dag: str = DAG) -> None:
        """Clear some tasks of a run through the API; without names all of it."""
        if tasks:
            named = {"dag_run_id": run, "task_ids": [*tasks], "only_failed": False}
            self.airflow.api("POST", f"/dags/{dag}/clearTaskInstances", {"dry_run": False, **named})
        else:
            self.airflow.api("POST", f"/dags/{dag}/dagRuns/{run}/clear", {"dry_run": False})

    def secrets(self) -> dict[str, str]:
        lines = (self.home / "secrets.env").read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def secret(self, name: str) -> str:
        return self.secrets()[name]

    def login(self, user: str, password: str) -> dict[str, str]:
        """Variables by which PostgreSQL's commands log in."""
        place = {"PGHOST": "127.0.0.1", "PGPORT": self.environment["POSTGRES_PORT"]}
        return {"PATH": self.environment["PATH"], "PGUSER": user, "PGPASSWORD": password, **place}

    def opens_database(self, user: str, password: str) -> bool:
        command = ["psql", "--no-psqlrc", "--command=select 1", "--dbname=postgres"]
        return subprocess.run(command, env=self.login(user, password), capture_output=True, check=False).returncode == 0

    def answer(
        self, run: str, word: str = "Approve", dag: str = DAG, task: str = "approve", by: str = REVIEWER
    ) -> dict[str, Any]:
        """A reviewer's answer, once the launch asks, with every box ticked and a comment."""
        reviewer = replace(self.airflow, user=by)
        question = f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}/-1/hitlDetails"
        given = dict.fromkeys(reviewer.api("GET", question)["params"], True) | {"comment": "read"}
        return reviewer.api("PATCH", question, {"chosen_options": [word], "params_input": given})


@contextmanager
def stack(
    tacit: Path,
    spare: Path | None = None,
    *,
    watched: bool = False,
    variables: Mapping[str, str] | None = None,
    **changes: object,
) -> Iterator[Stack]:
    """A stack with the tiny launch's file and its population's budget; nothing of it is left afterwards.

    Args:
      tacit: what its workers run as `tacit`.
      spare: where services put temporary files, if not where the system does.
      watched: whether each command and its variables are written into a file of the folder ``variables``.
      variables: further variables of its shell, such as recipients of notices.
      changes: fields of the launch file.
    """
    folder = Path(tempfile.mkdtemp(prefix="tacit-stack-"))
    folder.chmod(0o711)  # PostgreSQL's user passes through
    if watched:
        (folder / "variables").mkdir()
        script = folder / "tacit"
        named = "for word; do case $word in -*) ;; *) break ;; esac; done"  # options come before the command
        write = f"{named}; {{ printf '%s\\0' \"$word\"; env -0; }} >{folder}/variables/$$"
        script.write_text(f'#!/bin/sh\n{write}\nexec {tacit} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        tacit = script
    launches = folder / "launches"
    launches.mkdir()
    (folder / "text").mkdir()
    write_launch(folder / "text", **{"reviewers": [REVIEWER]} | changes).rename(launches / "tiny.yaml")
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
    environment |= {name: str(free_port()) for name in PORTS} | {"STACK_HOME": str(folder / "stack")}
    environment |= {"TACIT_BIN": str(tacit), "TACIT_LAUNCHES": str(launches)}
    environment |= {"TMPDIR": str(spare)} if spare else {}
    environment |= variables or {}
    made = Stack(folder / "stack", environment)
    try:
        made.done("up")
        keyed(made.home / "runs", launches / "tiny.yaml")
        made.done(
            "tacit",
            "ledger",
            "register",
            "tiny-clients",
            "--max-rho",
            "9",
            "--max-words-epsilon",
            "900",
            "--delta",
            "1e-4",
            "--reviewer",
            REVIEWER,
            "--airflow",
            f"http://127.0.0.1:{environment['AIRFLOW_PORT']}",
        )
        yield made
    finally:
        made.command("down")
        shutil.rmtree(folder, ignore_errors=True)
