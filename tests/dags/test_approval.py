"""What becomes of a reviewer's answer, without a server."""

import copy
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException

from .conftest import StandIn

pytestmark = pytest.mark.timeout(300)


def answered(dagbag, monkeypatch, word: str, who: dict[str, str] | None, ticked: Sequence[bool] = ()) -> dict[str, Any]:
    """What the approval's task leaves in XCom after an answer, without a server.

    Args:
      ticked: which of the report's warnings were accepted.
    """
    approve = copy.deepcopy(dagbag.dags["scheduled"].get_task("approve"))
    monkeypatch.setattr(approve, "skip", lambda **kwargs: None)
    monkeypatch.setattr(approve, "ignore_downstream_trigger_rules", True)
    results = {"check": {"launch_id": "demo-0123abcd"}, "report": {"disclosure_sha256": "e" * 64}}
    results["report"]["concerns"] = ["The population is synthetic."] * len(ticked)
    boxes = {f"warning_{number}": tick for number, tick in enumerate(ticked, start=1)}
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(
        xcom_pull=lambda task_ids: results[task_ids], xcom_push=lambda key, value: pushed.update({key: value})
    )
    event = {"chosen_options": [word], "params_input": boxes, "responded_at": datetime(2026, 3, 1, tzinfo=UTC)}
    approve.execute_complete({"ti": ti, "task": approve}, event | {"responded_by_user": who})
    return pushed["answer"]


@pytest.mark.parametrize(("word", "given"), [("Approve", "approve"), ("Reject", "reject")])
def test_an_answer_goes_into_the_ledger(dagbag, stand_in: StandIn, monkeypatch, word: str, given: str):
    who = {"id": "privacy-reviewer", "name": "Privacy Reviewer"}
    left = answered(dagbag, monkeypatch, word, who)
    (call,) = stand_in.calls()
    assert call[:2] == ["review", "demo-0123abcd"]
    assert dict(zip(call[3::2], call[4::2], strict=True)) == {
        "--answer": given,
        "--by": "privacy-reviewer",
        "--reason": "answered in Airflow",
        "--through": "airflow",
        "--report": "e" * 64,
    }
    assert left["state"] == {"approve": "approved", "reject": "rejected"}[given]


def test_approving_takes_a_tick_for_each_warning_and_rejecting_none(dagbag, stand_in: StandIn, monkeypatch):
    who = {"id": "privacy-reviewer", "name": "Privacy Reviewer"}
    with pytest.raises(AirflowFailException, match="without accepting 1 of 2 warnings"):
        answered(dagbag, monkeypatch, "Approve", who, ticked=[True, False])
    assert stand_in.calls() == []
    assert answered(dagbag, monkeypatch, "Approve", who, ticked=[True, True])["state"] == "approved"
    assert answered(dagbag, monkeypatch, "Reject", who, ticked=[False, False])["state"] == "rejected"


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
