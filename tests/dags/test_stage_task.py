"""Tasks that really run: what Airflow makes of each exit code, and what reaches XCom, log and console."""

import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from .conftest import HOME, LAUNCHES, ROOT, StandIn

pytestmark = pytest.mark.timeout(300)

ALL_STAGES = [
    "ingest_public",
    "ingest_private",
    "pretrain",
    "discover",
    "build_vocabulary",
    "adapt",
    "plan",
    "count",
    "fine_tune",
    "audit",
    "ab_test",
    "decide",
    "report",
    "publish",
]


def run(dagbag, name: str, **conf: str):
    """One run of a DAG in this process, without waiting between tries."""
    dag = dagbag.dags[name]
    for task in dag.tasks:
        task.retry_delay = timedelta(0)
        task.retry_exponential_backoff = False
    return dag.test(run_conf=conf or None)


def states(dag_run) -> dict[str, str]:
    return {instance.task_id: str(instance.state) for instance in dag_run.get_task_instances()}


def test_a_launch_runs_every_stage_once_in_order(dagbag, stand_in: StandIn):
    dag_run = run(dagbag, "demo")
    assert dag_run.state == "success"
    assert sorted(stand_in.stages()) == sorted(ALL_STAGES)
    place = {name: index for index, name in enumerate(stand_in.stages())}
    for above, below in [("discover", "build_vocabulary"), ("plan", "fine_tune"), ("audit", "decide")]:
        assert place[above] < place[below]
    path = str(LAUNCHES / "demo.yaml")
    assert stand_in.calls()[0] == ["check", path, "--json"]
    fine_tune = next(instance for instance in dag_run.get_task_instances() if instance.task_id == "fine_tune")
    assert fine_tune.xcom_pull(task_ids="fine_tune") == {"rho": 0.5, "epsilon": 6.5, "delta": 1e-10}
    assert ["stage", "plan", "--launch", path, "--run", "demo-0123abcd", "--json"] in stand_in.calls()


def test_a_temporary_failure_is_tried_again(dagbag, stand_in: StandIn):
    stand_in.behave(discover=[75, -9, 0])
    dag_run = run(dagbag, "demo")
    assert dag_run.state == "success"
    assert stand_in.stages().count("discover") == 3


@pytest.mark.parametrize("code", [65, 1])
def test_a_permanent_failure_is_not_tried_again_and_stops_the_launch(dagbag, stand_in: StandIn, code):
    stand_in.behave(plan=[code, 0])
    dag_run = run(dagbag, "demo")
    assert dag_run.state == "failed"
    assert stand_in.stages().count("plan") == 1
    assert states(dag_run)["plan"] == "failed"
    assert states(dag_run)["fine_tune"] == "upstream_failed"
    assert "fine_tune" not in stand_in.stages()


def test_a_hold_has_its_report_and_visibly_skips_publication(dagbag, stand_in: StandIn):
    stand_in.decide("hold")
    dag_run = run(dagbag, "scheduled")
    found = states(dag_run)
    assert dag_run.state == "success"
    assert (found["report"], found["approve"], found["publish"]) == ("success", "skipped", "skipped")
    assert "publish" not in stand_in.stages()


def test_without_a_server_nobody_can_approve_so_nothing_is_published(dagbag, stand_in: StandIn):
    found = states(run(dagbag, "scheduled"))
    assert (found["launch_or_hold"], found["approve"], found["publish"]) == ("success", "skipped", "skipped")
    assert "publish" not in stand_in.stages()


def test_the_date_of_a_run_goes_into_its_launch_id(dagbag, stand_in: StandIn):
    run(dagbag, "demo", date="2026-03-01")
    assert stand_in.calls()[0][-2:] == ["--date", "20260301"]
    assert stand_in.calls()[1][5] == "demo-0123abcd-20260301"


