"""`make up`: a scheduled launch through a real scheduler, an asset event, and a reviewer's answer."""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.helpers.processes.ports import free_port
from tests.helpers.processes.proc import LOOPBACK, listening, tree
from tests.helpers.processes.server import OPENER, Server, token_of, until

from .conftest import ROOT, StandIn, leave_the_dates

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    leave_the_dates(timedelta(minutes=5), "scheduled")
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
        yield Server(address, home / "up" / "passwords", f"http://127.0.0.1:{ports['MLFLOW_PORT']}")
    finally:
        down = subprocess.run(["make", "down"], cwd=ROOT, env=env, capture_output=True, text=True)
        assert down.stdout.count("stopped") == 4 or made.returncode != 0, down.stdout + down.stderr
        shutil.rmtree(home, ignore_errors=True)


def test_services_listen_on_loopback_only(server: Server):
    services = [int(path.read_text().split()[0]) for path in server.passwords.parent.glob("started/*")]
    assert len(services) == 4
    addresses = listening(set().union(*(tree(number) for number in services)))
    assert len(addresses) == 2  # Airflow's API and MLflow
    assert all(address.startswith(LOOPBACK) for address in addresses)


def test_passwords_stand_apart_and_in_no_log(server: Server):
    secret = {
        path.name: path.read_text().strip() for path in server.passwords.iterdir() if not path.name.startswith(".")
    }
    assert secret.keys() == {"admin", "privacy-reviewer", "tacit-reader", "mlflow-reader"}
    assert len(set(secret.values())) == 4
    assert all(path.stat().st_mode & 0o77 == 0 for path in (server.passwords, *server.passwords.iterdir()))
    logs = "".join(path.read_text(errors="replace") for path in server.passwords.parent.parent.rglob("*.log"))
    assert logs
    assert not any(value in logs for value in secret.values())


def test_mlflow_asks_for_a_login_and_people_only_read(server: Server):
    search = urllib.request.Request(
        f"{server.tracking}/api/2.0/mlflow/registered-models/search", headers={"Accept": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError, match="401"):
        OPENER.open(search, timeout=60)
    password = (server.passwords / "mlflow-reader").read_text(encoding="utf-8").strip()
    known = base64.b64encode(f"mlflow-reader:{password}".encode()).decode()
    search.add_header("Authorization", f"Basic {known}")

    def answered() -> int:
        """The account is made once the server answers."""
        try:
            with OPENER.open(search, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return 0 if error.code == 401 else error.code

    assert until(answered, 60) == 200
    body = json.dumps({"experiment_id": "0", "new_name": "mine"}).encode()
    change = urllib.request.Request(f"{server.tracking}/api/2.0/mlflow/experiments/update", body, method="POST")
    change.add_header("Authorization", f"Basic {known}")
    change.add_header("Content-Type", "application/json")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        OPENER.open(change, timeout=60)


def test_a_public_model_starts_a_dated_launch_that_a_reviewer_rejects(server: Server, stand_in: StandIn):
    until(lambda: server.api("GET", "/dags/public_model-scheduled"))
    until(lambda: server.api("GET", "/dags/scheduled"))
    for dag_id in ("scheduled", "public_model-scheduled"):  # the schedule's latest date is due at once
        server.api("PATCH", f"/dags/{dag_id}", {"is_paused": False})
        # Airflow answers before it commits; on SQLite a second change that comes before then ends with status 500.
        until(lambda dag_id=dag_id: not server.api("GET", f"/dags/{dag_id}")["is_paused"])

    run = until(lambda: server.api("GET", "/dags/scheduled/dagRuns")["dag_runs"])[0]["dag_run_id"]
    until(lambda: server.states("scheduled", run).get("approve") == "awaiting_input")
    assert stand_in.stages().count("pretrain") == 2  # once for the public model, once (a no-op) for the launch
    launches = {call[call.index("--id") + 1] for call in stand_in.calls() if call[0] == "stage"}
    assert len(launches) == 1
    assert re.fullmatch(r"demo-0123abcd-\d{6}01", launches.pop())

    assert server.api("GET", f"/dags/scheduled/dagRuns/{run}")["note"].startswith("it-IT NWP: scheduled, 20")
    address = f"{server.address}/tacit/scheduled/runs/{quote(run, safe='')}/"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        OPENER.open(address, timeout=60)
    tab = urllib.request.Request(address, headers={"Authorization": f"Bearer {token_of(server)}"})
    with OPENER.open(tab, timeout=60) as page:
        assert "demo-0123abcd" in page.read().decode()

    question = f"/dags/scheduled/dagRuns/{run}/taskInstances/approve/-1/hitlDetails"
    reject = {"chosen_options": ["Reject"], "params_input": {"comment": "too early"}}
    with pytest.raises(urllib.error.HTTPError, match="403"):
        server.api("PATCH", question, reject)
    time.sleep(5)  # an answer that comes at once may meet the task before it is parked
    reviewer = replace(server, user="privacy-reviewer")
    asked = reviewer.api("GET", question)["body"]
    assert "guarantee of one device: epsilon 6.51 at delta 1e-10" in " ".join(asked.split())
    assert "against the current version 3: +0.42 pp" in asked
    assert "answer 1 of 2" in asked
    assert "some devices try it for 14 days" in asked
    reviewer.api("PATCH", question, reject)
    until(lambda: server.states("scheduled", run).get("publish") == "skipped")
    assert "publish" not in stand_in.stages()
    answer = server.api("GET", f"/dags/scheduled/dagRuns/{run}/taskInstances/approve/xcomEntries/answer")
    assert "Reject" in str(answer["value"])
    assert "privacy-reviewer" in str(answer["value"])
    assert reviewer.api("GET", question)["params_input"]["comment"] == "too early"
