"""Terminal output of a launch: progress of long work, one short table per stage, and a final summary."""

import io
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli.look import budget_lines, gate_lines
from pipeline.cli.support import duration
from pipeline.ground import settings
from pretrain.progress import Point
from reports.losses import up

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from pipeline.launch.config import LaunchConfig
    from pipeline.run.runner import StageOutcome
    from pipeline.stages.launch import Ending

SECONDS = 10.0  # between two progress lines of one piece of work

# Bookkeeping fields of a result, which the table leaves out.
_HIDDEN = frozenset({"headline", "datasets", "curve", "spend"})
_LONGEST_TEXT = 72


def stage_table(config: "LaunchConfig", run: Path) -> Callable[["StageOutcome"], None]:
    """Return a function that prints each stage of a launch as it ends.

    Args:
      run: the launch's folder.
    """
    from pipeline.run.stage import of_launch
    from pipeline.stages.graph import STAGES

    console, stages = standard_error(), of_launch(config, STAGES)
    return lambda outcome: show_stage(outcome, console, stages, run)


def show_stage(outcome: "StageOutcome", console: "Console", stages: Sequence[str], run: Path) -> None:
    """Print the number of finished stages, and a stage's name, duration and top-level values.

    Args:
      stages: stages of its launch; they may end in another order, as ``ab_test`` before ``audit`` under Airflow.
      run: the launch's folder.
    """
    from rich.table import Table

    from pipeline.run.run_dir import RESULT

    record = outcome.record
    ended = [name for name in stages if (run / "public" / name / RESULT).is_file()]
    number = f"{len(ended)}/{len(stages)}" if record.stage in stages and not outcome.skipped else ""
    done = "already done" if outcome.skipped else f"{record.seconds:.1f} s"
    if record.reused_from and not outcome.skipped:
        done = f"reused from {record.reused_from}, {done}"
    table = Table(
        title=f"{number} {record.stage} ({done})".strip(), title_justify="left", show_header=False, min_width=60
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in record.result.items():
        text = None if name in _HIDDEN else shown(value)
        if text is not None:
            table.add_row(name.replace("_", " "), text)
    for name, value in (record.result.get("spend") or {}).items():
        if name in ("unit", "adjacency"):
            table.add_row(f"spend: {name}", str(value))
    console.print(table)


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
    lines = [
        f"launch {end.launch_id}: {end.state if end.state != 'published' else end.decision}",
        *why,
        f"guarantee: device-level rho {up(end.rho, 4)}, epsilon {up(end.epsilon)} at delta {end.delta:g}",
        f"ledger:    {end.ledger}",
        f"report:    {end.report}",
    ]
    if end.state == "in experiment":
        lines.append(f"users:     {end.detail} ('tacit experiment status {end.launch_id}')")
    if end.bundle:
        lines.append(f'model:     {end.bundle}  (try: tacit predict {end.bundle} "see you")')
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
    """Log filter that passes a progress line every ten seconds and at the end, and draws a bar on a terminal."""

    def __init__(self, *, quiet: bool = False, console: "Console") -> None:
        super().__init__()
        self._quiet, self._console = quiet, console
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
