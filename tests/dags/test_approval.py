"""A reviewer's answer, without a server."""

import copy
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException

from .conftest import StandIn

pytestmark = pytest.mark.timeout(300)


def answered(dagbag, monkeypatch, word: str, who: dict[str, str] | None) -> dict[str, Any]:
    """What the approval's task leaves in XCom after an answer, without a server."""
    approve = copy.deepcopy(dagbag.dags["scheduled"].get_task("approve"))
    monkeypatch.setattr(approve, "skip", lambda **kwargs: None)
    monkeypatch.setattr(approve, "ignore_downstream_trigger_rules", True)
    results = {"check": {"launch_id": "demo-0123abcd"}, "report": {"disclosure_sha256": "e" * 64, "concerns": []}}
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(
        dag_id="scheduled",
        run_id="manual__1",
        task_id="approve",
        try_number=3,
        xcom_pull=lambda task_ids: results[task_ids],
        xcom_push=lambda key, value: pushed.update({key: value}),
    )
    event = {"chosen_options": [word], "params_input": {}, "responded_at": datetime(2026, 3, 1, tzinfo=UTC)}
    approve.execute_complete({"ti": ti, "task": approve}, event | {"responded_by_user": who})
    return pushed["answer"]


@pytest.mark.parametrize("word", ["Approve", "Reject"])
def test_the_task_names_its_place_and_nobody(dagbag, stand_in: StandIn, monkeypatch, word: str):
    """What was answered, and by whom, is for `tacit` to ask Airflow: a worker could say anything."""
    left = answered(dagbag, monkeypatch, word, {"id": "privacy-reviewer", "name": "Privacy Reviewer"})
    (call,) = stand_in.calls()
    where = ["scheduled", "manual__1", "approve", "3"]
    assert call == ["review", "demo-0123abcd", "--answered-in-airflow", *where, "--json"]
    assert left["state"] == "approved"


def test_who_approved_is_not_asked_a_second_time(dagbag, monkeypatch):
    second = copy.deepcopy(dagbag.dags["scheduled"].get_task("approve_2"))
    monkeypatch.setattr(ApprovalOperator, "execute", lambda self, context: None)
    answers = {"approve": {"responded_by_user": {"id": "privacy-reviewer"}}}
    ti = SimpleNamespace(xcom_pull=lambda task_ids, key=None: answers[task_ids] if key else {})
    second.execute({"ti": ti, "dag_run": SimpleNamespace(triggering_user_name="admin")})
    assert [user["id"] for user in second.assigned_users] == ["second-reviewer"]


def test_an_answer_that_did_not_come_is_nobody_s(dagbag, stand_in: StandIn, monkeypatch):
    answered(dagbag, monkeypatch, "Reject", None)
    assert stand_in.calls() == []


def test_an_answer_that_is_not_written_down_publishes_nothing(dagbag, stand_in: StandIn, monkeypatch):
    stand_in.behave(review=[65])
    with pytest.raises(AirflowFailException, match="not in the ledger"):
        answered(dagbag, monkeypatch, "Approve", {"id": "somebody", "name": "Somebody"})
