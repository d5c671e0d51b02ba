"""Notices: facts on a list, by Airflow's own notifiers, and nothing of a run beside."""

import email
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.processes.receivers import Receivers, receivers

from .conftest import LAUNCHES, ROOT, wait_for

pytestmark = pytest.mark.timeout(300)

SECRET = "zwetschgenkuchen"
LAUNCH_ID = "demo-0123abcd-20260301"
# Lines of a report's summary (reports/front.py), which tests/reports/test_front.py holds.
GUARANTEE = "guarantee of one device: epsilon 12.89 (counts and training 8.00) at delta 1e-06"
RECALL = "first suggestion correct in 14.8% of cases (14.2% to 15.4%)"
CHAMPION = "against the current version 3: +0.42 pp (+0.10 pp to +0.74 pp)"


@pytest.fixture
def listeners(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receivers]:
    with receivers() as heard:
        for name, value in heard.environment.items():
            monkeypatch.setenv(name, value)
        yield heard


def launch():
    from launch_file import read_launch_file

    return read_launch_file(LAUNCHES / "scheduled.yaml")


def context(**more: Any) -> dict[str, Any]:
    """What Airflow hands to a callback, with a secret everywhere but in what is on the list."""
    gates = [
        {"id": "max_rho", "passed": False, "title": SECRET, "evidence": SECRET},
        {"id": SECRET.upper(), "passed": False, "title": SECRET, "evidence": SECRET},
        {"id": "ledger", "passed": True, "title": SECRET, "evidence": SECRET},
    ]
    results = {
        "check": {"launch_id": LAUNCH_ID, "notes": [SECRET], "errors": [SECRET]},
        "decide": {"decision": "hold", "reasons": [SECRET], "gates": gates[::2], "headline": {SECRET: SECRET}},
        "report": {"files": [SECRET], "summary": [GUARANTEE, f"{GUARANTEE} {SECRET}", RECALL, CHAMPION, SECRET]},
    }
    run = SimpleNamespace(partition_key="20260301", conf={SECRET: SECRET}, note=SECRET)
    ti = SimpleNamespace(
        dag_id="scheduled",
        run_id="scheduled__2026-03-01",
        task_id="fine_tune",
        log_url=f"http://{SECRET}",
        xcom_pull=lambda task_ids: results[task_ids],
    )
    error = RuntimeError(f"fine_tune: tacit exited with 65 ({SECRET})")
    given = {"ti": ti, "dag_run": run, "params": {"date": SECRET}, "exception": error, "reason": SECRET}
    return given | {"conf": SECRET, "var": SECRET, "results": results} | more


def body(message: str) -> str:
    parts = [part for part in email.message_from_string(message).walk() if not part.is_multipart()]
    return "\n".join(part.get_payload(decode=True).decode() for part in parts)


@pytest.mark.parametrize("event", ["failed", "held", "approval", "unanswered", "late"])
def test_an_event_reaches_log_mail_and_webhook_and_nothing_private_goes_along(dagbag, listeners, capsys, event):
    from notify import FORMS, Notice

    Notice(event, launch())(context())
    logged = capsys.readouterr().out
    ((_, mail),), ((_, path, post),) = listeners.mail, listeners.posts
    facts = json.loads(post)
    assert path == "/"
    assert facts["event"] == event
    assert set(facts) - {"text"} <= set(FORMS)
    assert all(re.fullmatch(FORMS[name], value) for name, value in facts.items() if name != "text")
    expected = {"launch_id": LAUNCH_ID, "date": "20260301", "task": "fine_tune", "exit_code": "65", "locale": "it-IT"}
    assert expected.items() <= facts.items()
    assert facts.get("gates") == ("max_rho" if event == "held" else None)
    assert facts["link"].endswith("/dags/scheduled/runs/scheduled__2026-03-01/tasks/fine_tune")
    assert LAUNCH_ID in body(mail)
    first_page = [GUARANTEE, RECALL, CHAMPION]
    assert [facts.get(name) for name in ("guarantee", "recall", "champion")] == (
        first_page if event == "approval" else [None] * 3
    )
    assert all((line in body(mail)) == (event == "approval") for line in first_page)
    assert "team@example.org, reviewer@example.org" in mail
    assert LAUNCH_ID in logged
    for sent in (mail, body(mail), post, logged):
        assert SECRET not in sent.lower()


