"""`make stack`: every service as a real process, and a launch through them from the API to an approved champion."""

import json
import os
import signal
import stat
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.launch.config import launch_id, load_launch
from tests.helpers.processes.forked import Forked
from tests.helpers.processes.proc import LOOPBACK, arguments, listening, naming, tree
from tests.helpers.processes.receivers import Receivers, receivers
from tests.helpers.processes.reviewer import COMMENT, approve
from tests.helpers.processes.server import OPENER, until
from tests.helpers.processes.stack import DAG, PYTHON, REVIEWER, ROOT, SERVICES, Stack, stack
from tests.helpers.reports.browser import Page, tab

from .test_worker_environment import allowed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.services,
    pytest.mark.skipif(not PYTHON.exists(), reason="the Airflow environment is not built; run `make setup`"),
]


@pytest.fixture(scope="module")
def heard() -> Iterator[Receivers]:
    with receivers() as made:
        yield made


@pytest.fixture(scope="module")
def up(forked: Forked, heard: Receivers, stack_packages: None) -> Iterator[Stack]:
    variables = heard.environment | {"STACK_HEARTBEAT": f"{heard.web}/heartbeat"}
    with stack(forked.tacit, watched=True, variables=variables) as made:
        yield made
        assert naming(str(made.home)), "the search must find what runs"
        said = made.done("down")
        assert {line.removeprefix("stopped ") for line in said.splitlines()} == set(SERVICES)
        assert not naming(str(made.home))
        assert made.done("down") == "no service of this stack runs\n"


def test_all_services_are_well_on_loopback_and_their_secrets_in_no_log(up: Stack) -> None:
    before = {name: up.pid(name) for name in SERVICES}
    # Right after the start a service may need more than the ten seconds that ``status`` waits for its answer.
    until(lambda: up.command("status").stdout.count(" well\n") == len(SERVICES))
    up.done("up")  # nothing to do
    assert {name: up.pid(name) for name in SERVICES} == before
    every = set().union(*(tree(number) for number in before.values()))
    addresses = listening(every)
    assert len(addresses) >= 5
    assert all(address.startswith(LOOPBACK) for address in addresses), addresses
    lines = (up.home / "secrets.env").read_text(encoding="utf-8").splitlines()
    secret = [line.partition("=")[2] for line in lines]
    assert len(secret) == 16
    for place in (up.home / "secrets.env", *(up.home / "passwords").iterdir()):
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
    logs = [path for folder in ("logs", "airflow/logs") for path in (up.home / folder).rglob("*") if path.is_file()]
    said = "".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)
    said += "\n".join(arguments(number) for number in every)
    assert "127.0.0.1" in said
    assert not [value for value in secret if value in said]


@pytest.fixture(scope="module")
def launched(up: Stack, chromium: str) -> str:
    """A run that ended, approved by its reviewer in a browser."""
    run = up.trigger()
    with tab(chromium) as page:
        end(up, run, page)
    return run


def end(up: Stack, run: str, page: Page | None = None) -> None:
    """See a run to its end; answer where it asks, in a browser if there is one."""
    until(lambda: up.state(run, "approve") == "awaiting_input" or up.ended(run))
    if not up.ended(run):
        time.sleep(4)  # an answer that comes at once may meet the task before it is parked
        if page is None:
            up.answer(run)
        else:
            question = approve(page, replace(up.airflow, user=REVIEWER), DAG, run)
            assert all(words in question for words in ("guarantee of one device: epsilon", "I accept"))
    until(lambda: up.ended(run))
    states = up.airflow.states(DAG, run)
    logs = "\n".join(up.log(run, task) for task in states if states[task] == "failed")
    assert set(states.values()) == {"success"}, f"{states}\n{logs}"


