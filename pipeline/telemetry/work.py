"""Current launch, stage and attempt of this process, for its log lines, spans and metrics."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Work:
    """Current work of the process; empty outside a stage.

    Attributes:
      attempt: attempt number of the stage's task in Airflow; 1 elsewhere.
      locale: of the launch.
      features: of the launch, joined by '+'.
    """

    launch_id: str = ""
    stage: str = ""
    attempt: int = 1
    locale: str = ""
    features: str = ""


# Global to the process, not to a thread or context: it runs one stage at a time, and its pools log too.
_now = Work()


def now() -> Work:
    """Return the current work."""
    return _now


def attempt(number: int) -> None:
    """Set the attempt number of this process."""
    _set(replace(_now, attempt=number))


@contextmanager
def at(launch_id: str, stage: str, locale: str, features: tuple[str, ...]) -> Iterator[Work]:
    """Set the current launch and stage for the duration of the block."""
    before = _now
    _set(Work(launch_id, stage, before.attempt, locale, "+".join(features)))
    try:
        yield _now
    finally:
        _set(before)


def _set(work: Work) -> None:
    global _now
    _now = work
