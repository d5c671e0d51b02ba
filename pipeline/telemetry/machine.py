"""How busy the machine is while a stage works, for MLflow, under the names that MLflow gives such metrics."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipeline.run_dir import StageRecord
from pipeline.telemetry.allowed import two_digits

PREFIX = "system/"
NAMES = (
    "cpu_utilization_percentage",
    "system_memory_usage_megabytes",
    "system_memory_usage_percentage",
    "disk_usage_percentage",
)


# Of one stage: more would tell how long it took in more digits than two.
_MOST_SAMPLES = 50
Sample = tuple[float, ...]  # values in the order of NAMES
Point = tuple[str, float, int, int]  # name, value, milliseconds, step: MLflow's order

# Of the stage that this process is at work on; logged with it, as its run in MLflow is made when it is done.
_taken: list[Sample] = []
_disk = Path("/")


@dataclass(frozen=True)
class Span:
    """Begin and end of a stage in milliseconds, as its record tells: the hour, and its seconds in two digits.

    Guarantee: whatever MLflow is told of time follows from the record, whose seconds have two digits.
    """

    begin: int
    end: int

    @classmethod
    def of(cls, record: StageRecord) -> "Span":
        """From a stage's record."""
        begin = round(1000 * datetime.fromisoformat(record.started_at).timestamp())
        return cls(begin, begin + round(1000 * record.seconds))


def taken() -> tuple[Sample, ...]:
    """Samples of this stage so far, one of now among them; none where nobody asked for any."""
    if _taken:
        _taken.append(_sample(_disk))
    step = -(-len(_taken) // _MOST_SAMPLES) or 1
    return tuple(_taken[::step])


def points(span: Span) -> Iterator[Point]:
    """Samples of this stage, spread evenly over its time."""
    samples = taken()
    for step, sample in enumerate(samples):
        when = span.begin + (span.end - span.begin) * step // max(1, len(samples) - 1)
        for name, value in zip(NAMES, sample, strict=True):
            yield PREFIX + name, value, when, step


def stamped(of_stage: Iterable[tuple[str, int, float]], span: Span) -> Iterator[Point]:
    """A stage's own points (name, step, value), as of its end."""
    return ((name, value, span.end, step) for name, step, value in of_stage)


@contextmanager
def sampled(seconds: float | None, folder: Path) -> Iterator[None]:
    """Look at the machine every so many seconds while the block lasts; not at all with None.

    Args:
      folder: of the disk to look at.
    """
    global _disk
    if seconds is None:
        yield
        return
    over = threading.Event()
    _disk = folder
    _taken[:] = [_sample(folder)]

    def look() -> None:
        while not over.wait(seconds):
            _taken.append(_sample(folder))

    threading.Thread(target=look, name="machine", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        _taken.clear()


def _sample(folder: Path) -> Sample:
    import psutil

    memory = psutil.virtual_memory()
    values = (psutil.cpu_percent(), memory.used / 1e6, memory.percent, psutil.disk_usage(str(folder)).percent)
    return tuple(map(two_digits, values))
