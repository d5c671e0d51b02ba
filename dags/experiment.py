"""One DAG per launch file with a block ``experiment``: it begins the experiment, waits for its logs, then decides.

Publication starts it (the asset ``published_model/<launch file>``). Waiting takes two weeks or more and holds no
worker: the sensor checks once an hour and gives its slot back. If logs are late the run fails with a notification; the
experiment then continues until a person decides or stops it (docs/experiments.md).
"""

import json
import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, BaseSensorOperator, Context, Param, PartitionedAssetTimetable, get_parsing_context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from launch_file import LaunchFile, read_launch_files
from notify import Notice
from stage_task import DONE, HELD, SMALL_POD, TacitOperator, asked, published_model, trial_days
from tacit_environment import of_stage

LOOK_EVERY = timedelta(hours=1)
# Time limit after the last day for all logs to arrive.
GRACE = timedelta(days=7)


class Experiment(TacitOperator):
    """One ``tacit experiment`` command for the launch whose publication started the run."""

    endings = frozenset({DONE, HELD})

    def __init__(self, *, launch: LaunchFile, name: str, task_id: str, **kwargs: Any) -> None:
        super().__init__(
            launch=launch,
            task_id=task_id,
            execution_timeout=timedelta(hours=2),
            doc_md=f"`tacit experiment {name}`; see `tacit experiment {name} --help`.",
            **kwargs,
        )
        self.subcommand = name

    def command(self, context: Context) -> list[str]:
        return ["experiment", self.subcommand, launch_id(context), "--json"]


class Logs(BaseSensorOperator):
    """Waits until all days are over and all logs are there, or until a person stops the experiment."""

    def __init__(self, *, launch: LaunchFile, days: int, **kwargs: Any) -> None:
        super().__init__(
            task_id="logs",
            mode="reschedule",
            poke_interval=LOOK_EVERY,
            timeout=timedelta(days=days + 1) + GRACE,
            queue="cpu",
            pool="cpu",
            retries=2,
            executor_config=SMALL_POD,
            execution_timeout=timedelta(minutes=10),
            on_failure_callback=Notice("failed", launch),
            doc_md="Checks once an hour, by `tacit experiment status`, whether all logs are there.",
            **kwargs,
        )

    def poke(self, context: Context) -> bool:
        now = status(launch_id(context))
        if not now:
            # Not a failure of the task, which has only three retries in all these weeks.
            self.log.warning("the state of the experiment is unknown; the next check is in an hour")
            return False
        self.log.info("days %s to %s, logs in %s", now["first_day"], now["last_day"], now["logs"])
        return bool(now["ended"] or (now["over"] and now["arrived"]))


def status(launch: str) -> dict[str, Any]:
    """State of an experiment, from ``tacit``; empty if the command fails."""
    done = asked("experiment", "status", launch, variables=of_stage(os.environ))
    return json.loads(done.stdout) if done.returncode == 0 else {}


def launch_id(context: Context) -> str:
    """Launch of a run: the one that a person names, or the one whose publication started the run.

    Raises:
      AirflowFailException: there is neither.
    """
    named = context["params"].get("launch") or context["dag_run"].partition_key
    if not named:
        raise AirflowFailException("launch: missing; trigger the DAG with the id of a published launch")
    return named


def build(launch: LaunchFile, days: int) -> DAG:
    """Build the DAG of one launch file."""
    with DAG(
        dag_id=f"experiment-{launch.name}",
        dag_display_name=f"{launch.title}, experiment",
        description=f"live experiment of {launch.name}",
        doc_md=f"Begins the experiment of `{launch.path.name}`, waits {days} days for its logs, then decides by them.",
        # Airflow (3.3.2) passes on an event of a dated run under its partition, the date, and only to partitioned DAGs.
        schedule=PartitionedAssetTimetable(assets=published_model(launch.name)),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,  # it spends nothing, and a paused DAG would miss publications
        params={
            "launch": Param(None, type=["null", "string"], description="id of a launch, for a run started by hand")
        },
        tags=["launch", "experiment", launch.locale, *launch.features],
    ) as dag:
        begun = Experiment(launch=launch, name="begin", task_id="begun")
        logs = Logs(launch=launch, days=days)
        decided = Notice("decided", launch)
        settle = Experiment(launch=launch, name="decide", task_id="settle", on_success_callback=decided)

        begun >> logs >> settle
    return dag


for _launch in read_launch_files():
    if (_days := trial_days(_launch)) and get_parsing_context().dag_id in (None, f"experiment-{_launch.name}"):
        with suppress(AirflowException, ValueError, TypeError):  # the launch's DAG reports a broken file
            globals()[f"experiment_{_launch.name}"] = build(_launch, _days)