def test_a_launch_goes_from_the_api_to_an_approved_champion(up: Stack, launched: str) -> None:
    launch = launch_id(load_launch(Path(up.environment["TACIT_LAUNCHES"], "tiny.yaml")))
    entries = up.tacit("ledger", "show")["entries"]
    spent = [entry["stage"] for entry in entries if entry["kind"] == "commit"]
    assert sorted(spent) == ["discover", "fine_tune"]
    (given,) = [json.loads(entry["binding"]) for entry in entries if entry["kind"] == "review"]
    assert (given["account"], given["answer"]) == (f"airflow:{REVIEWER}", "approve")
    assert given["reason"] == COMMENT
    assert given["question"] == {"dag_id": DAG, "run_id": launched, "task_id": "approve", "try_number": 1}
    assert given["indistinct_from"].startswith("os:"), "all of this stack runs under one account"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        up.mlflow("registered-models/search", login=False)
    champion = up.mlflow("registered-models/alias", name="keyboard-en-US-NWP", alias="champion")["model_version"]
    assert {"key": "tacit.launch", "value": launch} in champion["tags"]
    tracked = up.mlflow("runs/get", run_id=champion["run_id"])["run"]["info"]
    assert tracked["artifact_uri"].startswith("mlflow-artifacts:/")
    # The server keeps what stages log; nothing of theirs is written beside it.
    assert any((up.home / "mlflow" / "artifacts").rglob("*.onnx"))
    assert not (up.home / "runs" / "mlflow.db").exists()
    assert not (up.home / "runs" / "ledger.db").exists()


def test_a_connection_of_the_shell_s_environment_reaches_tasks(heard: Receivers, launched: str) -> None:
    assert "approval" in {json.loads(body)["event"] for _, _, body in heard.posts}
    assert [text for _, text in heard.mail if "Subject: tacit: tiny" in text]


def test_people_only_read_mlflow(up: Stack, launched: str) -> None:
    password = (up.home / "passwords" / "mlflow-reader").read_text(encoding="utf-8").strip()
    assert password == up.secret("MLFLOW_READER_PASSWORD")
    assert up.secret("MLFLOW_PASSWORD") not in {path.read_text(encoding="utf-8").strip() for path in up.passwords()}
    name = "keyboard-en-US-NWP"
    assert up.mlflow("registered-models/get", name=name)["registered_model"]["name"] == name
    for method, path, body in (
        ("DELETE", "registered-models/delete", {"name": name}),
        ("POST", "registered-models/alias", {"name": name, "alias": "champion", "version": "1"}),
        ("PATCH", "users/update-admin", {"username": "mlflow-reader", "is_admin": True}),
    ):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            up.mlflow(path, method, body)


def test_stages_are_told_no_secret_of_airflow_s(up: Stack, launched: str) -> None:
    lines = (up.home / "secrets.env").read_text(encoding="utf-8").splitlines()
    secret = dict(line.split("=", 1) for line in lines)
    needed = {"LEDGER_DB_PASSWORD", "MLFLOW_PASSWORD"}
    seen = list[str]()
    for path in up.home.parent.glob("variables/*"):
        command, *variables = path.read_text(encoding="utf-8", errors="replace").rstrip("\0").split("\0")
        # The shell's of the script that wrote them down.
        names = {each.partition("=")[0] for each in variables} - {"_", "PWD", "OLDPWD", "SHLVL"}
        reached = {name for name, value in secret.items() if value in "\0".join(variables)}
        if command in ("stage", "check"):
            assert not names - allowed().of_stage(dict.fromkeys(names, "")).keys()
            assert reached == needed
        elif command == "review":
            assert not names - allowed().of_review(dict.fromkeys(names, "")).keys()
            assert reached == needed | {"READER_PASSWORD"}
        seen.append(command)
    assert seen.count("stage") > 9
    assert seen.count("review") == 1


def test_the_account_that_asks_who_answered_can_read_and_not_answer(up: Stack, launched: str) -> None:
    reader = replace(up.airflow, user="tacit-reader")
    question = f"/dags/{DAG}/dagRuns/{launched}/taskInstances/approve/-1/hitlDetails"
    assert reader.api("GET", question)["responded_by_user"]["id"] == REVIEWER
    with pytest.raises(urllib.error.HTTPError, match="403"):
        reader.api("PATCH", question, {"chosen_options": ["Approve"], "params_input": {}})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        reader.api("POST", f"/dags/{DAG}/dagRuns", {"conf": {}, "logical_date": None})


