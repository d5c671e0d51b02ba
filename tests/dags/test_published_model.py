"""A published model starts another team's DAG, as docs/operations.md shows it."""

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models import DagRun
from airflow.models.asset import AssetEvent
from airflow.utils.session import create_session
from sqlalchemy import select

from .conftest import ROOT, StandIn
from .test_stage_task import LAST, go_on, run, states

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
LAUNCH = "demo-0123abcd"


@pytest.fixture(scope="module")
def theirs(dagbag, tmp_path_factory) -> Any:
    """The DAG of the documents, for the demo, in the database and switched on."""
    (shown,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "operations.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    folder: Path = tmp_path_factory.mktemp("theirs")
    (folder / "theirs.py").write_text(shown.replace("published_model/en-US", "published_model/demo"), encoding="utf-8")
    bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")
    assert bag.import_errors == {}
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(bag, "dags-folder", None)
    (dag,) = bag.dags.values()
    return dag


class Scheduler(SchedulerJobRunner):
    """Airflow's scheduler, only for events of assets."""

    def hear(self) -> None:
        with create_session() as session:
            self._create_dagruns_for_partitioned_asset_dags(session)


def begun(dag: Any) -> list[DagRun]:
    """Runs of a DAG, once the scheduler has seen what was emitted."""
    Scheduler(job=Job(), executors=[]).hear()
    with create_session() as session:
        return list(session.scalars(select(DagRun).where(DagRun.dag_id == dag.dag_id).order_by(DagRun.id)))


def emitted() -> list[AssetEvent]:
    with create_session() as session:
        return list(session.scalars(select(AssetEvent).where(AssetEvent.source_task_id == "publish")))


def test_a_published_model_starts_the_dag_of_another_team(dagbag, theirs, stand_in: StandIn, capfd):
    before = len(emitted())
    for date, launch in ((None, LAUNCH), ("2026-03-01", f"{LAUNCH}-20260301")):
        assert run(dagbag.dags["demo"], only=LAST, **({"date": date} if date else {})).state == "success"
        *_, event = emitted()
        assert event.partition_key == event.extra["launch_id"] == launch
        assert (event.extra["versions"], event.extra["alias"]) == ({"keyboard-en-US-NWP": 4}, "champion")
        newest = begun(theirs)[-1]
        assert (newest.run_type, newest.partition_key) == ("asset_triggered", launch)
        go_on(theirs, newest)
        assert states(newest) == {"bring": "success"}
        assert f"{launch} {{'keyboard-en-US-NWP': 4}}" in capfd.readouterr().out
    assert len(emitted()) == before + 2


def test_a_held_launch_whose_gate_was_marked_a_success_starts_nothing(dagbag, theirs, stand_in: StandIn):
    emitted_before, begun_before = len(emitted()), len(begun(theirs))
    stand_in.decide("hold")
    held = run(dagbag.dags["demo"], only={"check", "decide", "report", "publish"})
    assert (states(held)["launch_or_hold"], states(held)["publish"], held.state) == ("success", "failed", "failed")
    assert stand_in.stages() == ["decide", "report", "publish"]
    assert (len(emitted()), len(begun(theirs))) == (emitted_before, begun_before)
