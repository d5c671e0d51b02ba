"""Tasks that really run: what Airflow makes of each exit code, and what reaches XCom, log and console."""

import copy
import json
import os
import signal
import threading
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from .conftest import HOME, LAUNCHES, ROOT, StandIn, fresh_stand_in, operator, wait_for

pytestmark = pytest.mark.timeout(300)

DATE = "2026-03-01"
DATED_LAUNCH = "demo-0123abcd-20260301"


def run(dag, only: Collection[str] = (), **conf: str):
    """One run of a DAG in this process, without waiting between tries; tasks not in ``only`` count as done."""
    dag = copy.deepcopy(dag)
    for task in dag.tasks:
        task.params = copy.deepcopy(task.params)  # a run writes its own into them, and the copies share them
        task.retry_delay = timedelta(0)
        task.retry_exponential_backoff = False
    done = "|".join(task.task_id for task in dag.tasks if only and task.task_id not in only)
    return dag.test(run_conf=conf or None, mark_success_pattern=done or None)


def run_again(dag, dag_run, tasks: Collection[str] | None) -> None:
    """Clear tasks of a run, or all of it, and see it to its end; ``dag.test`` would begin another run."""
    scheduled(dag).clear(run_id=dag_run.run_id, task_ids=tasks)
    go_on(dag, dag_run)


def scheduled(dag):
    """A DAG as the scheduler has it."""
    from airflow.serialization.serialized_objects import DagSerialization

    return DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))


def go_on(dag, dag_run) -> None:
    """See a run that the scheduler began to its end, in this process."""
    from airflow.models.dagrun import DagRun
    from airflow.sdk.execution_time.supervisor import TaskInstance, run_task_in_process
    from airflow.utils.session import create_session

    with create_session() as session:
        same = session.get(DagRun, dag_run.id)
        same.dag = scheduled(dag)
        same.state = "running"
        while same.state == "running":
            session.expire_all()
            due, _ = same.update_state(session=session)
            for instance in due:
                instance.try_number += 1
                instance.state = "scheduled"
            session.commit()
            for instance in due:
                instance.set_state("queued")
                names = ("id", "task_id", "dag_id", "run_id", "try_number", "map_index", "dag_version_id")
                told = TaskInstance(**{name: getattr(instance, name) for name in names})
                instance.set_state(run_task_in_process(ti=told, task=dag.task_dict[instance.task_id]).ti.state)


def states(dag_run) -> dict[str, str]:
    return {instance.task_id: str(instance.state) for instance in dag_run.get_task_instances()}


@dataclass(frozen=True)
class Launch:
    """What one whole run left behind."""

    dag_run: Any
    calls: list[list[str]]
    console: list[str]

    def places(self, stage: str) -> list[int]:
        """Where in the order of all calls a stage was tried."""
        return [index for index, call in enumerate(self.calls) if call[:2] == ["stage", stage]]


@pytest.fixture(scope="module")
def launched(dagbag, tmp_path_factory) -> Launch:
    """The whole demo, dated, in which ``discover`` fails once for a while and is killed once."""
    command = fresh_stand_in()
    command.behave(discover=[75, -9, 0])
    path = tmp_path_factory.mktemp("launched") / "console"
    with path.open("w") as console, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACIT_CONSOLE_FD", str(console.fileno()))
        dag_run = run(dagbag.dags["demo"], date=DATE)
    return Launch(dag_run, command.calls(), path.read_text(encoding="utf-8").splitlines())


def test_a_launch_runs_every_stage_in_order(dagbag, launched: Launch):
    from stage_task import Stage

    dag = dagbag.dags["demo"]
    # tests/test_layout.py holds these to the command's own list of stages, which this environment cannot import.
    stages = {task.task_id for task in dag.tasks if isinstance(task, Stage)}
    assert launched.dag_run.state == "success"
    assert {call[1] for call in launched.calls if call[0] == "stage"} == stages
    assert all(len(launched.places(stage)) == 1 for stage in stages - {"discover"})
    for above in stages:
        for below in dag.get_task(above).downstream_task_ids & stages:
            assert launched.places(above)[-1] < launched.places(below)[0], (above, below)
    fine_tune = next(task for task in launched.dag_run.get_task_instances() if task.task_id == "fine_tune")
    assert fine_tune.xcom_pull(task_ids="fine_tune") == {"stage": "fine_tune"}


