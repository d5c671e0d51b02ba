"""An answer in Airflow is what its API says of it, whatever the command was told."""

import ast
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest

from pipeline.ground import settings
from pipeline.ground.errors import ReleaseRefused
from pipeline.ground.settings import AirflowReader, Settings
from pipeline.ledger.budget import Rules
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication import airflow_answer
from pipeline.publication.answers import Question
from tests.helpers.launches.checkout import ROOT
from tests.helpers.launches.command import answered
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.spends import budget

from .test_approvals import SEEN, Case

USER, PASSWORD, TOKEN = "tacit-reader", "letters-and-digits", "a-token"
PLACE = "/api/v2/dags/people/dagRuns/manual%2B1/taskInstances/approve/-1/hitlDetails/tries/2"
LAUNCH = "people-0123abcd"
HERE = Question(dag_id="people", run_id="manual+1", task_id="approve", try_number=2)
WARNINGS = ("The population is synthetic.", "Words have a loss of 80.")
ME = f"os:{settings.account()}"


def asked_body(launch_id: str, report: str) -> str:
    """The question of `dags/approval.py`, which this environment cannot import, as Airflow renders it."""
    tree = ast.parse((ROOT / "dags" / "approval.py").read_text(encoding="utf-8"))
    (body,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_BODY"
    )
    results = {
        "check": {"launch_id": launch_id},
        "decide": {"reasons": ["all 28 gates passed"]},
        "report": {"disclosure_sha256": report, "summary": ["one line"], "concerns": list(WARNINGS)},
    }
    ti = SimpleNamespace(xcom_pull=lambda task_ids: results[task_ids])
    return jinja2.Template(body).render(ti=ti, run_id="manual+1", dag=SimpleNamespace(dag_id="people"))


def question(launch_id: str, report: str, warnings: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    """What Airflow says of an approved question, as `dags/approval.py` asks it."""
    boxes = {f"concern_{number}": {"value": False, "description": each} for number, each in enumerate(warnings, 1)}
    return {
        "subject": f"Publish NWP for en-US: {launch_id}?",
        "body": asked_body(launch_id, report),
        "params": boxes,
        "options": ["Approve", "Reject"],
        "responded_by_user": {"id": "ana", "name": "Ana"},
        "responded_at": "2026-11-24T12:00:00Z",
        "chosen_options": ["Approve"],
        "params_input": dict.fromkeys(boxes, True),
        "task_instance": {"task_id": "approve"},
    } | changes


@contextmanager
def served(detail: dict[str, Any], password: str = PASSWORD, host: str = "127.0.0.1") -> Iterator[AirflowReader]:
    """The server, as settings name it."""

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            login = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = self.path == "/auth/token" and login == {"username": USER, "password": PASSWORD}
            self.say(201 if known else 401, {"access_token": TOKEN} if known else {"detail": "no"})

        def do_GET(self) -> None:
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                self.say(401, {})
            elif self.path != PLACE:
                self.say(404, {"detail": "not found"})
            else:
                self.say(200, detail)

        def say(self, code: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer((host, 0), Api)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield AirflowReader(f"http://{host}:{server.server_address[1]}", USER, password)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def read(detail: Mapping[str, Any], asked: Question = HERE, password: str = PASSWORD) -> airflow_answer.Review:
    with served(dict(detail), password) as airflow:
        return airflow_answer.read(asked, LAUNCH, WARNINGS, airflow, ME)


def test_who_answered_and_what_is_what_airflow_says():
    review = read(question(LAUNCH, SEEN, WARNINGS))
    assert (review.account, review.answer, review.report, review.question) == ("airflow:ana", "approve", SEEN, HERE)
    rejected = question(LAUNCH, SEEN, WARNINGS, chosen_options=["Reject"], params_input={})
    assert read(rejected).answer == "reject", "a no needs no tick"
    assert review.reason == "answered in Airflow"


@pytest.mark.parametrize(("comment", "reason"), [(" Read it,\n twice ", "Read it, twice"), ("x" * 600, "x" * 500)])
def test_a_comment_is_the_reason_and_no_box(comment: str, reason: str):
    detail = question(LAUNCH, SEEN, WARNINGS)
    detail["params"]["comment"] = {"value": "", "description": "kept in the ledger"}
    detail["params_input"] |= {"comment": comment}
    assert read(detail).reason == reason
    detail["params_input"] |= {"concern_2": False, "comment": True}
    with pytest.raises(ReleaseRefused, match="without accepting 1 of 2 concerns"):
        read(detail)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"responded_by_user": None}, "has no approval or rejection in Airflow"),
        ({"responded_at": None, "chosen_options": None}, "has no approval or rejection in Airflow"),
        ({"chosen_options": ["Approve", "Reject"]}, "has no approval or rejection in Airflow"),
        ({"body": "nothing"}, "another launch or report"),
        ({"params": {}}, "another launch or report"),
        ({"params_input": {"concern_1": True, "concern_2": "yes"}}, "without accepting 1 of 2 concerns"),
        ({"params_input": {}}, "without accepting 2 of 2 concerns"),
        ({"responded_by_user": {"id": " ana "}}, "not a valid reviewer's name"),
        ({"responded_by_user": {"id": "\u0430na"}}, "not a valid reviewer's name"),
    ],
)
def test_what_is_no_answer_about_this_report_is_refused(changes: dict[str, Any], why: str):
    with pytest.raises(ReleaseRefused, match=why):
        read(question(LAUNCH, SEEN, WARNINGS, **changes))


