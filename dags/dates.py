"""Dated launch of a run: one date, one launch, one spend.

A schedule makes partitioned runs, whose key is the date (YYYYMMDD); a backfill makes the same runs for dates that
passed. The public model of a locale is an asset with one partition a date, and each partition starts one run of the
launch, so that no date is lost where several become ready at once.
"""

import re
from datetime import UTC, datetime

from airflow.sdk import DAG, Asset, Context, CronPartitionTimetable, Param, PartitionedAssetTimetable
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

_KEY = "%Y%m%d"
# The partition of a public model that was trained for the file's own, undated launch.
UNDATED = "undated"


def on_schedule(schedule: str) -> CronPartitionTimetable:
    """Runs on a schedule, in UTC, each with its date.

    Raises:
      AirflowException: Airflow does not understand the schedule, or it has no dates.
    """
    timetable = CronPartitionTimetable(schedule, timezone="UTC", key_format=_KEY)
    # In a DAG that no file holds: one built with tasks is registered.
    DAG("schedule", schedule=timetable, start_date=datetime(2026, 1, 1, tzinfo=UTC)).timetable.validate()
    return timetable


def on_public_model(locale: str) -> PartitionedAssetTimetable:
    """One run for each date whose public model is ready."""
    return PartitionedAssetTimetable(assets=public_model_asset(locale))


def on_publication(launch_name: str) -> PartitionedAssetTimetable:
    """One run for each launch that some devices try first; the partition is the launch's id.

    Without partitions it would never start: Airflow (3.3.2) hands on what a dated run emits with the run's own
    partition, the date, and tells that to partitioned DAGs alone.
    """
    return PartitionedAssetTimetable(assets=experiment_asset(launch_name))


def public_model_asset(locale: str) -> Asset:
    """Asset that ``public_model.py`` emits, a partition a date; scheduled launches of the locale wait for it."""
    return Asset(name=f"public_model/{locale}", uri=f"x-tacit://public_model/{locale}")


def experiment_asset(launch_name: str) -> Asset:
    """Asset that publication emits if some devices try it first, a partition a launch; ``experiment.py`` awaits it."""
    return Asset(name=f"experiment/{launch_name}", uri=f"x-tacit://experiment/{launch_name}")


def date_param() -> Param:
    """The run parameter with which a person names the dated launch to run or to finish."""
    return Param(None, type=["null", "string"], format="date", description="empty: the file's own, undated launch")


def launch_date(context: Context, launch_name: str) -> str | None:
    """The date (YYYYMMDD) that makes each scheduled run a launch of its own; None for the undated launch.

    In this order: the run's ``date`` parameter (a person's choice), the partition that a schedule, a backfill or a
    public model gave the run.

    Raises:
      AirflowSkipException: the public model that started the run is another launch file's.
      AirflowFailException: the partition is no date, or a run that nobody started by hand is ahead of its date.
    """
    if date := context["params"].get("date"):
        return date.replace("-", "")
    run = context["dag_run"]
    events = [event for group in context["triggering_asset_events"].values() for event in group]
    if events and not any(event.extra.get("launch_file") == launch_name for event in events):
        raise AirflowSkipException(f"this public model was trained for another launch file than {launch_name}")
    key = run.partition_key
    if key in (None, UNDATED):
        return None
    if not re.fullmatch(r"[0-9]{8}", key):
        raise AirflowFailException(f"partition {key[:40]!r}: a launch's partition is its date, as in 20261101")
    if run.run_type != "manual" and key > f"{datetime.now(UTC):{_KEY}}":
        raise AirflowFailException(f"partition {key}: this date is still to come; what people type until then counts")
    return key


def require_switched_on(context: Context, dag_id: str) -> None:
    """See that a DAG hears what is about to be announced: Airflow (3.3.2) keeps nothing for one that is paused.

    Raises:
      AirflowFailException: it is paused.
    """
    if context["dag_run"].triggering_user_name == "dag_test":
        return  # Nothing but this run is there, and nothing starts after it.
    if context["ti"].get_dag(dag_id).is_paused:
        raise AirflowFailException(
            f"{dag_id} is paused, and would never hear that its turn has come; switch it on, then clear this task"
        )