def test_a_temporary_failure_and_a_kill_are_tried_again(launched: Launch):
    assert len(launched.places("discover")) == 3
    assert states(launched.dag_run)["discover"] == "success"


def test_the_date_of_a_run_goes_into_its_launch_id(launched: Launch):
    path = str(LAUNCHES / "demo.yaml")
    assert launched.calls[0] == ["check", path, "--json", "--date", "20260301"]
    assert ["stage", "plan", path, "--id", DATED_LAUNCH, "--attempt", "1", "--json"] in launched.calls
    assert {call[4] for call in launched.calls[1:]} == {DATED_LAUNCH}


def test_the_commands_lines_reach_the_console_and_nothing_else_does(launched: Launch):
    assert "stand-in: pretrain, try 1" in launched.console
    assert "discover: tacit exited with 75; this is temporary, so it is retried up to 2 times" in launched.console
    assert all(line.startswith(("stand-in: ", "discover: tacit exited with ")) for line in launched.console)


@pytest.mark.parametrize("code", [65, 3, 1])
def test_a_failure_that_is_not_temporary_is_not_tried_again_and_stops_the_launch(
    dagbag, stand_in: StandIn, monkeypatch, tmp_path, code
):
    stand_in.behave(plan=[code, 0])
    dag = dagbag.dags["demo"].partial_subset(["fine_tune"])
    with (tmp_path / "console").open("w") as console:
        monkeypatch.setenv("TACIT_CONSOLE_FD", str(console.fileno()))
        dag_run = run(dag, only={"check", "plan", "count", "fine_tune"})
    path = str(LAUNCHES / "demo.yaml")
    undated = ["stage", "plan", path, "--id", "demo-0123abcd", "--attempt", "1", "--json"]
    assert stand_in.calls() == [["check", path, "--json"], undated]
    assert dag_run.state == "failed"
    found = states(dag_run)
    assert (found["plan"], found["count"], found["fine_tune"]) == ("failed", "upstream_failed", "upstream_failed")
    assert (tmp_path / "console").read_text().splitlines()[-1] == f"plan: tacit exited with {code}"


@pytest.mark.parametrize("wrong", ["check", "ingest_private", "fine_tune"])
def test_one_failure_is_one_red_task(dagbag, stand_in: StandIn, wrong: str):
    """A typo, no text, a training without an end: nothing that follows has anything to report."""
    from stage_graph import STAGES

    stand_in.behave(**{wrong: [65]})
    dag_run = run(dagbag.dags["demo"])
    found = states(dag_run)
    assert dag_run.state == "failed"
    assert [task for task, state in found.items() if state == "failed"] == [wrong]
    assert {state for task, state in found.items() if task != wrong} <= {"success", "upstream_failed"}
    assert not {"audit_releases", "decide", "report"} & {*stand_in.stages()}
    assert wrong != "check" or stand_in.stages() == []
    assert found.keys() > STAGES.keys()


@pytest.mark.parametrize("wrong", ["audit", "audit_releases"])
def test_a_failed_audit_of_a_trained_launch_has_its_report(dagbag, stand_in: StandIn, wrong: str):
    stand_in.decide("hold")
    stand_in.behave(**{wrong: [65]})
    found = states(run(dagbag.dags["demo"], only={"check", "audit", "audit_releases"} | LAST))
    assert [task for task, state in found.items() if state == "failed"] == [wrong, "launch_or_hold"]
    assert stand_in.stages()[-2:] == ["decide", "report"]


def test_another_launch_files_event_leaves_no_red_task(dagbag, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch):
    def skipped(self, context: object) -> list[str]:
        raise AirflowSkipException("of another launch file")

    dag = dagbag.dags["demo"]
    monkeypatch.setattr(type(dag.get_task("check")), "command", skipped)
    assert {*states(run(dag)).values()} == {"skipped"}


LAST = frozenset({"check", "decide", "report", "launch_or_hold", "approve", "approve_2", "publish"})


@pytest.mark.parametrize(
    ("console", "ended", "later"), [(None, "failed", "upstream_failed"), ("2", "success", "skipped")]
)
def test_a_hold_has_its_report_and_publishes_nothing(
    dagbag, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, console: str | None, ended: str, later: str
):
    stand_in.decide("hold")
    if console:
        monkeypatch.setenv("TACIT_CONSOLE_FD", console)
    dag_run = run(dagbag.dags["scheduled"], only=LAST)
    found = states(dag_run)
    assert dag_run.state == ended, "a run of a server is not green; make launch says itself that it is held"
    assert (found["report"], found["launch_or_hold"]) == ("success", ended)
    assert (found["approve"], found["publish"]) == (later, later)
    assert stand_in.stages() == ["decide", "report"]