def test_the_public_model_announces_its_date(dagbag, stand_in: StandIn):
    dag_run = run(dagbag, "public_model-scheduled", date="2026-03-01")
    assert dag_run.state == "success"
    assert stand_in.stages() == ["ingest_public", "pretrain"]
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        event = session.query(AssetEvent).order_by(AssetEvent.id.desc()).first()
        assert event.extra["launch_file"] == "scheduled"
        assert event.extra["date"] == "20260301"


@pytest.mark.parametrize(
    ("run_type", "events", "expected"),
    [
        ("manual", [], None),
        ("scheduled", [], "20260501"),
        ("asset_triggered", [{"launch_file": "es-ES", "date": "20260401"}], "20260401"),
    ],
)
def test_where_the_date_comes_from(dagbag, run_type, events, expected):
    from stage_task import launch_date

    context = {
        "params": {"date": None},
        "triggering_asset_events": {"asset": [SimpleNamespace(extra=extra) for extra in events]},
        "dag_run": SimpleNamespace(run_type=run_type, logical_date=datetime(2026, 5, 1, tzinfo=UTC)),
    }
    assert launch_date(context, "es-ES") == expected
    if events:
        with pytest.raises(AirflowSkipException, match="another launch file than es-MX"):
            launch_date(context, "es-MX")


def operator(dagbag):
    return dagbag.dags["demo"].get_task("pretrain")


def wait_for(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_killing_a_task_stops_the_command_and_its_children(dagbag, stand_in: StandIn, tmp_path):
    task = operator(dagbag)
    leader = tmp_path / "leader"
    script = f"echo $$ > {leader}.new; mv {leader}.new {leader}; sleep 600 & sleep 600"
    result: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: result.append(task.run_command(["bash", "-c", script])))
    thread.start()
    wait_for(leader.exists)
    group = int(leader.read_text())
    assert alive(group)
    task.on_kill()
    thread.join(timeout=20)
    assert result[0][0] < 0
    wait_for(lambda: not alive(group))


def test_a_task_over_its_time_limit_leaves_no_process_behind(dagbag, stand_in: StandIn):
    stand_in.behave(pretrain=[999, 999, 999])
    task = operator(dagbag)
    limit = task.execution_timeout
    task.execution_timeout = timedelta(seconds=3)
    try:
        dag_run = run(dagbag, "demo")
    finally:
        task.execution_timeout = limit
    assert states(dag_run)["pretrain"] == "failed"
    assert not [line for line in Path("/proc").glob("[0-9]*/cmdline") if str(HOME / "tacit").encode() in read(line)]


def test_an_interrupt_ends_the_whole_launch(dagbag, stand_in: StandIn):
    import stage_task

    stand_in.behave(discover=[999])

    def press_ctrl_c() -> None:
        wait_for(lambda: "discover" in stand_in.stages(), seconds=120)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press_ctrl_c)
    # A shell's background job is started deaf to the interrupt.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        dag_run = run(dagbag, "demo")
    finally:
        signal.signal(signal.SIGINT, before)
        stage_task.interrupted.clear()
        thread.join()
    assert dag_run.state == "failed"
    assert stand_in.stages().count("discover") == 1
    assert "build_vocabulary" not in stand_in.stages()


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_commands_lines_reach_the_console_only_when_asked(dagbag, stand_in: StandIn, monkeypatch, tmp_path):
    with (tmp_path / "console").open("w+") as console:
        monkeypatch.setenv("TACIT_CONSOLE_FD", str(console.fileno()))
        stand_in.behave(plan=[65])
        run(dagbag, "demo")
        lines = (tmp_path / "console").read_text().splitlines()
    assert "stand-in: pretrain, try 1" in lines
    assert lines[-1] == "plan: tacit exited with 65"
    assert not any("airflow" in line.lower() for line in lines)


def test_a_missing_command_is_explained(dagbag, monkeypatch):
    from stage_task import tacit_path

    monkeypatch.setenv("TACIT_BIN", str(ROOT / "nowhere"))
    with pytest.raises(AirflowFailException, match="make setup"):
        tacit_path()
