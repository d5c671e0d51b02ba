"""The DAG that waits for logs of a live experiment: what starts it, how it waits, what it makes of the decision."""

import copy
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk import PartitionedAssetTimetable
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSensorTimeout

from .conftest import StandIn
from .test_graph import edges

pytestmark = pytest.mark.timeout(300)
ID = "scheduled-0123abcd"


def context(launch: str | None = ID, published: str | None = None) -> dict:
    """What a task knows of a run that a person started, or a publication."""
    return {"params": {"launch": launch}, "dag_run": SimpleNamespace(partition_key=published)}


@pytest.fixture
def logs(dagbag):
    return copy.copy(dagbag.dags["experiment-scheduled"].get_task("logs"))


def test_publication_starts_it_and_it_waits_before_it_decides(dagbag):
    dag, launch = dagbag.dags["experiment-scheduled"], dagbag.dags["scheduled"]
    assert edges(dag) == {("begun", "logs"), ("logs", "settle")}
    (asset,) = launch.get_task("publish").outlets
    assert dag.timetable.asset_condition.name == asset.name
    assert asset.name == "published_model/scheduled"
    # A dated run emits under its partition, which a DAG without partitions is never told of.
    assert isinstance(dag.timetable, PartitionedAssetTimetable)
    assert dag.is_paused_upon_creation is False
    assert "experiment-demo" not in dagbag.dags


def test_waiting_holds_no_worker_and_has_an_end(logs):
    assert (logs.mode, logs.poke_interval) == ("reschedule", 3600)
    assert logs.timeout == timedelta(days=14 + 1 + 7).total_seconds()


@pytest.mark.parametrize(
    ("said", "there"),
    [
        ({}, True),
        ({"arrived": False}, False),
        ({"over": False}, False),
        ({"over": False, "arrived": False, "ended": "roll back"}, True),
    ],
)
def test_it_waits_for_days_and_logs_unless_somebody_stopped_it(logs, stand_in: StandIn, said: dict, there: bool):
    stand_in.tries(**said)
    assert logs.poke(context()) is there
    assert stand_in.calls() == [["experiment", "status", ID, "--json"]]


def test_a_command_that_does_not_answer_is_asked_again(logs, stand_in: StandIn):
    stand_in.behave(experiment=[75])
    assert logs.poke(context()) is False


def test_what_is_not_there_yet_gives_the_slot_back_until_it_is_too_late(logs, stand_in: StandIn):
    stand_in.tries(arrived=False)

    def looked(since: timedelta) -> None:
        began = datetime.now(UTC) - since
        logs.execute(context() | {"ti": SimpleNamespace(get_first_reschedule_date=lambda _: began)})

    with pytest.raises(AirflowRescheduleException) as waits:
        looked(timedelta(days=21))
    assert timedelta(minutes=59) < waits.value.reschedule_date - datetime.now(UTC) <= timedelta(hours=1)
    with pytest.raises(AirflowSensorTimeout):
        looked(timedelta(days=23))


@pytest.mark.parametrize("decision", ["promote", "roll back"])
def test_both_decisions_are_answers(dagbag, stand_in: StandIn, decision: str):
    stand_in.tries(decision=decision)
    settle = copy.copy(dagbag.dags["experiment-scheduled"].get_task("settle"))
    assert settle.execute(context())["decision"] == decision
    assert stand_in.calls() == [["experiment", "decide", ID, "--json"]]


def test_a_launch_is_what_was_published_or_the_one_that_a_person_names(dagbag, stand_in: StandIn):
    begun = dagbag.dags["experiment-scheduled"].get_task("begun")
    assert begun.command(context(None, "published"))[2] == "published"
    assert begun.command(context("named", "published"))[2] == "named"
    with pytest.raises(AirflowFailException, match="launch: missing"):
        begun.command(context(None))


def test_people_are_told_what_was_decided(dagbag):
    import notify

    launch = dagbag.dags["experiment-scheduled"].get_task("begun").launch
    said = {"settle": {"decision": "roll back"}, "begun": {"launch_id": ID}}
    ti = SimpleNamespace(task_id="settle", xcom_pull=lambda task_ids: said.get(task_ids))
    told = notify.facts("decided", launch, {"ti": ti})
    assert (told["decision"], told["launch_id"]) == ("roll back", ID)
    assert "all devices get the model of scheduled-0123abcd" in notify.sentences(told)[1]


@pytest.mark.slow
def test_a_run_looks_waits_and_decides(dagbag, stand_in: StandIn):
    stand_in.tries(decision="roll back")
    dag = copy.deepcopy(dagbag.dags["experiment-scheduled"])
    ended = dag.test(run_conf={"launch": ID})
    assert ended.state == "success"
    assert [call[1] for call in stand_in.calls()] == ["begin", "status", "decide"]


@pytest.mark.parametrize("paused", [False, True])
def test_publication_names_its_launch_unless_nobody_would_hear(dagbag, stand_in: StandIn, paused: bool):
    publish = copy.copy(dagbag.dags["scheduled"].get_task("publish"))
    asked, named = list[str](), list[str]()

    def get_dag(dag_id: str) -> SimpleNamespace:
        asked.append(dag_id)
        return SimpleNamespace(is_paused=paused)

    told = {
        "ti": SimpleNamespace(try_number=1, get_dag=get_dag, xcom_pull=lambda task_ids: {"launch_id": ID}),
        "dag_run": SimpleNamespace(triggering_user_name=None, partition_key="20261101"),
        "outlet_events": {publish.asset: SimpleNamespace(add_partitions=named.append)},
    }
    if paused:
        with pytest.raises(AirflowFailException, match="experiment-scheduled is paused, so this event would be lost"):
            publish.execute(told)
        assert stand_in.calls() == []
    else:
        publish.execute(told)
    assert (asked, named) == (["experiment-scheduled"], [] if paused else [ID])
