"""The DAGs as Airflow reads them: no task runs here."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.models import Pool
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG

from .conftest import ROOT

pytestmark = pytest.mark.timeout(300)


def stage_edges() -> set[tuple[str, str]]:
    """Edges of ``stages.json``, with the gate between report and publication; the list's own test holds the others."""
    from stage_graph import STAGES

    after = {(before, name) for name, stage in STAGES.items() for before in stage.after or ("check",)}
    return after - {("report", "publish")} | {("report", "launch_or_hold")}


def edges(dag: DAG) -> set[tuple[str, str]]:
    return {(task.task_id, below) for task in dag.tasks for below in task.downstream_task_ids}


def test_every_file_is_read_without_errors(dagbag):
    assert dagbag.import_errors == {}
    files = {Path(stat.file).name for stat in dagbag.dagbag_stats}
    assert files == {"launch.py", "public_model.py", "experiment.py", "expiry.py"}
    assert set(dagbag.dags) == {"demo", "scheduled", "public_model-scheduled", "experiment-scheduled", "tacit-expiry"}


def test_the_projects_own_launch_files_make_dags(database):
    # A process of its own, because the DAG files read their surroundings when they are imported.
    code = (
        "import sys; from pathlib import Path; from airflow.dag_processing.dagbag import BundleDagBag;"
        "bag = BundleDagBag(dag_folder=Path('dags'), bundle_path=Path('dags'), bundle_name='dags-folder');"
        "heavy = {'torch', 'mlflow', 'datasets', 'pipeline', 'pretrain'} & set(sys.modules);"
        "print(bag.import_errors, sorted(bag.dags), sorted(heavy), sep='\\n', file=sys.stderr)"
    )
    command = ["env", "-u", "TACIT_LAUNCHES", "-u", "TACIT_HOME", sys.executable, "-c", code]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stderr.splitlines()[-3:]
    files = {path.stem for path in (ROOT / "dags" / "launches").glob("*.yaml")}
    assert files
    assert lines[0] == "{}"
    assert all(repr(name) in lines[1] for name in files)
    assert lines[2] == "[]"


def test_graph_without_reviewers(dagbag):
    assert edges(dagbag.dags["demo"]) == stage_edges() | {("launch_or_hold", "publish")}


def test_graph_with_reviewers_asks_them_before_publishing(dagbag):
    dag = dagbag.dags["scheduled"]
    assert edges(dag) == stage_edges() | {
        ("launch_or_hold", "approve"),
        ("approve", "approve_2"),  # Two persons, as the file's policy says.
        ("approve_2", "publish"),
    }
    approve = dag.get_task("approve")
    assert isinstance(approve, ApprovalOperator)
    assert approve.assigned_users == [{"id": name, "name": name} for name in ("privacy-reviewer", "second-reviewer")]
    assert approve.defaults == ["Reject"]
    assert approve.response_timeout == timedelta(days=7)


def test_the_graph_is_four_boxes_and_names_stay_those_of_stages(dagbag):
    dag = dagbag.dags["scheduled"]
    groups = {name: set(box.children) for name, box in dag.task_group.children.items() if name != "check"}
    assert list(groups) == ["public", "private", "evidence", "decision"]
    assert groups["evidence"] == {"audit", "ab_test", "audit_releases"}
    assert {"check"}.union(*groups.values()) == set(dag.task_ids)
    assert dag.dag_display_name == "it-IT NWP: scheduled"


def test_graph_of_the_public_model(dagbag):
    dag = dagbag.dags["public_model-scheduled"]
    assert edges(dag) == {("check", "ingest_public"), ("ingest_public", "pretrain"), ("pretrain", "announce")}
    assert [asset.name for asset in dag.get_task("announce").outlets] == ["public_model/it-IT"]


def test_every_task_has_a_retry_a_time_limit_and_a_pool_that_exists(dagbag):
    # A task in a pool that does not exist waits for ever without an error.
    pools = {pool.pool for pool in Pool.get_pools()}
    for dag in dagbag.dags.values():
        assert dag.max_active_runs == 1
        assert not dag.catchup
        assert dag.owner == "tacit"
        for task in dag.tasks:
            assert task.retries >= 1, task.task_id
            assert task.execution_timeout or getattr(task, "response_timeout", None), task.task_id
            assert task.pool in pools, task.task_id


def test_what_is_over_is_erased_every_day_whatever_launches_do(dagbag):
    dag = dagbag.dags["tacit-expiry"]
    assert [task.command({}) for task in dag.tasks] == [["erase", "--expired", "--json"]]
    assert dag.schedule == "@daily"
    assert dag.is_paused_upon_creation is False


def test_a_dags_page_shows_its_launch_file(dagbag):
    assert "locale: it-IT\nfeatures: [NWP]" in dagbag.dags["scheduled"].doc_md


def test_only_training_on_a_gpu_is_sent_to_the_gpu_queue(dagbag):
    def on_gpu(name: str) -> set[str]:
        return {task.task_id for task in dagbag.dags[name].tasks if task.queue == task.pool == "gpu"}

    assert on_gpu("scheduled") == {"pretrain", "adapt", "fine_tune", "audit", "ab_test", "audit_releases"}
    assert on_gpu("demo") == set()
    assert dagbag.dags["scheduled"].get_task("audit").execution_timeout == timedelta(hours=12)


def test_the_schedule_is_the_public_models_and_starts_the_launch(dagbag):
    assert dagbag.dags["demo"].schedule is None
    assert dagbag.dags["public_model-scheduled"].timetable.key_format == "%Y%m%d"
    assert "public_model/it-IT" in str(dagbag.dags["scheduled"].timetable.asset_condition)
    minute, hour, *days = dagbag.dags["public_model-scheduled"].timetable.expression.split()
    assert days == ["1", "*", "*"]
    assert (minute, hour) != ("0", "0"), "a preset has no time, and fifty locales do not begin at once"


def test_airflows_own_command_deletes_its_history_by_age(database):
    """As docs/settings.md writes it; tests share the database, in which nothing else is as old."""
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    now = datetime.now(UTC)
    with create_session() as session:
        for days in (100, 80):
            session.add(made := Log(event=f"{days} days ago"))
            made.dttm = now - timedelta(days=days)  # its own is always now
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if " airflow db clean " in line]
    command = line.partition("  #")[0].replace("docker/stack airflow", "docker/stack local airflow")
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with create_session() as session:
        kept = {event for (event,) in session.query(Log.event) if event.endswith("days ago")}
    assert kept == {"80 days ago"}


@pytest.mark.parametrize("written", ["no", '"no"', "yes", "1"])
def test_a_locale_is_text_with_quotes_or_without(dagbag, tmp_path, written):
    # YAML 1.1 reads an unquoted `no` (Norwegian) as false.
    from launch_file import read_launch_file

    path = tmp_path / "norwegian.yaml"
    path.write_text(f"name: norwegian\nlocale: {written}\n", encoding="utf-8")
    assert read_launch_file(path).locale == written.strip('"')


def test_the_celery_executor_of_the_compose_file_can_be_imported(database):
    # celery 5.7 broke this import while `pip check` stayed clean.
    from airflow.providers.celery.executors.celery_executor import CeleryExecutor

    assert CeleryExecutor.is_production
