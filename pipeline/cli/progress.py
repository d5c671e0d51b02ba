"""Progress display of commands: a bar on a terminal, and everywhere a line now and then."""

import io
import logging
import sys
import time
from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pipeline.cli.support import duration
from pretrain.progress import Point

SECONDS = 10.0  # between two lines about one piece of work


class Shown(logging.Filter):
    """Lets a line about some work pass every ten seconds and at its end; draws its bar where there is a terminal."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        super().__init__()
        self._quiet, self._console = quiet, console or Console(stderr=True)
        self._last: dict[str, float] = {}
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        point = getattr(record, "progress", None)
        if not isinstance(point, Point):
            return True
        if self._quiet:
            return False
        if self._console.is_terminal and not self._console.quiet:
            self._draw(point)
        now, ends = time.monotonic(), point.share >= 1
        if not ends and now - self._last.get(point.what, -SECONDS) < SECONDS:
            return False
        self._last[point.what] = now
        if point.left is not None and not ends:
            record.msg, record.args = f"{record.getMessage()}, about {duration(point.left)} left", ()
        return True

    def _draw(self, point: Point) -> None:
        if self._bar is None or self._task is None:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(point.what, total=1.0)
        self._bar.update(self._task, completed=point.share, description=point.what)
        if point.share >= 1:
            self._bar.stop()
            self._bar = self._task = None


def show(handlers: Iterable[logging.Handler], shown: Shown) -> None:
    """Let handlers of log lines show progress; lines go to what standard error is then, so that a bar stays whole."""
    for handler in handlers:
        handler.addFilter(shown)
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(_StandardError())


class _StandardError(io.TextIOBase):
    """Standard error as it is when something is written: rich puts itself in its place while it draws a bar."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()
