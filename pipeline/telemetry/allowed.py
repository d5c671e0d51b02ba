"""Allowlist of spans and metrics: every name, and its permitted values. Nothing else leaves the process.

A value is a number from a stage's public result or its configuration, a number about the machine, or a word of a closed
set. Free text, such as an error's message, may quote private text, so the list has none.
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
    """Kind, unit and description of an OpenTelemetry metric."""

    kind: Literal["gauge", "histogram"]
    unit: str
    about: str


METRICS = {
    "tacit.stage.duration": Metric("gauge", "s", "duration of a stage, to two digits"),
    "tacit.stage.exit_code": Metric(
        "gauge", "", "exit code of a stage: 0 done, 3 held, 65 permanent, 75 temporary, 1 bug"
    ),
    "tacit.stage.reused": Metric("gauge", "", "1 if its outputs are reused from another launch"),
    "tacit.rounds.done": Metric("gauge", "", "rounds of training done"),
    "tacit.rounds.total": Metric("gauge", "", "rounds of training in total"),
    "tacit.round.duration": Metric("histogram", "s", "duration of a round, to two digits"),
    "tacit.devices.goal": Metric("gauge", "", "report goal: number of devices in a round's mean"),
    "tacit.noise.multiplier": Metric("gauge", "", "noise per clip norm, before the mechanism's sensitivity"),
    "tacit.noise.clip_norm": Metric("gauge", "", "clip norm that training begins with"),
    "tacit.loss.epsilon": Metric("gauge", "", "epsilon of one device to all releases, at the launch's delta"),
    "tacit.loss.rho": Metric("gauge", "", "rho of one device; only where it covers all releases"),
    "tacit.budget.left": Metric("gauge", "", "share of a population's budget left after a spend, of its scarcest part"),
    "tacit.launch.held": Metric("gauge", "", "1 if the decision is to hold, 0 if it is to launch"),
    "tacit.memory.peak": Metric("gauge", "By", "peak memory of the stage's process, to two digits"),
    "tacit.memory.gpu_peak": Metric("gauge", "By", "peak GPU memory of the stage's process, to two digits"),
}
# Attributes of a span; a metric's name has the same meaning there.
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
    """Return whether a value is a finite number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_FEATURES = "|".join(FEATURES)
ATTRIBUTES: Mapping[str, Callable[[Value], bool]] = {
    "launch_id": _matches(r"[A-Za-z0-9][A-Za-z0-9._-]{,127}"),
    "stage": _matches(r"[a-z]+(?:_[a-z]+){,3}"),
    "attempt": lambda value: is_number(value) and 0 < int(value) < 1000,
    "locale": _matches(LOCALE),
    "features": _matches(rf"(?:{_FEATURES})(?:\+(?:{_FEATURES}))*"),
    "population": _matches(r"[A-Za-z0-9_]{,40}:?[A-Za-z0-9][A-Za-z0-9._-]{,127}"),
    "decision": _one_of("launch", "hold"),
    "error_type": _one_of(*sorted(ERRORS), OTHER_ERROR),
    **dict.fromkeys(METRICS, is_number),
}


def only(attributes: Mapping[str, Value]) -> dict[str, Value]:
    """Filter attributes by the allowlist.

    Guarantee: every attribute that is not on the list, or has a value that its name does not allow, is dropped; times
    and sizes are rounded to ``two_digits``.
    """
    return {
        name: two_digits(value) if name in METRICS and METRICS[name].unit and isinstance(value, int | float) else value
        for name, value in attributes.items()
        if name in ATTRIBUTES and ATTRIBUTES[name](value)
    }


def two_digits(amount: float) -> float:
    """Round a time or a size to two digits, as more digits would reveal the amount of text."""
    return float(f"{amount:.2g}")


def this_hour() -> str:
    """Current time rounded to the hour, as two stages' exact times would reveal a duration in more than two digits."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0).isoformat(timespec="seconds")


def error_type(error: BaseException) -> str:
    """Class of an error, if it is an expected one; never its message."""
    name = type(error).__name__
    return name if name in ERRORS else OTHER_ERROR