def test_what_has_not_the_form_is_left_out(dagbag):
    from notify import FORMS, facts, in_form

    assert in_form(dict.fromkeys(FORMS, f"{SECRET} {SECRET}\n")) == {}
    assert in_form({name: {"a": SECRET} for name in FORMS}) == {}
    told = context()
    told["results"]["check"]["launch_id"] = f"a b {SECRET}"
    told["results"]["decide"]["gates"] = [{"id": f"{SECRET}: {SECRET}", "passed": False}]
    told["results"]["report"]["summary"] = [
        *(line.replace("counts", SECRET) for line in (GUARANTEE, RECALL.replace("cases", "counts"))),
        f"against the current version 3: {SECRET}",
    ]
    told["dag_run"].partition_key = SECRET
    assert SECRET not in json.dumps(facts("approval", launch(), told))
    assert SECRET not in json.dumps(facts("held", launch(), told))


def test_a_gate_that_fails_before_a_decision_is_a_failure_and_no_hold(dagbag, listeners):
    from notify import Notice

    told = context()
    told["results"]["decide"]["decision"] = "launch"
    Notice("held", launch())(told)
    assert [json.loads(post)["event"] for _, _, post in listeners.posts] == ["failed"]


def test_a_channel_that_does_not_answer_takes_no_other_with_it(dagbag, listeners, monkeypatch, capsys):
    from notify import Notice

    closed = json.dumps({"conn_type": "smtp", "host": "127.0.0.1", "port": 1, "password": SECRET})
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", closed)
    Notice("failed", launch())(context())
    assert len(listeners.posts) == 1
    logged = capsys.readouterr().out
    assert "was not sent by SmtpNotifier" in logged
    assert SECRET not in logged
    monkeypatch.setenv("TACIT_WEBHOOK", "nobody_made_it")
    Notice("failed", launch())(context())
    assert "was not sent by HttpNotifier" in capsys.readouterr().out


def test_where_airflow_knows_little_it_is_told_all_the_same(dagbag, listeners):
    """As of a task whose process died: the callback runs elsewhere, without the results of its run."""
    from notify import Notice

    def pull(task_ids: str) -> None:
        raise RuntimeError(SECRET)

    ti = SimpleNamespace(dag_id="scheduled", run_id="r", task_id="fine_tune", xcom_pull=pull)
    Notice("failed", launch())({"ti": ti})
    Notice("failed", launch())({})
    first, second = (json.loads(post) for _, _, post in listeners.posts)
    assert (first["task"], first["launch_file"], first.get("launch_id")) == ("fine_tune", "scheduled", None)
    assert second["launch_file"] == "scheduled"


def test_what_takes_too_long_is_told_once_while_it_goes_on(dagbag, listeners):
    from notify import late

    with late(launch(), context(), timedelta(hours=1)):
        pass
    with late(launch(), context(), timedelta(seconds=0)):
        wait_for(lambda: listeners.posts)
    ((_, _, post),) = listeners.posts
    assert json.loads(post)["event"] == "late"
    assert json.loads(post)["task"] == "fine_tune"


def test_services_of_the_stack_are_told_by_the_same_channels_and_a_failed_one_is_known(listeners, monkeypatch):
    def told(event: str, services: str) -> int:
        command = [sys.executable, str(ROOT / "dags" / "notify.py"), event, services]
        return subprocess.run(command, capture_output=True, text=True, timeout=120).returncode

    assert told("stopped", "dag-processor, postgres") == 0
    ((_, mail),), ((_, _, post),) = listeners.mail, listeners.posts
    facts = json.loads(post)
    assert {"event": "stopped", "services": "dag-processor, postgres"}.items() <= facts.items()
    assert "Subject: tacit: dag-processor, postgres: stopped" in mail
    monkeypatch.setenv("AIRFLOW_CONN_HOOK", "http://127.0.0.1:1")
    assert told("recovered", "postgres") == 1
    assert "tacit: postgres: recovered" in listeners.mail[1][1], "the other channel"


def test_every_task_tells_of_its_failure_and_the_gates_of_what_people_are_needed_for(dagbag):
    for dag in dagbag.dags.values():
        for task in dag.tasks:
            told = "held" if task.task_id == "launch_or_hold" else "failed"
            assert [notice.event for notice in as_list(task.on_failure_callback)] == [told], task.task_id
    scheduled = dagbag.dags["scheduled"]
    assert [notice.event for notice in scheduled.get_task("approve").notifiers] == ["approval"]


def as_list(callbacks: Any) -> list[Any]:
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
