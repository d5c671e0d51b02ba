"""`make up`: a scheduled launch through a real scheduler, an asset event, and a reviewer's answer."""

import base64
import contextlib
import functools
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, StandIn

pytestmark = pytest.mark.slow

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Server:
    """Airflow's public API as one user sees it."""

    address: str
    passwords: Path
    tracking: str = ""
    user: str = "admin"

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, token: str | None = None) -> Any:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data=data, headers=headers, method=method)
        with _OPENER.open(request, timeout=60) as answer:
            return json.load(answer)

    def api(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self.call(method, f"/api/v2{path}", body, token_of(self))

    def states(self, run: str) -> dict[str, str]:
        answer = self.api("GET", f"/dags/scheduled/dagRuns/{run}/taskInstances")
        return {instance["task_id"]: instance["state"] for instance in answer["task_instances"]}


@functools.cache
def token_of(server: Server) -> str:
    password = (server.passwords / server.user).read_text(encoding="utf-8").strip()
    return server.call("POST", "/auth/token", {"username": server.user, "password": password})["access_token"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(condition, seconds: float = 300) -> Any:
    """The first true answer of ``condition``; an HTTP error or no answer in time counts as not yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            if answer := condition():
                return answer
        except urllib.error.HTTPError as error:
            if error.code not in {404, 409}:
                raise
        except TimeoutError:
            pass
        assert time.monotonic() < end, "waited too long"
        time.sleep(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    home = Path(tempfile.mkdtemp(prefix="tacit-up-"))
    ports = {"AIRFLOW_PORT": str(free_port()), "MLFLOW_PORT": str(free_port())}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW__", "MAKE", "MFLAGS"))}
    env = {**kept, **ports, "AIRFLOW_HOME": str(home), "TACIT_RUNS_DIR": str(home / "runs")}
    # A test never rebuilds the environments it runs in: in a fresh checkout the lock files look newer than these.
    command = ["make", "--assume-old=setup", "--assume-old=.venv/airflow/.installed", "up"]
    made = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    try:
        assert made.returncode == 0, made.stdout + made.stderr
        address = f"http://127.0.0.1:{ports['AIRFLOW_PORT']}"
        for line in (address, f"http://127.0.0.1:{ports['MLFLOW_PORT']}", "make down", "passwords"):
            assert line in made.stdout
        yield Server(address, home / "passwords", f"http://127.0.0.1:{ports['MLFLOW_PORT']}")
    finally:
        down = subprocess.run(["make", "down"], cwd=ROOT, env=env, capture_output=True, text=True)
        assert down.stdout.count("stopped") == 4 or made.returncode != 0, down.stdout + down.stderr
        shutil.rmtree(home, ignore_errors=True)


def test_services_listen_on_loopback_only(server: Server):
    # The kernel's table: a local address of zeros means every interface, state 0A is listening.
    groups = {int(path.read_text().split()[0]) for path in server.passwords.parent.glob("up/*.pid")}
    assert len(groups) == 4
    sockets = set().union(*(sockets_of(pid) for pid in Path("/proc").glob("[0-9]*") if group_of(pid) in groups))
    listening = 0
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                listening += 1
                assert fields[1].startswith(("0100007F:", "0000000000000000FFFF00000100007F:", "0" * 24 + "01000000:"))
    assert listening == 2  # Airflow's API and MLflow


def test_passwords_stand_apart_and_in_no_log(server: Server):
    secret = {
        path.name: path.read_text().strip() for path in server.passwords.iterdir() if not path.name.startswith(".")
    }
    assert secret.keys() == {"admin", "privacy-reviewer", "mlflow"}
    assert len(set(secret.values())) == 3
    assert all(path.stat().st_mode & 0o77 == 0 for path in (server.passwords, *server.passwords.iterdir()))
    logs = "".join(path.read_text(errors="replace") for path in server.passwords.parent.rglob("*.log"))
    assert logs
    assert not any(value in logs for value in secret.values())


def test_mlflow_asks_for_a_login(server: Server):
    search = urllib.request.Request(
        f"{server.tracking}/api/2.0/mlflow/registered-models/search", headers={"Accept": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError, match="401"):
        _OPENER.open(search, timeout=60)
    password = (server.passwords / "mlflow").read_text(encoding="utf-8").strip()
    known = base64.b64encode(f"mlflow:{password}".encode()).decode()
    search.add_header("Authorization", f"Basic {known}")
    with _OPENER.open(search, timeout=60) as answer:
        assert answer.status == 200


def group_of(process: Path) -> int | None:
    try:
        return os.getpgid(int(process.name))
    except ProcessLookupError:
        return None


def sockets_of(process: Path) -> set[str]:
    found = set()
    for descriptor in (process / "fd").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            found.add(str(descriptor.readlink()))
    return found


def test_a_public_model_starts_a_dated_launch_that_a_reviewer_rejects(server: Server, stand_in: StandIn):
    until(lambda: server.api("GET", "/dags/public_model-scheduled"))
    until(lambda: server.api("GET", "/dags/scheduled"))
    for dag_id in ("scheduled", "public_model-scheduled"):
        server.api("PATCH", f"/dags/{dag_id}", {"is_paused": False})  # the schedule's latest date is due at once

    run = until(lambda: server.api("GET", "/dags/scheduled/dagRuns")["dag_runs"])[0]["dag_run_id"]
    until(lambda: server.states(run).get("approve") == "awaiting_input")
    assert stand_in.stages().count("pretrain") == 2  # once for the public model, once (a no-op) for the launch
    launches = {call[5] for call in stand_in.calls() if call[0] == "stage"}
    assert len(launches) == 1
    assert re.fullmatch(r"demo-0123abcd-\d{6}01", launches.pop())

    question = f"/dags/scheduled/dagRuns/{run}/taskInstances/approve/-1/hitlDetails"
    reject = {"chosen_options": ["Reject"], "params_input": {}}
    with pytest.raises(urllib.error.HTTPError, match="403"):
        server.api("PATCH", question, reject)
    time.sleep(5)  # an answer that comes at once may meet the task before it is parked
    reviewer = replace(server, user="privacy-reviewer")
    assert "rho 0.5, epsilon 6.5" in reviewer.api("GET", question)["body"]
    reviewer.api("PATCH", question, reject)
    until(lambda: server.states(run).get("publish") == "skipped")
    assert "publish" not in stand_in.stages()
    answer = server.api("GET", f"/dags/scheduled/dagRuns/{run}/taskInstances/approve/xcomEntries/answer")
    assert "Reject" in str(answer["value"])
    assert "privacy-reviewer" in str(answer["value"])