@pytest.mark.parametrize("cleared", [["publish"], ["launch_or_hold", "approve", "approve_2", "publish"], None])
def test_a_held_run_that_is_cleared_is_held_again(dagbag, stand_in: StandIn, cleared: list[str] | None):
    """Its last task alone, its gate with what follows, and all of it."""
    stand_in.decide("hold")
    dag = copy.deepcopy(dagbag.dags["scheduled"])
    dag_run = run(dag, only=LAST)
    run_again(dag, dag_run, cleared)
    found = states(dag_run)
    assert (found["launch_or_hold"], found["approve"], found["publish"]) == ("failed", *["upstream_failed"] * 2)
    assert "publish" not in stand_in.stages()
    assert stand_in.stages().count("decide") == (2 if cleared is None else 1)


def test_without_a_server_nobody_can_approve_so_nothing_is_published(dagbag, stand_in: StandIn):
    found = states(run(dagbag.dags["scheduled"], only=LAST))
    assert (found["launch_or_hold"], found["approve"], found["publish"]) == ("success", "skipped", "skipped")
    assert stand_in.stages() == ["decide", "report"]


def test_the_public_model_announces_its_date(dagbag, stand_in: StandIn):
    dag_run = run(dagbag.dags["public_model-scheduled"], date=DATE)
    assert dag_run.state == "success"
    assert stand_in.stages() == ["ingest_public", "pretrain"]
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        event = session.query(AssetEvent).order_by(AssetEvent.id.desc()).first()
        assert event.extra["launch_file"] == "scheduled"
        assert (event.extra["date"], event.partition_key) == ("20260301", "20260301")


@pytest.mark.parametrize(
    ("run_type", "key", "expected"),
    [
        ("manual", None, None),
        ("manual", "20990101", "20990101"),
        ("scheduled", "20260501", "20260501"),
        ("backfill", "20260301", "20260301"),
        ("asset_triggered", "20260401", "20260401"),
        ("asset_triggered", "undated", None),
    ],
)
def test_where_the_date_comes_from(dagbag, run_type, key, expected):
    from dates import launch_date

    event = SimpleNamespace(extra={"launch_file": "es-ES"})
    context = {
        "params": {"date": None},
        "triggering_asset_events": {"asset": [event]} if run_type == "asset_triggered" else {},
        "dag_run": SimpleNamespace(run_type=run_type, partition_key=key),
    }
    assert launch_date(context, "es-ES") == expected
    assert launch_date(context | {"params": {"date": "2026-01-31"}}, "es-ES") == "20260131"
    if run_type == "asset_triggered":
        with pytest.raises(AirflowSkipException, match="another launch file than es-MX"):
            launch_date(context, "es-MX")


@pytest.mark.parametrize(
    ("run_type", "key"), [("manual", "today"), ("backfill", "20990101"), ("scheduled", "20990101")]
)
def test_a_partition_that_is_no_date_or_is_to_come_is_refused(dagbag, run_type, key):
    from dates import launch_date

    run = SimpleNamespace(run_type=run_type, partition_key=key)
    with pytest.raises(AirflowFailException, match="partition"):
        launch_date({"params": {}, "triggering_asset_events": {}, "dag_run": run}, "es-ES")


def test_the_next_command_starts_ahead_and_nothing_else_changes(dagbag, launched: Launch, monkeypatch, tmp_path):
    command = fresh_stand_in()
    command.behave(discover=[75, -9, 0])
    monkeypatch.setenv("TACIT_AHEAD", "1")
    with (tmp_path / "console").open("w") as console:
        monkeypatch.setenv("TACIT_CONSOLE_FD", str(console.fileno()))
        dag_run = run(dagbag.dags["demo"], date=DATE)
    assert states(dag_run) == states(launched.dag_run)
    assert sorted(command.calls()) == sorted(launched.calls)
    # All but the first; publication, which nothing follows, leaves none behind.
    lines = (tmp_path / "console").read_text().splitlines()
    assert lines.count("stand-in: was ready") == len(launched.calls) - 1
    wait_for(lambda: left_behind() == [])


