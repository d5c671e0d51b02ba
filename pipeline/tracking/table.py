"""MLflow's table of launches: the experiment of a locale, its columns, and a status for each launch.

The columns are a few numbers, named as in table 1 of Xu et al. 2023. They come from results, which hold only public or
released values. Only a published launch gets a tick.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.run.run_dir import RESULT, StageRecord

VIEW = "launches"
WAITING, DONE, AGAINST, FAILED = "SCHEDULED", "FINISHED", "KILLED", "FAILED"
# States of ``pipeline.publication.approvals``; in every other state a launch continues or waits for a person.
_ENDED = {"published": DONE, "held": AGAINST, "rejected": AGAINST, "rolled back": AGAINST}
# Columns in reading order: what was decided, then the metrics.
METRICS: Mapping[str, str] = {
    "rounds": "rounds of training",
    "MinS": "fewest rounds between two participations of one device, as observed",
    "MaxP": "most rounds that one device joined, as observed",
    "report_goal": "devices in the sum of a round, its fixed denominator",
    "rho": "zCDP of one device; only where it covers all releases, so not with words found locally",
    "epsilon": "epsilon of one device over all releases, at the launch's delta",
    "top1_recall": "share of next words that were the first suggestion, on held-out devices",
    "top3_recall": "share of next words that were among the three suggestions",
    "top1_gain": "top-1 recall minus that of the starting point",
    "PRate": "suggestions that simulated typists accepted",
    "WMR": "words that simulated typists corrected while or after typing them",
}
TAGS: Mapping[str, str] = {
    "decision": "of the gates: launch or hold",
    "gain": "points of top-1 recall over the starting point; ± the longer side of its interval",
    "guarantee": "epsilon of one device over all releases, rounded up, with its largest part",
    "tacit.state": "state: unfinished, failed, held, waiting, approved, candidate, rejected, published, rolled back",
    "approver": "accounts that approved its report",
    "feature": "features of the keyboard that it serves",
}
# Width in pixels of the first columns of the shared view: MLflow's Assistant leaves 400 of a page of 1440 for them, and
# without it the columns of training that follow fit too.
_WIDTHS = {"tags.`decision`": 75, "tags.`gain`": 90, "tags.`guarantee`": 170}
_WIDTHS |= {"tags.`tacit.state`": 88, "duration": 85, "metrics.`rounds`": 58, "metrics.`MinS`": 52}
_WIDTHS |= {"metrics.`MaxP`": 52, "metrics.`report_goal`": 92}
# Metrics with an interval, as name_low and name_high.
WITH_INTERVAL = ("top1_recall", "top3_recall", "top1_gain", "PRate", "WMR")
_ARM = "private"
_OF_THE_ARM = {
    "top1_recall": "top1_recall",
    "top3_recall": "top3_recall",
    "prate": "PRate",
    "words_modified": "WMR",
}
_OF_TRAINING = {
    "rounds": "rounds",
    "observed_mins": "MinS",
    "observed_max_participations": "MaxP",
    "report_goal": "report_goal",
}
# Curves for comparing launches; those of other stages are in the stage's run.
CURVES: Mapping[str, Sequence[str]] = {
    "pretrain": ("validation_loss",),
    "fine_tune": ("validation_loss", "validation_recall", "validation_top1"),
}
# Charts of the shared view, in order: what a launch learned, what it cost, and how it learned.
_BARS, _LINES = ("top1_gain", "epsilon"), ("fine_tune_curve/validation_recall", "pretrain_curve/validation_loss")


def columns(record: StageRecord) -> dict[str, float | str]:
    """Columns that a finished stage adds to its launch's row; strings are tags."""
    result: Mapping[str, Any] = record.result
    row: dict[str, float | str] = dict(result.get("headline", {}))
    if record.stage == "fine_tune":
        row |= {ours: float(result[name]) for name, ours in _OF_TRAINING.items() if result.get(name) is not None}
    if record.stage == "ab_test":
        row |= dict(_compared(result))
        row["gain"] = _gain(result)
    return row


def _gain(result: Mapping[str, Any]) -> str:
    """Points, short enough that a column of fixed width shows two digits of them with their interval."""
    value, low, high = (result.get(name) for name in ("top1_gain", "top1_gain_low", "top1_gain_high"))
    if value is None:
        return "-"
    within = "" if low is None or high is None else f"±{100 * max(value - low, high - value):.1f}"
    return f"{100 * value:+.1f}{within}"


