"""Current work of this process: launch, stage and attempt, for its log lines, spans and metrics."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Work:
    """Empty outside a stage.

    Attributes:
      attempt: of the task that the stage is, as Airflow counts; 1 elsewhere.
      locale: of the launch.
      features: of the launch, joined by '+'.
    """

    launch_id: str = ""
    stage: str = ""
    attempt: int = 1
    locale: str = ""
    features: str = ""


# Of the process and not of a thread or context: a process works on one stage at a time, and its pools log too.
_now = Work()


def now() -> Work:
    """Current work."""
    return _now


def attempt(number: int) -> None:
    """Say which attempt of its task this process is."""
    _set(replace(_now, attempt=number))


@contextmanager
def at(launch_id: str, stage: str, locale: str, features: tuple[str, ...]) -> Iterator[Work]:
    """Work on a stage of a launch, for as long as the block lasts."""
    before = _now
    _set(Work(launch_id, stage, before.attempt, locale, "+".join(features)))
    try:
        yield _now
    finally:
        _set(before)


def _set(work: Work) -> None:
    global _now
    _now = work
