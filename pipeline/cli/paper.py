"""``tacit account --paper``: recompute the papers' numbers of privacy and noise."""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from pipeline.cli.support import answer, table_text
from pipeline.ground.errors import PERMANENT

if TYPE_CHECKING:
    from federated.accounting.published import Published, Row

_log = logging.getLogger(__name__)

_MARKS = {True: "yes", False: "NO", None: "-"}


def paper(slow: bool, as_json: bool) -> None:
    """Compute and print the numbers, and exit with 65 if one differs for no known reason."""
    from federated.accounting.published import compare

    outcome = compare(slow, _followed)
    answer(_content(outcome), as_json, _text(outcome))
    if not outcome.ok:
        raise typer.Exit(PERMANENT)


def _followed(rows: Sequence["Row"]) -> Iterator["Row"]:
    """Yield the rows under a progress bar or, without a terminal, with a log line for each table."""
    from rich.console import Console
    from rich.progress import track

    console, table = Console(stderr=True), None
    for row in track(rows, "published numbers", console=console, transient=True, disable=not console.is_terminal):
        if not console.is_terminal and (row.source, row.table) != table:
            _log.info("account: %s, table %s", row.source, row.table)
        table = row.source, row.table
        yield row


def _content(outcome: "Published") -> dict:
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
            "inputs": {**checked.row.inputs, **({"preset": checked.row.preset} if checked.row.preset else {})},
            "note": checked.row.note,
            "departs": checked.row.departs,
        }
        for checked in outcome.done
    ]
    return {"ok": outcome.ok, "rows": rows, "skipped": [row.name for row in outcome.skipped]}


def _text(outcome: "Published") -> str:
    from rich.table import Table

    table = Table(title="Published numbers, recomputed from their inputs", title_justify="left")
    for name in ("source", "table", "row", "quantity"):
        table.add_column(name, overflow="fold")
    for name in ("published", "ours"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("match", no_wrap=True)
    for checked in outcome.done:
        row, ours = checked.row, "-" if checked.ours is None else f"{checked.ours:.6g}"
        style = {True: None, False: "bold red", None: "dim"}[checked.match]
        printed = row.printed if len(row.printed) <= 10 else f"{row.published:.6g}"
        table.add_row(row.source, row.table, row.row, row.quantity, printed, ours, _MARKS[checked.match], style=style)
    return "\n".join([table_text(table), *_endings(outcome)])


def _endings(outcome: "Published") -> list[str]:
    computed = [checked for checked in outcome.done if checked.match is not None]
    wrong = [checked for checked in computed if not checked.match]
    unknown = [checked.row for checked in outcome.done if checked.match is None]
    lines = [f"{len(computed) - len(wrong)} of {len(computed)} numbers agree, to half a unit of the last printed digit"]
    lines += [
        f"differs: {checked.row.name}: {checked.row.printed}, ours {checked.ours:.6g}: "
        f"{checked.row.departs or 'no known reason'}"
        for checked in wrong
    ]
    lines += dict.fromkeys(f"not computed: {row.row}: {row.departs}" for row in unknown)
    if outcome.skipped:
        names = ", ".join(dict.fromkeys(row.row for row in outcome.skipped))
        lines.append(f"left out, as it takes minutes: {names}; add --slow")
    return lines
