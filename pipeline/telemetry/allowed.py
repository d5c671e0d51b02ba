"""Allowlist of spans and metrics: every name, and its permitted values. Nothing else leaves the process.

A value is a number that a stage's result, which is public, or its configuration states, a number of the machine, or a
word of a closed set. Free text, such as an error's message, may quote what a person typed, so none is on the list.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from evaluation.features import FEATURES
from pipeline.ground import errors
from pretrain.config import LOCALE

Value = str | int | float | bool


@dataclass(frozen=True)
class Metric:
    """A metric by the name under which OpenTelemetry knows it."""

    kind: Literal["gauge", "histogram"]
    unit: str
    about: str


METRICS = {
    "tacit.stage.duration": Metric("gauge", "s", "how long a stage worked, to two digits"),
    "tacit.stage.exit_code": Metric("gauge", "", "how a stage ended: 0 done, 65 permanent, 75 temporary, 1 a bug"),
    "tacit.stage.reused": Metric("gauge", "", "1 where another launch had made it"),
    "tacit.rounds.done": Metric("gauge", "", "rounds of training done"),
    "tacit.rounds.total": Metric("gauge", "", "rounds of training that there will be"),
    "tacit.round.duration": Metric("histogram", "s", "how long a round took, to two digits"),
    "tacit.devices.goal": Metric("gauge", "", "report goal: devices that the mean of a round is over"),
    "tacit.noise.multiplier": Metric("gauge", "", "noise per clip norm, before the mechanism's sensitivity"),
    "tacit.noise.clip_norm": Metric("gauge", "", "clip norm that training begins with"),
    "tacit.spend.rho": Metric("gauge", "", "rho that a stage spent (unit device)"),
    "tacit.spend.epsilon": Metric("gauge", "", "epsilon that a stage spent, of its unit; units never add up"),
    "tacit.launch.held": Metric("gauge", "", "1 where the decision is to hold, 0 where it is to launch"),
    "tacit.memory.peak": Metric("gauge", "By", "most memory that the stage's process held, to two digits"),
    "tacit.memory.gpu_peak": Metric("gauge", "By", "most memory that it held on a GPU, to two digits"),
}
# Of a span: a metric's name says the same there.
SPAN = "tacit.stage"
ERRORS = frozenset(
    {name for name, value in vars(errors).items() if isinstance(value, type)}
    | {"ValueError", "ValidationError", "ArithmeticError", "FloatingPointError", "OverflowError", "ZeroDivisionError"}
    | {"OSError", "ConnectionError", "TimeoutError", "FileNotFoundError", "PermissionError", "MemoryError"}
)
OTHER_ERROR = "other"


def _matches(pattern: str) -> Callable[[Value], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _one_of(*words: str) -> Callable[[Value], bool]:
    return lambda value: value in words


def is_number(value: object) -> bool:
    """Return whether a value is a finite number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_FEATURES = "|".join(FEATURES)
ATTRIBUTES: Mapping[str, Callable[[Value], bool]] = {
    "launch_id": _matches(r"[A-Za-z0-9][A-Za-z0-9._-]{,127}"),
    "stage": _matches(r"[a-z]+(?:_[a-z]+){,3}"),
    "attempt": lambda value: is_number(value) and 0 < int(value) < 1000,
    "locale": _matches(LOCALE),
    "features": _matches(rf"(?:{_FEATURES})(?:\+(?:{_FEATURES}))*"),
    "unit": _one_of("device", "item"),
    "decision": _one_of("launch", "hold"),
    "error_type": _one_of(*sorted(ERRORS), OTHER_ERROR),
    **dict.fromkeys(METRICS, is_number),
}


def only(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """The attributes that may be said.

    Guarantee: what is not on the list, or has a value that its name does not allow, is dropped, whoever asks; times
    and sizes have ``two_digits``.
    """
    return {
        name: two_digits(value) if name in METRICS and METRICS[name].unit and isinstance(value, int | float) else value
        for name, value in attributes.items()
        if name in ATTRIBUTES and ATTRIBUTES[name](value)
    }


def two_digits(amount: float) -> float:
    """A time or a size as it may be told: how much text there is shows in more digits than two."""
    return float(f"{amount:.2g}")


def this_hour() -> str:
    """The time of day as it may be told: the next stage's would tell how long this one took in more than two digits."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0).isoformat(timespec="seconds")


def error_type(error: BaseException) -> str:
    """The class of an error, where it is one that we know; never its message."""
    name = type(error).__name__
    return name if name in ERRORS else OTHER_ERROR


def prometheus_name(metric: str) -> str:
    """Prometheus's name of a metric that it takes by OTLP."""
    suffix = {"s": "_seconds", "By": "_bytes", "": ""}[METRICS[metric].unit]
    return metric.replace(".", "_") + suffix