def test_another_launch_another_place_and_no_login_are_refused():
    with pytest.raises(ReleaseRefused, match="another launch or report"):
        read(question("people-4567abcd", SEEN, WARNINGS))
    for changes in ({"run_id": "manual"}, {"try_number": 1}, {"task_id": "approve_2"}):
        with pytest.raises(ReleaseRefused, match="has no question in Airflow"):
            read(question(LAUNCH, SEEN, WARNINGS), HERE.model_copy(update=changes))
    with pytest.raises(ReleaseRefused, match=f"does not let '{USER}' read"):
        read(question(LAUNCH, SEEN, WARNINGS), password="another")


def test_people_s_answers_are_read_from_the_registered_address_alone(settings: Settings):
    ledger, evil = PrivacyLedger.of(settings), AirflowReader("http://127.0.0.1:1", USER, PASSWORD)
    asked = airflow_answer.registered_reader
    people = ledger.register("customers", budget(max_rho=1.0), "owner")
    with pytest.raises(ReleaseRefused, match=r"without an Airflow .* owner name it"):
        asked(evil, people)
    people = ledger.change_budget("customers", people.budget, "owner", "web", Rules(airflow="https://airflow.example/"))
    assert asked(evil, people) == AirflowReader("https://airflow.example", USER, PASSWORD)
    simulation = ledger.register("chitchat:made-up", budget(max_rho=1.0), "owner")
    assert asked(evil, simulation) == evil
    for population in (people, simulation):
        with pytest.raises(ReleaseRefused, match="TACIT_AIRFLOW_URL"):
            asked(None, population)


@pytest.mark.parametrize(
    "address",
    [
        "http://airflow.example",
        "http://127.0.0.1.evil.example",
        "http://127.0.0.1@evil",
        "http://localhost.evil/",
        "https://me:secret@host",
        "http://127.0.0.1:8080/?x",
        "https://a b",
        "ftp://127.0.0.1",
    ],
)
def test_an_address_without_tls_is_not_registered(address: str):
    with pytest.raises(ValueError, match="airflow"):
        Rules(airflow=address)


def test_a_server_that_is_not_there_is_asked_again_later():
    with served({}) as airflow:
        pass
    with pytest.raises(OSError, match="refused"):
        airflow_answer.read(HERE, LAUNCH, WARNINGS, airflow, ME)
    with pytest.raises(OSError, match="does not answer as Airflow"):
        read({"body": 3})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.5"])
