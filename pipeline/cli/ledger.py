"""``tacit ledger``: what every launch spent."""

from typing import TYPE_CHECKING, Annotated

import typer

from pipeline import settings
from pipeline.cli.support import AsJson, answer, command, ledger_anchors
from pipeline.errors import PERMANENT

if TYPE_CHECKING:
    from pipeline.ledger.ledger import PrivacyLedger

app = typer.Typer(no_args_is_help=True, help="What every launch spent. Example: tacit ledger show")


@app.command("show")
@command
def ledger_show(
    population: Annotated[str | None, typer.Option(help="only this population")] = None, as_json: AsJson = False
) -> None:
    """List reservations and commits, and what each population has spent.

    Example: tacit ledger show --population chitchat-2018
    """
    ledger = _ledger()
    entries = ledger.entries(population)
    names = sorted({entry.population for entry in entries})
    totals = {name: ledger.total(name) for name in names}
    discovery = {name: ledger.discovery_total(name) for name in names}
    lines = [
        f"{entry.seq:>4} {entry.kind:<8} {entry.population:<20} {entry.launch_id}/{entry.stage}: "
        + (f"rho {entry.rho:.6g}" if entry.unit == "device" else f"epsilon {entry.epsilon:.6g} per {entry.unit}")
        for entry in entries
    ]
    for name in names:
        # Two units, so two sentences: no sum of the two means anything.
        lines.append(f"spent on {name}: device-level rho {totals[name]:.6g}")
        lines.append(f"spent on {name}: epsilon {discovery[name]:.6g} per typed word, in discovery")
    content = {"entries": [entry.model_dump() for entry in entries], "totals": totals, "discovery_totals": discovery}
    answer(content, as_json, text="\n".join(lines) or "the ledger is empty")


@app.command("verify")
@command
def ledger_verify(as_json: AsJson = False) -> None:
    """Check the hash chain, its triggers, and that it holds what the launches here recorded.

    Example: tacit ledger verify
    """
    here = settings.load()
    ledger = _ledger()
    problems = ledger.verify(ledger_anchors(here.runs_dir))
    text = "\n".join(problems) or f"the ledger is whole: {len(ledger.entries())} entries"
    answer({"ok": not problems, "problems": problems}, as_json, text=text)
    if problems:
        raise typer.Exit(PERMANENT)


@app.command("export")
@command
def ledger_export(as_json: AsJson = False) -> None:
    """The whole ledger as one JSON object, with or without --json.

    Example: tacit ledger export > ledger.json
    """
    answer(_ledger().export(), as_json=True)


def _ledger() -> "PrivacyLedger":
    from pipeline.ledger.ledger import PrivacyLedger

    return PrivacyLedger(settings.load().ledger_url)
