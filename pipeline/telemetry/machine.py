"""How busy the machine is while a stage works, for MLflow, under the names that MLflow gives such metrics."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "system/"
NAMES = (
    "cpu_utilization_percentage",
    "system_memory_usage_megabytes",
    "system_memory_usage_percentage",
    "disk_usage_percentage",
)


@dataclass(frozen=True)
class Sample:
    """``values`` in the order of ``NAMES``."""

    milliseconds: int
    values: tuple[float, ...]


# Of the stage that this process is at work on; logged with it, as its run in MLflow is made when it is done.
_taken: list[Sample] = []
_disk = Path("/")


def taken() -> tuple[Sample, ...]:
    """Samples of this stage so far, one of now among them; none where nobody asked for any."""
    if _taken:
        _taken.append(_sample(_disk))
    return tuple(_taken)


Point = tuple[str, float, int, int]  # name, value, milliseconds, step: MLflow's order


def points() -> Iterator[Point]:
    """What was sampled of this stage, sample by sample."""
    for step, sample in enumerate(taken()):
        for name, value in zip(NAMES, sample.values, strict=True):
            yield PREFIX + name, value, sample.milliseconds, step


def stamped(of_stage: Iterable[tuple[str, int, float]]) -> Iterator[Point]:
    """A stage's own points (name, step, value), as of now."""
    now = int(time.time() * 1000)
    return ((name, value, now, step) for name, step, value in of_stage)


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
    return Sample(int(time.time() * 1000), tuple(round(value, 1) for value in values))
