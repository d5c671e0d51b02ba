"""A readable name for each run, as its note: locale, features and date, or its launch.

Airflow creates the id of a run itself; 3.3.2 has no hook for it if an asset or a backfill starts the run. A note that a
person wrote stays.
"""

import sys
from typing import TYPE_CHECKING, ClassVar

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

_OURS = frozenset({"launch", "public_model"})


@hookimpl
def on_dag_run_running(dag_run: "DagRun", msg: str) -> None:
    """Set the note of a run that the scheduler starts."""
    dag = dag_run.dag
    if dag and not dag_run.note and _OURS & set(dag.tags):
        dag_run.note = name(dag.dag_display_name, dag_run.partition_key, dag_run.conf)


def name(title: str, partition: str | None, conf: dict | None) -> str:
    """Name of a run.

    Args:
      title: title of its DAG, which begins with locale and features.
      partition: its date from a schedule or a backfill, as YYYYMMDD; or a launch id.
      conf: its configuration, set by a person.
    """
    asked = conf or {}
    about = str(asked.get("launch") or asked.get("date") or partition or "undated")
    date = about.replace("-", "")
    return f"{title}, {f'{date[:4]}-{date[4:6]}-{date[6:]}' if date.isdecimal() and len(date) == 8 else about}"


class RunNames(AirflowPlugin):
    """Airflow plugin with the listener that names runs."""

    name = "tacit run names"
    listeners: ClassVar = [sys.modules[__name__]]
