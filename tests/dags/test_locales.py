"""The production locales under Airflow's own scheduler: dates, partitions, pools, backfills and clearing."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from airflow.cli import cli_parser
from airflow.executors.base_executor import BaseExecutor
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models import DagRun
from airflow.models.asset import AssetModel
from airflow.models.backfill import Backfill
from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select, update

from tests.helpers.processes.server import latest_monthly

from .conftest import ROOT, leave_the_dates

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

LOCALES = ("de-DE", "en-US", "es-ES", "fr-FR", "pt-BR")
PUBLIC = tuple(f"public_model-{name}" for name in LOCALES)
DATES = ("20260301", "20260401")
SHIPPED = str(ROOT / "dags" / "launches")
SLOTS = {"cpu": 2, "gpu": 1}
MOST_TURNS = 200


class Patient(BaseExecutor):
    """Takes whatever the scheduler hands out, and runs nothing."""

    def queue_workload(self, workload: Any, session: Any) -> None:
        pass


class Scheduler(SchedulerJobRunner):
    """Airflow's scheduler, one turn at a time."""

    def turn(self) -> None:
        with create_session() as session:
            self._do_scheduling(session)


def sync(launches: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Bring some DAGs of a folder of launch files into the database; what could not be imported."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db

    folder = ROOT / "dags"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TACIT_LAUNCHES", launches)
        patch.setenv("AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL", "0")
        bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")
        bag.dags = {name: dag for name, dag in bag.dags.items() if name in names}
        DagBundlesManager().sync_bundles_to_db()
        sync_bag_to_db(bag, "dags-folder", None)
    return bag.import_errors


@pytest.fixture(scope="module")
def scheduler(dagbag) -> Scheduler:
    """With the shipped launch files' DAGs in the database, and those of the production locales switched on."""
    leave_the_dates(timedelta(minutes=2), *LOCALES)
    assert sync(SHIPPED, LOCALES + PUBLIC) == {}
    job = Job()
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id.in_(LOCALES + PUBLIC)).values(is_paused=False))
    return Scheduler(job=job, executors=[Patient(parallelism=100)])


def runs(*dag_ids: str) -> list[DagRun]:
    with create_session() as session:
        return list(session.scalars(select(DagRun).where(DagRun.dag_id.in_(dag_ids)).order_by(DagRun.id)))


@pytest.fixture(scope="module")
def due(scheduler: Scheduler) -> dict[str, str | None]:
    """The date that is next for each DAG, before anything is scheduled."""
    with create_session() as session:
        return {model.dag_id: model.next_dagrun_partition_key for model in session.scalars(select(DagModel))}


@pytest.fixture(scope="module")
def made(due: dict, scheduler: Scheduler) -> Counter[tuple[str, str | None]]:
    """What the schedules made: a run of which date, how often."""
    for _ in range(3):
        scheduler.turn()
    return Counter((run.dag_id, run.partition_key) for run in runs(*PUBLIC))


def test_each_locale_has_its_schedule_its_asset_and_its_pools(due: dict[str, str | None]):
    with create_session() as session:
        models = {model.dag_id: model for model in session.scalars(select(DagModel))}
        for name in LOCALES:
            assert models[name].timetable_partitioned
            assert models[name].timetable_summary.startswith("Partitioned Asset")
            asset = session.scalar(select(AssetModel).where(AssetModel.name == f"public_model/{name}"))
            assert [one.dag_id for one in asset.scheduled_dags] == [name]
            assert [one.dag_id for one in asset.producing_tasks] == [f"public_model-{name}"]
            # The latest date is due; those that passed while nobody scheduled are for a backfill.
            assert due[f"public_model-{name}"] == f"{latest_monthly(name):%Y%m%d}"


def test_a_schedule_makes_one_run_a_date_and_no_second_one(made: Counter):
    assert made == {(f"public_model-{name}", f"{latest_monthly(name):%Y%m%d}"): 1 for name in LOCALES}


def test_a_backfill_makes_a_run_of_each_date_once(made: Counter):
    from dates import launch_date

    words = ["backfill", "create", "--dag-id", PUBLIC[0], "--from-date", "2026-02-10", "--to-date", "2026-04-30"]
    for _ in range(2):
        args = cli_parser.get_parser().parse_args([*words, "--max-active-runs", "1", "--reprocess-behavior", "none"])
        args.func(args)
        with create_session() as session:
            session.execute(
                update(DagRun)
                .where(DagRun.backfill_id.is_not(None))
                .values(state="success", end_date=datetime.now(UTC))
            )
            session.execute(update(Backfill).values(completed_at=datetime.now(UTC)))
    filled = [run for run in runs(PUBLIC[0]) if run.run_type == "backfill"]
    assert [run.partition_key for run in filled] == list(DATES)
    contexts = [{"params": {}, "triggering_asset_events": {}, "dag_run": run} for run in filled]
    assert [launch_date(context, LOCALES[0]) for context in contexts] == list(DATES)


