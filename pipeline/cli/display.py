"""Terminal output of a launch: progress of long work, a line per stage (a table with ``-v``), and a final summary."""

import io
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli.look import budget_lines, gate_lines
from pipeline.cli.support import duration
from pipeline.ground import settings
from pretrain.progress import Point
from reports.losses import strength

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from pipeline.launch.config import LaunchConfig
    from pipeline.run.runner import StageOutcome
    from pipeline.stages.launch import Ending

# Seconds between two progress lines of one piece of work, with and without details.
DETAILED, TERSE = 10.0, 60.0

# Bookkeeping fields of a result, which the table leaves out.
_HIDDEN = frozenset({"headline", "datasets", "curve", "spend"})
_LONGEST_TEXT = 72


def stage_table(config: "LaunchConfig", run: Path) -> Callable[["StageOutcome"], None]:
    """Return a function that prints each stage of a launch as it ends: a line, or with details a table.

    Args:
      run: the launch's folder.
    """
    from pipeline.run.stage import of_launch
    from pipeline.stages.graph import STAGES

    console, names = standard_error(), of_launch(config, STAGES)
    line = {name: STAGES[name].line for name in names}

    def show(outcome: "StageOutcome") -> None:
        number = _number(outcome, names, run)
        if logging.getLogger().isEnabledFor(logging.INFO):
            console.print(details(outcome, number))
        else:
            console.print(in_a_line(outcome, number, line.get(outcome.record.stage, "")), markup=False, soft_wrap=True)

    return show


def _number(outcome: "StageOutcome", stages: Sequence[str], run: Path) -> str:
    """Number of finished stages, which may end in another order, as ``ab_test`` before ``audit`` under Airflow."""
    from pipeline.run.run_dir import RESULT

    if outcome.skipped or outcome.record.stage not in stages:
        return ""
    return f"{sum((run / 'public' / name / RESULT).is_file() for name in stages)}/{len(stages)}"


def _done(outcome: "StageOutcome") -> str:
    if outcome.skipped:
        return "already done"
    seconds = outcome.record.seconds
    lasted = f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
    return f"reused from {outcome.record.reused_from}" if outcome.record.reused_from else lasted


def in_a_line(outcome: "StageOutcome", number: str, said: str) -> str:
    """A finished stage in a line: its number among all, its name, its duration, and its result in a few words.

    Args:
      said: format string over the fields of the result.
    """
    try:
        words = said.format_map(outcome.result)
    except (KeyError, IndexError, TypeError, ValueError):  # a field that this launch leaves empty
        words = ""
    return f"✓ {number:>5}  {outcome.record.stage:<16}  {_done(outcome):>12}  {words}".rstrip()


def details(outcome: "StageOutcome", number: str) -> "Table":
    """A finished stage as a table of the top-level values of its result."""
    from rich.table import Table

    record, done = outcome.record, _done(outcome)
    table = Table(
        title=f"{number} {record.stage} ({done})".strip(), title_justify="left", show_header=False, min_width=60
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows(record.result):
        table.add_row(*row)
    for name, value in (record.result.get("spend") or {}).items():
        if name in ("unit", "adjacency"):
            table.add_row(f"spend: {name}", str(value))
    return table


def rows(result: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield name and text of the top-level values of a stage's result that fit."""
    for name, value in result.items():
        text = None if name in _HIDDEN else shown(value)
        if text is not None:
            yield name.replace("_", " "), text


def shown(value: object) -> str | None:
    """Format a value as one table cell; None if it does not fit."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    if isinstance(value, str):
        short = f"{value[:12]}..." if len(value) == 64 and " " not in value else value
        return short if len(short) <= _LONGEST_TEXT else short[: _LONGEST_TEXT - 3] + "..."
    if isinstance(value, dict) and value and all(isinstance(item, int | float) for item in value.values()):
        text = ", ".join(f"{key}: {shown(item)}" for key, item in value.items())
        return text if len(text) <= _LONGEST_TEXT else None
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        return "\n".join(value) if len(value) <= 6 else f"{len(value)} items"
    return None


def ending(end: "Ending") -> str:
    """Final text of a launch: its outcome, and its files."""
    from pipeline.stages.launch import HeldEnding

    why = [f"  - {reason}" for reason in end.reasons]
    if isinstance(end, HeldEnding):
        why = [*gate_lines(end.failed_gates), *budget_lines(end.spent, end.left), *(f"next:    {s}" for s in end.next)]
    weak = ", weak: on its own it promises little" if strength(end.epsilon) == "weak" else ""
    lines = [
        f"launch {end.launch_id}: {end.state if end.state != 'published' else end.decision}",
        *why,
        f"guarantee: of one device {end.loss}{weak}",
        f"ledger:    {end.ledger}",
        f"report:    {end.report}",
    ]
    if end.state == "candidate":
        lines.append(f"users:     {end.detail}")
    if end.bundle:
        lines.append(f'model:     {end.bundle}  (try: tacit predict {end.launch_id} "see you")')
    elif end.state == "waiting":
        lines.append(f"model:     waits {end.detail}: tacit review {end.launch_id} --answer approve")
    elif end.state != "held":
        lines.append(f"model:     {end.state} {end.detail}")
    return "\n".join([*lines, f"MLflow:    mlflow ui --backend-store-uri {end.tracking_uri}"])


def standard_error() -> "Console":
    """Console on standard error for tables; silent if log lines are JSON."""
    from rich.console import Console

    return Console(stderr=True, quiet=settings.log_form() == "json")


class ProgressFilter(logging.Filter):
    """Log filter that passes a progress line now and then and at the end, or draws a bar on a terminal instead.

    Args:
      every: seconds between two lines; infinite for no progress at all.
      console: makes the console that bars are drawn on, when there is progress.
    """

    def __init__(self, every: float, *, console: "Callable[[], Console]") -> None:
        super().__init__()
        self._every, self._made = every, console
        self._last: dict[str, float] = {}
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    @cached_property
    def _console(self) -> "Console":
        return self._made()

    def filter(self, record: logging.LogRecord) -> bool:
        if math.isinf(self._every) and record.levelno < logging.WARNING:
            return False
        point = getattr(record, "progress", None)
        if not isinstance(point, Point):
            return True
        if self._console.is_terminal and not self._console.quiet:
            self._draw(point)
            if self._every == TERSE:
                return False
        now, ends = time.monotonic(), point.share >= 1
        if not ends and now - self._last.get(point.what, -self._every) < self._every:
            return False
        self._last[point.what] = now
        if point.left is not None and not ends:
            record.msg, record.args = f"{record.getMessage()}, about {duration(point.left)} left", ()
        return True

    def _draw(self, point: Point) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        if self._bar is None or self._task is None:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=self._console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(point.what, total=1.0)
        self._bar.update(self._task, completed=point.share, description=point.what)
        if point.share >= 1:
            self._bar.stop()
            self._bar = self._task = None


def show_progress(handlers: Iterable[logging.Handler], shown: ProgressFilter) -> None:
    """Attach the progress filter to log handlers, which then write to the current standard error."""
    for handler in handlers:
        handler.addFilter(shown)
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(_StandardError())


class _StandardError(io.TextIOBase):
    """Stream that looks up ``sys.stderr`` at each write, as rich replaces it while it draws a bar."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()