def test_a_process_that_ended_before_its_command_came_is_done_without(dagbag, stand_in: StandIn, monkeypatch):
    import stage_task

    monkeypatch.setenv("TACIT_AHEAD", "1")
    task = operator(dagbag)
    assert task.run_command(["stage", "plan"])[0] == 0
    stage_task.ahead[0].process.kill()
    stage_task.ahead[0].process.wait()
    code, answer = task.run_command(["stage", "pretrain"])
    assert (code, json.loads(answer)) == (0, {"stage": "pretrain"})
    # As when Airflow ends: nothing more can come.
    ready = stage_task.ahead.pop()
    ready.process.stdin.close()
    assert ready.process.wait(timeout=300) == 0
    ready.process.stderr.close()
    ready.answer.close()
    assert stand_in.stages() == ["plan", "pretrain"]


def left_behind() -> list[Path]:
    """Processes of the stand-in that still run."""
    return [line for line in Path("/proc").glob("[0-9]*/cmdline") if str(HOME / "tacit").encode() in read(line)]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("stage", "hours"), [("fine_tune", 4 * 400 / 60), ("pretrain", 12), ("audit", 12)], ids=["long", "short", "unknown"]
)
def test_the_limit_of_a_stage_follows_the_forecast_of_the_check(dagbag, launched: Launch, stage: str, hours: float):
    (check,) = (task for task in launched.dag_run.get_task_instances() if task.task_id == "check")
    task = copy.copy(dagbag.dags["demo"].get_task(stage))
    task.pre_execute({"ti": check})
    assert task.execution_timeout == timedelta(hours=hours)


def test_a_task_over_its_time_limit_leaves_no_process_behind(dagbag, stand_in: StandIn, monkeypatch):
    import stage_task

    # What Airflow keeps to is what the task sets as it begins.
    monkeypatch.setattr(stage_task, "STAGE_TIMEOUT", timedelta(seconds=10))
    stand_in.behave(ingest_public=[999])
    dag = dagbag.dags["demo"].partial_subset(["ingest_public"])
    task = dag.get_task("ingest_public")
    assert task.execution_timeout == timedelta(hours=12)
    task.retries = 0
    assert states(run(dag))["ingest_public"] == "failed"
    assert stand_in.stages() == ["ingest_public"]
    wait_for(lambda: left_behind() == [])


def test_an_interrupt_ends_the_whole_launch(dagbag, stand_in: StandIn):
    import stage_task

    stand_in.behave(ingest_public=[999], ingest_private=[999])

    def press_ctrl_c() -> None:
        wait_for(stand_in.stages, seconds=120)
        stand_in.behave()  # what starts in spite of it ends at once
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press_ctrl_c)
    # A shell's background job is started deaf to the interrupt.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        dag_run = run(dagbag.dags["demo"].partial_subset(["discover"]))
    finally:
        signal.signal(signal.SIGINT, before)
        stage_task.interrupted.clear()
        thread.join()
    assert dag_run.state == "failed"
    found = states(dag_run)
    assert (found["ingest_public"], found["ingest_private"]) == ("failed", "failed")
    assert found["discover"] == "upstream_failed"
    # Both could start: neither the one that comes second nor another try of the first does.
    assert len(stand_in.stages()) == 1
    assert left_behind() == []


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        ('{"ok": false, "errors": ["locale: no", "seed: no"]}', ["locale: no", "seed: no"]),
        ('{"ok": false, "error": "FILE: /x does not exist", "exit_code": 65}', ["FILE: /x does not exist"]),
        ('{"ok": true, "errors": []}', []),
        ("3", []),
        ("cut o", []),
    ],
)
def test_the_cause_is_what_the_command_says(dagbag, answer, lines):
    from stage_task import cause

    assert cause(answer) == lines


def test_a_missing_folder_fails_at_once(dagbag, monkeypatch):
    import stage_task

    monkeypatch.setattr(stage_task, "HOME", ROOT / "nowhere")
    with pytest.raises(AirflowFailException, match="TACIT_HOME"):
        stage_task.tacit_path()


def test_a_missing_command_is_explained(dagbag, monkeypatch):
    from stage_task import tacit_path

    monkeypatch.setenv("TACIT_BIN", str(ROOT / "nowhere"))
    with pytest.raises(AirflowFailException, match="make setup"):
        tacit_path()