@pytest.fixture(scope="module")
def launched(made: Counter, scheduler: Scheduler) -> list[dict[str, int]]:
    """Two dates of every locale become ready at once, and every task ends a turn later: what ran, by pool, by turn.

    Until all have begun, and every pool was full once: how many turns that takes is a matter of the machine.
    """
    from airflow.assets.manager import asset_manager

    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id.in_(PUBLIC)).values(is_paused=True))
        for name in LOCALES:
            asset = session.scalar(select(AssetModel).where(AssetModel.name == f"public_model/{name}"))
            for date in DATES:
                extra = {"launch_file": name, "date": date}
                asset_manager.register_asset_change(asset=asset, extra=extra, session=session, partition_key=date)
    turns: list[dict[str, int]] = []
    begun = most = None
    while (begun, most) != (set(LOCALES), SLOTS):
        assert len(turns) < MOST_TURNS, (begun, most)
        scheduler.turn()
        with create_session() as session:
            query = select(TaskInstance).where(TaskInstance.state == "queued")
            under_way = list(session.scalars(query))
            turns.append(dict(Counter(ti.pool for ti in under_way)))
            for ti in under_way:
                ti.set_state("success", session=session)
        running = Counter(run.dag_id for run in runs(*LOCALES) if run.state == "running")
        assert set(running.values()) <= {1}, "the second date must know what the first has spent"
        begun = {run.dag_id for run in runs(*LOCALES) if run.state != "queued"}
        most = {pool: max(turn.get(pool, 0) for turn in turns) for pool in SLOTS}
    return turns


def test_every_date_of_every_locale_has_a_run_of_its_own(launched: list, scheduler: Scheduler):
    begun = Counter((run.dag_id, run.partition_key) for run in runs(*LOCALES))
    assert begun == {(name, date): 1 for name in LOCALES for date in DATES}


def test_several_locales_at_once_stay_within_the_pools(launched: list[dict[str, int]]):
    assert all(turn.get(pool, 0) <= slots for turn in launched for pool, slots in SLOTS.items())


@pytest.mark.parametrize("tasks", [("pretrain",), ("pretrain", "announce", "decide"), ()], ids=["one", "some", "all"])
@pytest.mark.parametrize("name", [LOCALES[0], PUBLIC[0]])
def test_a_run_can_be_cleared(launched: list, scheduler: Scheduler, name: str, tasks: tuple[str, ...]):
    """Airflow 3.3.2 cannot clear a run whose DAG has deadlines (its issue 70368), and the runbook rests on clearing."""
    run = runs(name)[0]
    known = set_states(run).keys()
    chosen = known & set(tasks or known)
    set_states(run, **dict.fromkeys(known, "success"))
    with create_session() as session:
        session.execute(update(DagRun).where(DagRun.id == run.id).values(state="success"))
    SerializedDagModel.get_dag(name).clear(run_id=run.run_id, task_ids=chosen if tasks else None)
    assert {task for task, state in set_states(run).items() if state is None} == chosen
    assert next(each for each in runs(name) if each.run_id == run.run_id).state == "queued"


def test_a_file_that_breaks_under_a_run_fails_the_run(launched: list, scheduler: Scheduler):
    name = "pt-BR"
    run = next(run for run in runs(name) if run.state == "running")
    set_states(run, check="success")
    with TemporaryDirectory() as launches:
        Path(launches, f"{name}.yaml").write_text("locale: [", encoding="utf-8")
        sync(launches, (name,))
    for _ in range(3):
        scheduler.turn()
    states = set_states(run, broken_launch_file="failed")
    assert states["publish"] == "removed"
    assert states["broken_launch_file"] in ("scheduled", "queued")  # As its pool has room.
    scheduler.turn()
    assert next(each for each in runs(name) if each.run_id == run.run_id).state == "failed"
    sync(SHIPPED, (name,))


def set_states(run: DagRun, **states: str) -> dict[str, str | None]:
    """Set the states of a run's tasks; all as they were before."""
    with create_session() as session:
        query = select(TaskInstance).where(TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id)
        tasks = {ti.task_id: ti for ti in session.scalars(query)}
        before = {name: ti.state for name, ti in tasks.items()}
        for name, state in states.items():
            tasks[name].set_state(state, session=session)
    return before
