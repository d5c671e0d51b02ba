"""``tacit ledger``: what every launch spent."""

from typing import Annotated

import typer

from pipeline import settings
from pipeline.cli_support import AsJson, answer, command, ledger_anchors
from pipeline.errors import PERMANENT
from pipeline.ledger import PrivacyLedger

app = typer.Typer(no_args_is_help=True, help="What every launch spent. Example: tacit ledger show")


@app.command("show")
@command
def ledger_show(
    population: Annotated[str | None, typer.Option(help="only this population")] = None, as_json: AsJson = False
) -> None:
    """List reservations and commits, and what each population has spent.

    Example: tacit ledger show --population chitchat-2018
    """
    ledger = PrivacyLedger(settings.load().ledger_url)
    entries = ledger.entries(population)
    totals = {name: ledger.total(name) for name in sorted({entry.population for entry in entries})}
    lines = [
        f"{entry.seq:>4} {entry.kind:<8} {entry.population:<20} {entry.launch_id}/{entry.stage}: "
        + (f"rho {entry.rho:.6g}" if entry.unit == "device" else f"epsilon {entry.epsilon:.6g} per {entry.unit}")
        for entry in entries
    ]
    lines += [f"spent on {name}: device-level rho {total:.6g}" for name, total in totals.items()]
    content = {"entries": [entry.model_dump() for entry in entries], "totals": totals}
    answer(content, as_json, text="\n".join(lines) or "the ledger is empty")


@app.command("verify")
@command
def ledger_verify(as_json: AsJson = False) -> None:
    """Check the hash chain, its triggers, and that it holds what the launches here recorded.

    Example: tacit ledger verify
    """
    here = settings.load()
    ledger = PrivacyLedger(here.ledger_url)
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
    answer(PrivacyLedger(settings.load().ledger_url).export(), as_json=True)
