"""Dates of scheduled runs: each date is one launch with one spend.

A schedule creates partitioned runs, whose key is the date (YYYYMMDD); a backfill creates the same runs for past dates.
The public model of a locale is an asset with one partition per date, and each partition starts one run of the launch,
so that no date is lost if several become ready at once.
"""

import re
import zlib
from datetime import UTC, datetime

from airflow.sdk import DAG, Asset, Context, CronPartitionTimetable, Param, PartitionedAssetTimetable
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

_KEY = "%Y%m%d"
# Days of the presets of cron, as the launch file's own reader has them.
_PRESETS = {"@daily": "* * *", "@midnight": "* * *", "@weekly": "* * 0", "@monthly": "1 * *", "@quarterly": "1 */3 *"}
_PRESETS |= dict.fromkeys(("@yearly", "@annually"), "1 1 *")
# Partition of a public model for the file's own, undated launch.
UNDATED = "undated"


def on_schedule(schedule: str, launch_name: str) -> CronPartitionTimetable:
    """Timetable of runs on a schedule, in UTC, each with its date.

    A preset such as ``@monthly`` names days and no time: each launch file begins at a minute of its own, so that fifty
    locales do not begin at once.

    Raises:
      AirflowException: Airflow cannot parse the schedule, or it has no dates.
    """
    if days := _PRESETS.get(schedule.strip().lower()):
        minute = zlib.crc32(launch_name.encode()) % (24 * 60)
        schedule = f"{minute % 60} {minute // 60} {days}"
    timetable = CronPartitionTimetable(schedule, timezone="UTC", key_format=_KEY)
    # A DAG without tasks, which Airflow does not register.
    DAG("schedule", schedule=timetable, start_date=datetime(2026, 1, 1, tzinfo=UTC)).timetable.validate()
    return timetable


def on_public_model(locale: str) -> PartitionedAssetTimetable:
    """Timetable of one run for each date whose public model is ready."""
    return PartitionedAssetTimetable(assets=public_model_asset(locale))


def public_model_asset(locale: str) -> Asset:
    """Asset of ``public_model.py``, with one partition per date; scheduled launches of the locale wait for it."""
    return Asset(name=f"public_model/{locale}", uri=f"x-tacit://public_model/{locale}")


def ask_for_date(dag: DAG) -> None:
    """Give a DAG whose tasks are there the run parameter that names the dated launch to run or to resume.

    Tasks of a DAG that has it already would each get a copy, which Airflow (3.3.2) checks by its schema at each
    parsing: half of the time.
    """
    text = "empty: the file's own, undated launch"
    dag.params["date"] = Param(None, type=["null", "string"], format="date", description=text)


def launch_date(context: Context, launch_name: str) -> str | None:
    """Date (YYYYMMDD) that makes each scheduled run a launch of its own; None for the undated launch.

    In this order: the run's ``date`` parameter, set by a person; else the partition from a schedule, a backfill or a
    public model.

    Raises:
      AirflowSkipException: the public model that started the run belongs to another launch file.
      AirflowFailException: the partition is no date, or a run that was not started by hand is ahead of its date.
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
        raise AirflowFailException(
            f"partition {key}: this date is in the future; the launch needs the text typed until then"
        )
    return key


def require_switched_on(context: Context, dag_id: str) -> None:
    """Check that a DAG is not paused before it is triggered, as Airflow (3.3.2) drops events for paused DAGs.

    Raises:
      AirflowFailException: it is paused.
    """
    if context["dag_run"].triggering_user_name == "dag_test":
        return  # Only this run exists, and no run starts after it.
    if context["ti"].get_dag(dag_id).is_paused:
        raise AirflowFailException(f"{dag_id} is paused, so this event would be lost; unpause it, then clear this task")
