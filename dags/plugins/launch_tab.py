"""A tab on each run: the state of its launch, its gates, the difference from the baseline, and its report.

Airflow's api-server serves it to every user who may see the run. It reads the public half of ``runs/LAUNCH``, if that
is on its machine, and sends only files that the record of stage ``report`` names. It has no access to the ledger, so it
shows records unchecked, and says so: no decision or publication uses them (``pipeline.run.known``).
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.plugins_manager import AirflowPlugin
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader
from sqlalchemy import select

_HERE = Path(__file__).resolve()
_LAUNCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# File types of a report; its pages hold no script, and an injected one would not run.
_TYPES = {
    ".html": "text/html",
    ".md": "text/plain",
    ".json": "application/json",
    ".csv": "text/csv",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".pdf": "application/pdf",
    ".yaml": "text/plain",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; font-src data:; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_NEWEST = 20
# The main metrics of the comparison.
METRICS = {
    "top1_recall": "top-1 recall",
    "top3_recall": "top-3 recall",
    "prate": "predictions accepted (PRate)",
    "words_modified": "words modified (WMR)",
}

app = FastAPI(title="Launches of tacit", openapi_url=None)
_pages = Environment(loader=FileSystemLoader(_HERE.parent), autoescape=True, trim_blocks=True, lstrip_blocks=True)
_may_read = [
    Depends(requires_access_dag("GET", DagAccessEntity.RUN)),
    Depends(requires_access_dag("GET", DagAccessEntity.XCOM)),
]


@app.get("/{dag_id}/latest", dependencies=_may_read)
def latest(dag_id: str) -> RedirectResponse:
    """Redirect to the newest run of a DAG whose launch is known."""
    with create_session() as session:
        newest = select(DagRun.run_id).where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc()).limit(_NEWEST)
        for run_id in session.scalars(newest):
            if launch_of(dag_id, run_id):
                return RedirectResponse(f"runs/{run_id}/", headers=_HEADERS)
    raise HTTPException(404, "no run of this DAG has a launch yet")


@app.get("/{dag_id}/runs/{run_id}/", dependencies=_may_read)
def tab(dag_id: str, run_id: str) -> HTMLResponse:
    """Return the page of one run."""
    launch = launch_of(dag_id, run_id)
    page = _pages.get_template("launch_tab.html.j2").render(launch=launch, **seen(launch) if launch else {})
    return HTMLResponse(page, headers=_HEADERS)


@app.get("/{dag_id}/runs/{run_id}/{stage}/{name:path}", dependencies=_may_read)
def file(dag_id: str, run_id: str, stage: str, name: str) -> Response:
    """Return a file of the run's report, or the badge that it shows."""
    launch = launch_of(dag_id, run_id)
    path = shown(launch, stage, name) if launch else None
    if path is None:
        raise HTTPException(404, "the run's report has no such file here")
    return FileResponse(path, media_type=_TYPES[path.suffix], headers=_HEADERS)


def launch_of(dag_id: str, run_id: str) -> str | None:
    """Launch id from the first task of a run; None before that task ends."""
    with create_session() as session:
        first = ("check", "begun")
        query = XComModel.get_many(key="return_value", run_id=run_id, dag_ids=dag_id, task_ids=first, limit=1)
        row = session.scalars(query).first()
        answer = XComModel.deserialize_value(row) if row else None
    launch = answer.get("launch_id") if isinstance(answer, Mapping) else None
    return launch if isinstance(launch, str) and _LAUNCH.fullmatch(launch) else None


def shown(launch: str, stage: str, name: str) -> Path | None:
    """Path of a file that may be sent; None for any other.

    Guarantee: it is the badge, or a file that the record of stage ``report`` names, in the public folder of the launch.
    """
    folder = runs() / launch / "public"
    allowed = {"launch/state.svg"} | {f"report/{each}" for each in (record(launch, "report") or {}).get("outputs", {})}
    if f"{stage}/{name}" not in allowed or Path(name).suffix not in _TYPES:
        return None
    path = (folder / stage / name).resolve()
    return path if path.is_relative_to(folder.resolve()) and path.is_file() else None


def seen(launch: str) -> dict[str, Any]:
    """Content of a launch's page, from the results of its stages."""
    stages = ("fine_tune", "ab_test", "decide", "report", "publish")
    records = {stage: record(launch, stage) for stage in stages}
    results = {stage: written["result"] for stage, written in records.items() if written}
    decided, compared = results.get("decide", {}), results.get("ab_test", {})
    champion = compared.get("champion")
    return {
        "here": (runs() / launch / "public").is_dir(),
        "decided": decided,
        "spent": decided.get("headline", {}),
        "champion": champion,
        "differences": differences(compared, champion["arm"] if champion else "start"),
        "published": results.get("publish", {}),
        "report": shown(launch, "report", "report.html") is not None,
        "state": shown(launch, "launch", "state.svg") is not None,
    }


def differences(compared: Mapping[str, Any], baseline: str) -> list[dict[str, Any]]:
    """Difference of this launch from an arm of the comparison, metric by metric."""
    rows = {
        row["metric"]: row
        for row in compared.get("differences", ())
        if (row["candidate"], row["baseline"]) == ("private", baseline)
    }
    return [{"title": title, **rows[metric]} for metric, title in METRICS.items() if metric in rows]


def record(launch: str, stage: str) -> dict[str, Any] | None:
    """Read ``result.json`` of a finished stage; None if it is not on this machine."""
    try:
        return json.loads((runs() / launch / "public" / stage / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def runs() -> Path:
    """Folder of launches, the same as ``tacit`` uses."""
    home = Path(os.environ.get("TACIT_HOME") or _HERE.parents[2])
    return (home / Path(os.environ.get("TACIT_RUNS_DIR") or "runs").expanduser()).resolve()


class LaunchTab(AirflowPlugin):
    """Airflow plugin with the page of a launch."""

    name = "tacit"
    fastapi_apps: ClassVar = [{"app": app, "url_prefix": "/tacit", "name": "Launches of tacit"}]
    external_views: ClassVar = [
        {
            "name": "Launch",
            "href": "tacit/{DAG_ID}/runs/{RUN_ID}/",
            "destination": "dag_run",
            "url_route": "launch",
        }
    ]
