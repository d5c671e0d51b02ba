"""Terminal output of a launch: one short table per stage, and a summary at the end."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.publication.approvals import Standing
from pipeline.run.run_dir import RESULT
from pipeline.run.runner import StageOutcome
from reports.losses import up

# A result's own bookkeeping, which the table leaves out.
_HIDDEN = frozenset({"headline", "datasets", "curve", "spend"})
_LONGEST_TEXT = 72


def show_stage(outcome: StageOutcome, console: Console, stages: Sequence[str], run: Path) -> None:
    """Print how many stages have ended, and this one's name, time and top-level values.

    Args:
      stages: that its launch runs; they may end in another order, as ``ab_test`` before ``audit`` under Airflow.
      run: the launch's folder.
    """
    record = outcome.record
    ended = [name for name in stages if (run / "public" / name / RESULT).is_file()]
    number = f"{len(ended)}/{len(stages)}" if record.stage in stages and not outcome.skipped else ""
    done = "done before, nothing redone" if outcome.skipped else f"{record.seconds:.1f} s"
    if record.reused_from and not outcome.skipped:
        done = f"taken over from {record.reused_from}, {done}"
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
    """A value as one cell of text; None for what does not fit one."""
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


def ending(content: Mapping[str, Any], now: Standing, held: Sequence[str] = ()) -> str:
    """Text at the end of a launch: its outcome, and where to look.

    Args:
      held: lines in the place of the reasons of one that is held.
    """
    lines = [
        f"launch {content['launch_id']}: {now.state if now.state != 'published' else content['decision']}",
        *(held or [f"  - {reason}" for reason in content["reasons"]]),
        f"guarantee: device-level rho {up(content['rho'], 4)}, "
        f"epsilon {up(content['epsilon'])} at delta {content['delta']:g}",
        f"ledger:    {content['ledger']}",
        f"report:    {content['report']}",
    ]
    if now.state == "in experiment":
        lines.append(f"users:     {now.detail} ('tacit experiment status {content['launch_id']}')")
    if content["bundle"]:
        lines.append(f'model:     {content["bundle"]}  (try: tacit predict {content["bundle"]} "see you")')
    elif now.state == "waiting":
        lines.append(f"model:     waits {now.detail}: tacit review {content['launch_id']} --answer approve")
    elif now.state != "held":
        lines.append(f"model:     {now.state} {now.detail}")
    return "\n".join([*lines, f"MLflow:    mlflow ui --backend-store-uri {content['tracking_uri']}"])
