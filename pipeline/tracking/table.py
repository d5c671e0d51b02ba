"""MLflow's table of launches: the experiment of a locale, its columns, and a status for each launch.

The columns are few numbers, by their names in table 1 of Xu et al. 2023. They follow from results, which hold nothing
but what is public or released. Only what is published has a tick.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.run.run_dir import RESULT, StageRecord

VIEW = "launches"
WAITING, DONE, AGAINST, FAILED = "SCHEDULED", "FINISHED", "KILLED", "FAILED"
# Of ``pipeline.publication.approvals``; in every other state a launch goes on or waits for somebody.
_ENDED = {"published": DONE, "held": AGAINST, "rejected": AGAINST, "rolled back": AGAINST}
# In the order in which people read them; the metrics, then the tags.
METRICS: Mapping[str, str] = {
    "rounds": "rounds of training",
    "MinS": "fewest rounds between two participations of one device, as observed",
    "MaxP": "most rounds that one device joined, as observed",
    "report_goal": "devices that a round adds up, its fixed denominator",
    "rho": "zCDP of one device, all that the launch released together",
    "epsilon": "the report's one number: rho as epsilon at the launch's delta, and local discovery where it counts",
    "top1_recall": "how often the next word was suggested first, on held-out devices",
    "top3_recall": "how often it was among the three suggestions",
    "top1_gain": "top-1 recall, less that of the model that training began with",
    "PRate": "suggestions that simulated typists took",
    "WMR": "words that they changed while or after typing them",
}
TAGS: Mapping[str, str] = {
    "decision": "of the gates: launch or hold",
    "tacit.state": "where it stands: unfinished, failed, held, waiting, approved, rejected, published, rolled back",
    "approver": "who approved its report",
}
# Those with the two ends of an interval, as name_low and name_high.
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
# Curves to hold launches against each other by; those of other stages are with the stage's run.
CURVES: Mapping[str, Sequence[str]] = {
    "pretrain": ("validation_loss",),
    "fine_tune": ("validation_loss", "validation_recall", "validation_top1"),
}
# Of the launch file: what launches are told apart by. All of it is in launch.json beside.
_PARAMETERS = (
    "name",
    "seed",
    "private_text.name",
    "private_text.source",
    "public_text.source",
    "public_text.max_tokens",
    "vocabulary.",
    "model.",
    "discovery.kind",
    "discovery.epsilon0",
    "mechanism.",
    "counts.",
    "evaluation.",
    "local_training.",
    "server.",
)


def columns(record: StageRecord) -> dict[str, float | str]:
    """Columns that a finished stage adds to its launch's row; strings are tags."""
    result: Mapping[str, Any] = record.result
    row: dict[str, float | str] = dict(result.get("headline", {}))
    if record.stage == "fine_tune":
        row |= {ours: float(result[name]) for name, ours in _OF_TRAINING.items() if result.get(name) is not None}
    if record.stage == "ab_test":
        row |= dict(_compared(result))
    return row


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
    """Name, step and value of the points that a stage adds to its launch's run."""
    for point in record.result.get("curve", ()):
        for name in CURVES.get(record.stage, ()):
            if (value := point.get(name)) is not None and "step" in point:
                yield f"{record.stage}_curve/{name}", int(point["step"]), float(value)


def parameters(flat: Mapping[str, str]) -> dict[str, str]:
    """The flat parameters of a launch file that its run shows."""
    chosen = {name: value for name, value in flat.items() if name.startswith(_PARAMETERS)}
    return {name: value for name, value in chosen.items() if value != "None"}


def experiment_name(locale: str) -> str:
    """The name of a locale's experiment."""
    return f"keyboard/{locale}"


def experiment_tags(experiment_id: str, locale: str) -> dict[str, str]:
    """Tags of an experiment that MLflow's pages read: its note, its kind, and a shared view with columns chosen."""
    return {
        "mlflow.note.content": experiment_note(experiment_id, locale),
        "mlflow.experimentKind": "custom_model_development",
        f"mlflow.sharedViewState.{VIEW}": json.dumps(_view(), sort_keys=True),
    }


def experiment_note(experiment_id: str, locale: str) -> str:
    """The experiment's description, as Markdown."""
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in {**METRICS, **TAGS}.items())
    ends = ", ".join(f"`{name}`" for name in WITH_INTERVAL)
    return (
        f"**[Launches of {locale}, with columns chosen](#/experiments/{experiment_id}/runs?viewStateShareKey={VIEW})** "
        "(those of table 1 of Xu et al. 2023): a run each, and below it a run for each stage, with its curves and "
        "files.\n\n"
        f"| column | what it is |\n|---|---|\n{rows}\n\n"
        f"{ends} have the ends of their interval beside them, as `_low` and `_high`. A tick is a published launch; a "
        "cross is one that is held, was rejected or rolled back, or failed: `tacit.state` says which; a clock waits "
        "for its next stage or its reviewers. Everything else is in artifacts: `launch.json`, and `result.json` of "
        "each stage. MLflow is a display: `tacit verify LAUNCH` holds it against the launch and the ledger.\n"
    )


def _view() -> dict[str, object]:
    chosen = [f"metrics.`{name}`" for name in METRICS]
    return {
        "searchFilter": 'tags.`tacit.launch` LIKE "%"',
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [*(f"tags.`{name}`" for name in TAGS), *chosen],
        "viewMaximized": False,
    }


def status_of_state(state: str) -> str:
    """The status of a launch in a state."""
    return _ENDED.get(state, WAITING)


def status_after(record: StageRecord, decision: str | None, before: str) -> str:
    """The status of a launch when one of its stages has ended.

    Args:
      decision: of its gates, as far as it is known.
      before: its status until then. A stage that is made again, or that Airflow runs beside those of the launch, leaves
        a launch that is over as it was: the stages behind it say what became of it.
    """
    if record.stage == "publish":
        return DONE if record.result.get("published") else AGAINST
    if record.stage == "report":
        return AGAINST if decision == "hold" else WAITING
    return before if before in (DONE, AGAINST) else WAITING


def interrupted_stage(launch: Path) -> str | None:
    """A stage of a launch that was begun and ended by nobody; None if there is none.

    The lock itself is asked, as the stage may run in another container or on another host that shares the folder. It is
    asked for a moment and shared, so only who starts that very stage at that moment is told to try again.

    Args:
      launch: its folder.
    """
    for lock in sorted(launch.glob("private/*/.lock")):
        stage = lock.parent.name
        if not (launch / "public" / stage / RESULT).is_file() and not _held(lock):
            return stage
    return None


def _held(lock: Path) -> bool:
    """Return whether a process holds a lock, or nobody here may ask."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