def _compared(result: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for arm in result.get("arms", ()):
        if arm["arm"] == _ARM and (name := _OF_THE_ARM.get(arm["metric"])):
            yield name, arm["value"]
            yield f"{name}_low", arm["low"]
            yield f"{name}_high", arm["high"]
    for end in ("low", "high"):
        if (value := result.get(f"top1_gain_{end}")) is not None:
            yield f"top1_gain_{end}", value


def curves(record: StageRecord) -> Iterator[tuple[str, int, float]]:
    """Yield (name, step, value) of the points that a stage adds to its launch's run."""
    for point in record.result.get("curve", ()):
        for name in CURVES.get(record.stage, ()):
            if (value := point.get(name)) is not None and "step" in point:
                yield f"{record.stage}_curve/{name}", int(point["step"]), float(value)


def experiment_name(locale: str) -> str:
    """Name of a locale's experiment."""
    return f"keyboard/{locale}"


def experiment_tags(experiment_id: str, locale: str) -> dict[str, str]:
    """Tags of an experiment for MLflow's pages: its note, its kind, and a shared view with selected columns."""
    return {
        "mlflow.note.content": experiment_note(experiment_id, locale),
        "mlflow.experimentKind": "custom_model_development",
        f"mlflow.sharedViewState.{VIEW}": json.dumps(_view(), sort_keys=True),
    }


def experiment_note(experiment_id: str, locale: str) -> str:
    """Describe an experiment, as Markdown."""
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in {**TAGS, **METRICS}.items())
    ends = ", ".join(f"`{name}`" for name in WITH_INTERVAL)
    return (
        f"**[Launches of {locale}, with columns chosen]({view(experiment_id)})**, "
        f"**[their gains, losses and curves]({view(experiment_id)}&compareRunsMode=CHART)** "
        "(more below, with those of table 1 of Xu et al. 2023): each is a run, with a child run per stage, its "
        "curves and files.\n\n"
        f"| column | meaning |\n|---|---|\n{rows}\n\n"
        f"{ends} have the ends of their interval beside them, as `_low` and `_high`. A tick is a published launch; a "
        "cross marks one that is held, was rejected or rolled back, or failed, as `tacit.state` shows; a clock marks "
        "one that waits for its next stage or its reviewers. All other results are in artifacts: `launch.json`, and "
        "`result.json` of each stage. MLflow is only a display: `tacit verify LAUNCH` checks it against the launch and "
        "the ledger.\n"
    )


def view(experiment_id: str) -> str:
    """Address of the shared view in MLflow's pages.

    MLflow 3.17 opens an experiment as the browser's last one, at first for GenAI, whatever its kind: the address says
    that it is none.
    """
    return f"#/experiments/{experiment_id}/runs?viewStateShareKey={VIEW}&workflowType=machine_learning"


def _view() -> dict[str, object]:
    """State of MLflow's table: decision, gain and guarantee first, then the columns of the papers."""
    chosen = dict.fromkeys([*_WIDTHS, *(f"metrics.`{name}`" for name in METRICS), *(f"tags.`{name}`" for name in TAGS)])
    return {
        "searchFilter": 'tags.`tacit.launch` LIKE "%"',
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [*chosen],
        "columnOrder": [*chosen],
        "columnWidths": _WIDTHS,
        "viewMaximized": False,
        **_charts(),
    }


def _charts() -> dict[str, object]:
    """Charts that MLflow's chart mode opens on, in a section of their own; it makes charts of other metrics itself."""
    section = {"uuid": "launches", "name": "Launches", "display": True, "isReordered": True}
    shared = {"metricSectionId": "launches", "deleted": False, "isGenerated": False, "runsCountToCompare": 20}
    bars = [{"type": "BAR", "uuid": name, "metricKey": name, **shared} for name in _BARS]
    axes: dict[str, object] = {
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "yAxisKey": "metric",
        "range": {},
    }
    axes |= {"lineSmoothness": 0, "selectedXAxisMetricKey": "", "yAxisExpressions": []}
    lines = [
        {"type": "LINE", "uuid": name, "metricKey": name, "selectedMetricKeys": [name], **axes, **shared}
        for name in _LINES
    ]
    # Reordered: MLflow then appends sections of its own, in place of sorting all by name.
    return {"compareRunSections": [section], "compareRunCharts": [*bars, *lines], "isAccordionReordered": True}


def description(tags: Mapping[str, str], experiment_id: str, report_run: str | None) -> str:
    """Describe a decided launch on its run's page, as Markdown: decision, gain, guarantee, and a link to its report.

    Args:
      tags: of the launch's run.
      report_run: id of the run of its stage ``report``; None before it.
    """
    gained = f", {tags['gain']} points of top-1 recall over the starting point" if tags.get("gain") else ""
    lines = [f"**{tags['decision'].capitalize()}**{gained}; one device loses {tags['loss']}."]
    if report_run is not None:
        place = f"#/experiments/{experiment_id}/runs/{report_run}/artifacts/report.html"
        lines.append(f"**[Read the report]({place})**")
    return "\n\n".join(lines)


def status_of_state(state: str) -> str:
    """Return MLflow's status for a launch's state."""
    return _ENDED.get(state, WAITING)


def status_after(record: StageRecord, decision: str | None, before: str) -> str:
    """Return MLflow's status for a launch after one of its stages has ended.

    Args:
      decision: decision of its gates, if known.
      before: its status before. A stage that runs again, or beside the launch's own stages in Airflow, does not change
        the status of a finished launch, which its later stages decide.
    """
    if record.stage == "publish":
        return DONE if record.result.get("published") else AGAINST
    if record.stage == "report":
        return AGAINST if decision == "hold" else WAITING
    return before if before in (DONE, AGAINST) else WAITING


def interrupted_stage(launch: Path) -> str | None:
    """Return a stage that has begun, has not ended, and is not running; None if there is none.

    It tests the lock itself, as the stage may run in another container or on another host that shares the folder. The
    lock is shared and brief, so only a process that starts this stage at that moment is told to retry.

    Args:
      launch: the launch's folder.
    """
    for lock in sorted(launch.glob("private/*/.lock")):
        stage = lock.parent.name
        if not (launch / "public" / stage / RESULT).is_file() and not _held(lock):
            return stage
    return None


def _held(lock: Path) -> bool:
    """Return whether a process holds a lock, or the lock file may not be read."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