def test_a_server_of_the_same_account_is_not_told_apart(host: str):
    with served(question(LAUNCH, SEEN, WARNINGS), host=host) as airflow:
        assert airflow_answer.read(HERE, LAUNCH, WARNINGS, airflow, ME).indistinct_from == ME


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account")
@pytest.mark.slow
def test_a_server_of_another_account_is_told_apart_unless_root_asks(tmp_path: Path):
    """The command runs as an account without rights and the server as this one; root could be any other."""
    # It cannot read root's folders, so it has imported what it needs before.
    script = "import encodings.ascii, encodings.idna, os; "
    script += "from pipeline.publication.airflow_answer import runs_apart as apart; "
    script += "os.setuid(65534);"
    with served({}) as airflow:
        assert not airflow_answer.runs_apart(airflow.url)
        asked = (
            f"{script} print(apart({airflow.url!r}), apart('http://127.0.0.1:1'), apart('http://198.51.100.1:8080'))"
        )
        done = subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, cwd=Path.cwd(), check=False
        )
    assert done.stdout.split() == ["True", "False", "True"], done.stderr


def told(airflow: AirflowReader) -> dict[str, str]:
    values = {"URL": airflow.url, "USER": airflow.user, "PASSWORD": airflow.password}
    return {f"TACIT_AIRFLOW_{name}": value for name, value in values.items()}


AT = ("--answered-in-airflow", HERE.dag_id, HERE.run_id, HERE.task_id, str(HERE.try_number))


@pytest.mark.slow
def test_one_shell_is_one_person(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """The account of this shell, and then whatever it can make of Airflow's server, which runs under it too."""
    account = ME.partition(":")[2]
    case = Case(settings, launch_config(reviewers=[account, "ana"], policy={"approvals": 2}))
    launch = case.run.launch_id
    first = answered(settings.home, "review", launch, "--answer", "approve")
    assert (first["state"], first["approvers"]) == ("waiting", [ME])
    for claim in (("--by", "ana"), ("--through", "airflow"), ("--by", f" {account} ")):
        answered_by = ("review", launch, "--answer", "approve", *claim)
        with pytest.raises(AssertionError, match="exit code 2"):
            answered(settings.home, *answered_by)
    monkeypatch.setenv("USER", "ana")
    monkeypatch.setenv("LOGNAME", "ana")
    assert answered(settings.home, "review", launch, "--answer", "approve")["approvers"] == [ME]
    with served(question(launch, SEEN)) as airflow:
        for name, value in told(airflow).items():
            monkeypatch.setenv(name, value)
        refused = answered(settings.home, "review", launch, *AT, code=65)
    assert "may be the same person as" in refused["error"]
    assert case.now.state == "waiting"


@pytest.mark.slow
def test_an_approval_by_command_accepts_each_concern_too(settings: Settings):
    account = ME.partition(":")[2]
    case = Case(settings, launch_config(reviewers=[account]), concerns=WARNINGS)
    launch = case.run.launch_id
    asked = answered(settings.home, "review", launch)
    assert (asked["state"], tuple(asked["concerns"])) == ("waiting", WARNINGS)
    assert "epsilon 84.89" in asked["summary"][0]
    approve = ("review", launch, "--answer", "approve")
    for accepted, why in (
        ((), "2 of 2 main concerns"),
        (("1",), "Words have a loss of 80"),
        (("1", "2", "3"), "3 is no"),
    ):
        options = [part for number in accepted for part in ("--accept", number)]
        with pytest.raises(AssertionError, match=why):
            answered(settings.home, *approve, *options)
    assert case.now.state == "waiting"
    assert answered(settings.home, *approve, "--accept", "2", "--accept", "1")["state"] == "approved"


@pytest.mark.slow
def test_an_answer_in_airflow_is_recorded_by_run_and_task(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    case = Case(settings, launch_config(reviewers=["ana"]))
    with served(question(case.run.launch_id, SEEN)) as airflow:
        for name, value in told(airflow).items():
            monkeypatch.setenv(name, value)
        said = answered(settings.home, "review", case.run.launch_id, *AT)
        again = answered(settings.home, "review", case.run.launch_id, *AT)
    by = f"airflow:ana (signed by the installation, indistinguishable from {ME})"
    assert said["approvers"] == again["approvers"] == [by]
    assert said["detail"].startswith(f"by {by} at ")
    badge = (settings.runs_dir / case.run.launch_id / "public" / "launch" / "state.svg").read_text(encoding="utf-8")
    assert "indistinguishable" in badge
    (entry,) = [entry for entry in case.ledger.entries() if entry.kind == "review"]
    assert HERE.model_dump_json() in entry.binding.replace(": ", ":").replace(", ", ",")
    status = answered(settings.home, "status", case.run.launch_id)
    assert by in str(status)