@pytest.mark.parametrize(
    ("tasks", "again"), [(["fine_tune"], {"fine_tune"}), ([], {"check", "approve", "publish"})], ids=["task", "run"]
)
def test_cleared_work_runs_again_to_its_end_and_spends_nothing(
    up: Stack, launched: str, tasks: list[str], again: set[str]
) -> None:
    before, tries = up.tacit("ledger", "show")["entries"], tries_of(up, launched)
    up.clear(launched, *tasks)
    end(up, launched)
    repeated = {task for task, number in tries_of(up, launched).items() if number > tries[task]}
    assert repeated >= again
    assert not tasks or repeated == again
    assert up.tacit("ledger", "show")["entries"] == before


def test_the_command_line_clears_a_task_and_what_follows(up: Stack, launched: str) -> None:
    before, tries = up.tacit("ledger", "show")["entries"], tries_of(up, launched)
    told = up.done("environment", "airflow")
    environment = dict(line.split("=", 1) for line in told.split("\0") if line)
    command = [str(PYTHON.parent / "airflow"), "tasks", "clear", DAG, "--yes", "--downstream", "-t", "decide"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    end(up, launched)
    repeated = {task for task, number in tries_of(up, launched).items() if number > tries[task]}
    assert repeated >= {"decide", "approve", "publish"}
    assert not repeated & {"check", "fine_tune", "ab_test"}
    assert up.tacit("ledger", "show")["entries"] == before


def tries_of(up: Stack, run: str) -> dict[str, int]:
    answer = up.airflow.api("GET", f"/dags/{DAG}/dagRuns/{run}/taskInstances")
    return {instance["task_id"]: instance["try_number"] for instance in answer["task_instances"]}


@pytest.mark.parametrize("name", ["scheduler", "postgres"])
def test_a_killed_service_is_told_and_all_are_well_again_without_a_hand(up: Stack, heard: Receivers, name: str) -> None:
    until(lambda: up.command("status").returncode == 0)
    until(lambda: heard.gets, 120)  # the heartbeat
    before, number = len(heard.posts), up.pid(name)
    os.kill(number, signal.SIGKILL)

    def told(event: str) -> bool:
        facts = [json.loads(body) for _, _, body in heard.posts[before:]]
        return any(each["event"] == event and name in each["services"] for each in facts)

    until(lambda: told("stopped"), 120)
    until(lambda: told("recovered"), 300)
    until(lambda: up.command("status").returncode == 0, 300)
    assert up.pid(name) != number
    assert [text for _, text in heard.mail if f"{name}" in text and "stopped" in text]


def test_services_of_a_killed_supervisor_are_taken_over(up: Stack) -> None:
    entries, number = up.tacit("ledger", "show")["entries"], up.pid("postgres")
    os.kill(int((up.home / "supervisord.pid").read_text(encoding="utf-8")), signal.SIGKILL)
    assert up.command("status").returncode == 3
    up.done("up")
    assert up.pid("postgres") != number
    assert up.tacit("ledger", "show")["entries"] == entries


def test_rotated_secrets_are_new_and_open_what_the_old_ones_no_longer_do(up: Stack) -> None:
    """The last test, as services have the old ones until they start again."""
    before = up.secrets()
    done = subprocess.run(["bash", "docker/rotate.sh"], cwd=ROOT, env=up.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = up.secrets()
    assert {name for name in before if before[name] == after[name]} == {"AIRFLOW_FERNET_KEY"}
    assert after.keys() == before.keys()
    for user in ("postgres", "airflow", "ledger", "mlflow", "mlflow_login"):
        name = "POSTGRES_PASSWORD" if user == "postgres" else f"{user.upper()}_DB_PASSWORD"
        assert (up.opens_database(user, before[name]), up.opens_database(user, after[name])) == (False, True), user
    login = b64encode(f"mlflow:{after['MLFLOW_PASSWORD']}".encode()).decode()
    address = f"http://127.0.0.1:{up.environment['MLFLOW_PORT']}/api/2.0/mlflow/users/get?username=mlflow"
    asked = urllib.request.Request(address, headers={"Authorization": f"Basic {login}"})
    assert OPENER.open(asked, timeout=60).status == 200
    assert (up.home / "passwords" / "tacit-reader").read_text(encoding="utf-8").strip() == after["READER_PASSWORD"]
    assert not (up.home / "secrets.old.env").exists()
    for path in (up.home / "secrets.env", *(up.home / "passwords").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
