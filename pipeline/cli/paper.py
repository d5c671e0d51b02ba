"""``tacit account --paper``: every published number beside ours."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from pipeline.cli.support import answer, table_text
from pipeline.ground.errors import PERMANENT

if TYPE_CHECKING:
    from federated.accounting.published import Comparison, Row

_log = logging.getLogger(__name__)

_MARKS = {True: "yes", False: "NO", None: "-"}


@dataclass(frozen=True)
class _Outcome:
    """Rows in print order, those that were not computed among them."""

    done: "tuple[Comparison, ...]"
    skipped: "tuple[Row, ...]"

    @property
    def ok(self) -> bool:
        return all(checked.fine for checked in self.done)


def paper(slow: bool, as_json: bool) -> None:
    """Compute, print, and exit with 65 if a number that follows from its inputs came out otherwise."""
    outcome = _computed(slow)
    answer(_content(outcome), as_json, _text(outcome))
    if not outcome.ok:
        raise typer.Exit(PERMANENT)


def _computed(slow: bool) -> _Outcome:
    from federated.accounting.published import ROWS, check

    wanted = [row for row in ROWS if slow or not row.slow]
    console = Console(stderr=True)
    done: list[Comparison] = []
    for row in track(wanted, "published numbers", console=console, transient=True, disable=not console.is_terminal):
        if not console.is_terminal and (
            not done or (row.source, row.table) != (done[-1].row.source, done[-1].row.table)
        ):
            _log.info("account: %s, table %s", row.source, row.table)
        done.append(check(row))
    return _Outcome(tuple(done), tuple(row for row in ROWS if row not in wanted))


def _content(outcome: _Outcome) -> dict:
    rows = [
        {
            "source": checked.row.source,
            "table": checked.row.table,
            "row": checked.row.row,
            "quantity": checked.row.quantity,
            "published": checked.row.published,
            "printed": checked.row.printed,
            "ours": checked.ours,
            "match": checked.match,
            "follows": checked.row.follows,
            "inputs": {**checked.row.inputs, **({"preset": checked.row.preset} if checked.row.preset else {})},
            "note": checked.row.note,
        }
        for checked in outcome.done
    ]
    return {"ok": outcome.ok, "rows": rows, "skipped": [row.name for row in outcome.skipped]}


def _text(outcome: _Outcome) -> str:
    table = Table(title="Published numbers, computed again from their inputs", title_justify="left")
    for name in ("source", "table", "row", "quantity"):
        table.add_column(name, overflow="fold")
    for name in ("published", "ours"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("match", no_wrap=True)
    for checked in outcome.done:
        row, ours = checked.row, "-" if checked.ours is None else f"{checked.ours:.6g}"
        mark = _MARKS[checked.match] if row.follows else f"{_MARKS[checked.match]}*"
        style = None if checked.fine and row.follows else ("dim" if checked.fine else "bold red")
        printed = row.printed if len(row.printed) <= 10 else f"{row.published:.6g}"
        table.add_row(row.source, row.table, row.row, row.quantity, printed, ours, mark, style=style)
    return "\n".join([table_text(table), *_endings(outcome)])


def _endings(outcome: _Outcome) -> list[str]:
    following = [checked for checked in outcome.done if checked.row.follows]
    lines = [
        f"{sum(bool(row.match) for row in following)} of {len(following)} numbers that follow from their inputs match"
    ]
    notes = {f"* {checked.row.row}: {checked.row.note}": None for checked in outcome.done if not checked.row.follows}
    lines += ["Known not to follow from what was published:", *notes] if notes else []
    lines += [f"differs: {checked.row.name}: {checked.row.printed}, ours {checked.ours}" for checked in _wrong(outcome)]
    if outcome.skipped:
        names = ", ".join(dict.fromkeys(row.row for row in outcome.skipped))
        lines.append(f"left out, as it takes minutes: {names}; add --slow")
    return lines


def _wrong(outcome: _Outcome) -> "list[Comparison]":
    return [checked for checked in outcome.done if not checked.fine]
