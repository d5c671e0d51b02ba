"""By when a run is expected to be over, told to people while it still goes on, by Airflow's deadlines.

What Airflow 3.3.2 has: a deadline is about a whole run, counted from when it was queued, and what it calls is told the
run and its state, and nothing of its tasks. A run that succeeds in time loses its deadline; one that failed does not.
So a deadline here asks ``tacit`` where the launch stands before it says anything, and the time that one stage takes is
watched by its own task (``notify.late``). What it calls runs where tasks run (``SyncCallback``): that needs no
triggerer, which `make up` has none of.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback

from launch_file import HOME, LaunchFile, read_or_error
from notify import Notice, facts, page, send
from stage_task import tacit_path

# Days from when a run was queued; waiting for its turn in a pool, or for an earlier date, is part of it.
_PUBLIC_DAYS, _DECIDED_DAYS = 2, 5
# The report is there by then, and a reviewer has had time. Nobody is asked for longer than seven days.
_RELEASED_DAYS = 8


def of_public_model(launch: LaunchFile) -> list[DeadlineAlert] | None:
    """The public model is there."""
    return _where_there_is_a_scheduler([_alert("public model", launch, _PUBLIC_DAYS, [])])


def of_launch(launch: LaunchFile) -> list[DeadlineAlert] | None:
    """A launch is decided and has its report, and where that waits for a reviewer, it has been answered."""
    alerts = [_alert("stages", launch, _DECIDED_DAYS, ["unfinished"])]
    if launch.reviewers:
        alerts.append(_alert("approval", launch, _RELEASED_DAYS, ["waiting"]))
    return _where_there_is_a_scheduler(alerts)


def _where_there_is_a_scheduler(alerts: list[DeadlineAlert]) -> list[DeadlineAlert] | None:
    """None under `airflow dags test`, which in 3.3.2 looks a DAG's deadlines up by what is no id, and fails."""
    return None if sys.argv[1:3] == ["dags", "test"] else alerts


def _alert(name: str, launch: LaunchFile, days: float, states: list[str]) -> DeadlineAlert:
    arguments = {"path": str(launch.path), "states": states}
    return DeadlineAlert(
        name=name,
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(days=days),
        callback=SyncCallback(missed, kwargs=arguments),
    )


def missed(path: str, states: list[str], context: Mapping[str, Any]) -> None:
    """Tell people that a run is late, unless it is over or the launch is past what was to be done by then.

    Args:
      states: of the launch in which it is late (``tacit review``); none: whatever it says.
      context: what Airflow knows: the run, and the deadline.
    """
    run, launch = context["dag_run"], read_or_error(Path(path))
    if run["state"] in ("success", "failed"):
        return
    launch_id, state = standing(path, run)
    if states and state not in (*states, None):
        return
    due = str(context["deadline"]["deadline_time"]).replace(" ", "T")
    task = "approve" if "waiting" in states else None
    place = SimpleNamespace(dag_id=run["dag_id"], run_id=run["dag_run_id"])
    more = {"launch_id": launch_id, "date": run.get("partition_key"), "due": due, "task": task, "link": page(place)}
    send(facts("late", launch, {}, **more), Notice("late", launch))


def standing(path: str, run: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Id and state of a run's launch; None where ``tacit`` cannot say, which is no reason not to tell people."""
    date = (run.get("conf") or {}).get("date") or run.get("partition_key")
    dated = ["--date", date.replace("-", "")] if date and date != "undated" else []
    launch_id = asked(["check", path, "--alone", "--json", *dated]).get("launch_id")
    if launch_id is None:
        return None, None
    return launch_id, asked(["review", launch_id, "--json"]).get("state")


def asked(arguments: list[str]) -> dict[str, Any]:
    """What ``tacit`` answers; empty where it does not."""
    done = subprocess.run(
        [tacit_path(), *arguments], cwd=HOME, capture_output=True, text=True, timeout=300, check=False
    )
    return json.loads(done.stdout) if done.returncode == 0 else {}
