"""Columns of MLflow's table of launches: few numbers, by their names in table 1 of Xu et al. 2023.

Everything here follows from results, which hold nothing but what is public or released.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.run.run_dir import StageRecord

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
