"""``tacit ledger``: what every launch spent."""

import math
import re
from collections.abc import Collection
from dataclasses import asdict
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from federated.config.population import NAME
from pipeline import settings
from pipeline.cli.launches.named import LaunchName, to_run
from pipeline.cli.support import AsJson, answer, command, foreseen, taken_over
from pipeline.config import LaunchConfig, launch_id
from pipeline.errors import PERMANENT, LedgerMissing, PopulationUnknown
from pipeline.ledger.budget import Budget, Population
from pipeline.ledger.entries import NO_UNIT, Entry
from pretrain.reading.paths import shown

if TYPE_CHECKING:
    from pipeline.ledger.foresee import Forecast
    from pipeline.ledger.ledger import PrivacyLedger

# A schedule has as many dates in as many years; nobody fills more in at once.
_MOST_DAYS = 1830

app = typer.Typer(no_args_is_help=True, help="What every launch spent. Example: tacit ledger show")

MaxRho = Annotated[float, typer.Option(help="device-level rho of all launches together")]
MaxEpsilon = Annotated[
    float | None, typer.Option("--max-discovery-epsilon", help="epsilon of one typed word, of all launches together")
]
WindowDays = Annotated[
    int | None, typer.Option(help="both hold in any so many days, and text is kept no longer; default: for ever")
]
LifetimeRho = Annotated[float | None, typer.Option(help="beside a window: device-level rho of all launches for ever")]


@app.command("init")
@command
def ledger_init(as_json: AsJson = False) -> None:
    """Make this installation's ledger, once; nothing else ever makes one.

    Example: tacit ledger init
    """
    from pipeline.ledger.database import address, missing
    from pipeline.ledger.ledger import PrivacyLedger
    from pipeline.ledger.receipts import Receipts

    here = settings.load()
    try:
        ledger = PrivacyLedger.of(here)
    except LedgerMissing:
        if recorded := Receipts(here.runs_dir).read():
            raise missing(address(here.ledger_url), len(recorded)) from None
        ledger, made = PrivacyLedger.create(here.ledger_url), True
    else:
        made = False
    text = f"ledger: {ledger.address} " + ("made" if made else f"is there, with {len(ledger.entries())} entries")
    answer({"ledger": ledger.address, "made": made}, as_json, text=text)


@app.command("register")
@command
def ledger_register(
    name: Annotated[str, typer.Argument(help="private_text.name of its launch files")],
    max_rho: MaxRho,
    max_discovery_epsilon: MaxEpsilon = None,
    window_days: WindowDays = None,
    lifetime_rho: LifetimeRho = None,
    raised_by: Annotated[
        list[str] | None, typer.Option(help="account that may change the budget (repeatable); default: yours")
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="its text is public or made up, nobody's: noise may be seeded")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give a population its budget, once, before its first launch.

    Example: tacit ledger register en-US --max-rho 1 --max-discovery-epsilon 80
    """
    if not re.fullmatch(NAME, name) or name.endswith("\n"):
        raise ValueError(f"name: {shown(repr(name))} can be no population; use letters, digits, '.', '_' and '-'")
    budget = _budget(max_rho, max_discovery_epsilon, window_days, lifetime_rho)
    ledger = _ledger()
    population = ledger.register(name, budget, settings.account(), raised_by or (), simulated=simulated)
    _answer_population(ledger, population, as_json)


@app.command("budget")
@command
def ledger_budget(
    name: Annotated[str, typer.Argument(help="a registered population")],
    max_rho: MaxRho,
    reason: Annotated[str, typer.Option(help="why; it stands in the ledger")],
    max_discovery_epsilon: MaxEpsilon = None,
    window_days: WindowDays = None,
    lifetime_rho: LifetimeRho = None,
    as_json: AsJson = False,
) -> None:
    """Change a population's budget; only those named at its registration may. What is not named stays.

    Example: tacit ledger budget en-US --max-rho 2 --max-discovery-epsilon 80 --reason "reviewed 2026-11"
    """
    ledger = _ledger()
    before = ledger.population(name).budget
    budget = _budget(
        max_rho,
        before.max_discovery_epsilon if max_discovery_epsilon is None else max_discovery_epsilon,
        before.window_days if window_days is None else window_days,
        before.lifetime_rho if lifetime_rho is None else lifetime_rho,
    )
    _answer_population(ledger, ledger.change_budget(name, budget, settings.account(), reason), as_json)


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
    if population is not None and not entries:
        every = sorted({entry.population for entry in ledger.entries()})
        raise PopulationUnknown(
            f"--population: {shown(repr(population))} has no entry in {ledger.address}; it has those of "
            f"{', '.join(every) or 'nobody'}"
        )
    names = sorted({entry.population for entry in entries if entry.unit != NO_UNIT})
    totals = {name: ledger.total(name) for name in names}
    discovery = {name: ledger.discovery_total(name) for name in names}
    lines = [f"ledger: {ledger.address}", *(_line(entry) for entry in entries)]
    for name in names:
        # Two units, so two sentences: no sum of the two means anything.
        lines.append(f"spent on {name}: device-level rho {totals[name]:.6g}")
        lines.append(f"spent on {name}: epsilon {discovery[name]:.6g} per typed word, in discovery")
        lines += _windows(ledger, name)
    content = {
        "ledger": ledger.address,
        "entries": [entry.model_dump() for entry in entries],
        "totals": totals,
        "discovery_totals": discovery,
    }
    answer(content, as_json, text="\n".join(lines if entries else [*lines, "it is empty"]))


@app.command("verify")
@command
def ledger_verify(as_json: AsJson = False) -> None:
    """Check the hash chain, its triggers, and that it is behind no receipt on this machine.

    Example: tacit ledger verify
    """
    ledger = _ledger()
    problems = ledger.verify()
    text = "\n".join(problems) or f"the ledger {ledger.address} is whole: {len(ledger.entries())} entries"
    answer({"ledger": ledger.address, "ok": not problems, "problems": problems}, as_json, text=text)
    if problems:
        raise typer.Exit(PERMANENT)


@app.command("export")
@command
def ledger_export(as_json: AsJson = False) -> None:
    """The whole ledger as one JSON object, with or without --json.

    Example: tacit ledger export > ledger.json
    """
    answer(_ledger().export(), as_json=True)


@app.command("forecast")
@command
def ledger_forecast(
    launch: LaunchName,
    first: Annotated[str, typer.Option("--from", help="the first date, as in 2026-11-01")],
    last: Annotated[str, typer.Option("--to", help="the last date")],
    as_json: AsJson = False,
) -> None:
    """What the launches of a schedule's dates would spend, one after the other, before any of them runs.

    Nothing is written. A date that has spent spends nothing again; one that would be refused is named with the reason,
    and the command then ends with 65. 'make backfill' asks it before Airflow is asked for the runs.

    Example: tacit ledger forecast dags/launches/en-US.yaml --from 2026-09-01 --to 2026-11-30
    """
    from pipeline.ledger import schedule
    from pipeline.ledger.foresee import forecast
    from pipeline.readiness import training_rho

    config, here = to_run(launch).config, settings.load()
    begins, ends = _day(first, "--from"), _day(last, "--to")
    if not begins <= ends <= begins + timedelta(days=_MOST_DAYS):
        raise ValueError(f"--to: {ends} is not from {begins} to {_MOST_DAYS} days later; correct one of them")
    if config.schedule is None:
        raise ValueError(f"schedule: {launch} has none, so it has no dates; 'tacit plan' says what its launch costs")
    ids = [launch_id(config, f"{day:%Y%m%d}") for day in schedule.launch_dates(config.schedule, begins, ends)]
    if not ids:
        raise ValueError(f"--to: {config.schedule!r} has no date from {begins} to {ends}")
    rows = forecast(config, here, ids, training_rho(config), lambda run_id: taken_over(foreseen(config, run_id, here)))
    spending = [row for row in rows if not row.problem]
    rho = math.fsum(max(row.rho, row.held_out_rho) for row in spending)
    epsilon, refused = math.fsum(row.epsilon for row in spending), len(rows) - len(spending)
    name = config.private_text.name
    ending = f"together: rho {rho:.6g} of one device and epsilon {epsilon:.6g} of one typed word of population {name!r}"
    lines = [f"{name}: {len(rows)} launches of {config.schedule!r} from {begins} to {ends}", *map(_forecast_line, rows)]
    content = {"ok": not refused, "population": name, "dates": [asdict(row) for row in rows]}
    content |= {"rho": rho, "epsilon": epsilon, "refused": refused}
    text = [*lines, ending + (f"; {refused} would be refused" if refused else "")]
    answer(content, as_json, text="\n".join(text))
    if refused:
        raise typer.Exit(PERMANENT)


def would_spend(config: LaunchConfig, here: settings.Settings, run_id: str, made: Collection[str]) -> tuple[str, ...]:
    """What a dated launch would spend now, in a line; none where no ledger is there to ask.

    Args:
      made: stages that another launch made for it.
    """
    from pipeline.ledger.foresee import forecast
    from pipeline.readiness import training_rho

    try:
        rows = forecast(config, here, [run_id], training_rho(config), lambda run_id: made)
    except LedgerMissing:
        return ()
    return tuple(f"would spend, at worst: {_forecast_line(row).strip()}" for row in rows)


def _forecast_line(row: "Forecast") -> str:
    if row.problem:
        return f"  {row.launch_id}: refused: {row.problem}"
    before = f", as {', '.join(row.has_spent)} spent before" if row.has_spent else ""
    if not (row.rho or row.held_out_rho or row.epsilon):
        return f"  {row.launch_id}: spends nothing{before}"
    held_out = f" (held out: {row.held_out_rho:.4g})" if row.held_out_rho else ""
    return f"  {row.launch_id}: rho {row.rho:.4g}{held_out}, epsilon {row.epsilon:g} per typed word{before}"


def _day(text: str, option: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{option}: {shown(repr(text))} is no date; write it as in 2026-11-01") from error


def _windows(ledger: "PrivacyLedger", name: str) -> list[str]:
    """What counts against a population's budget now and what the worst window held; nothing where it has no window."""
    population = ledger.registered(name)
    days = population.budget.window_days if population else None
    if population is None or days is None:
        return []
    now, most = ledger.counted(name, "device"), ledger.most_in_any(name, "device", days)
    return [
        f"spent on {name}: of rho {population.budget.max_rho:g} in any {days} days, {now:.6g} in the last {days} and "
        f"{most:.6g} in the worst"
    ]


def _line(entry: Entry) -> str:
    """One entry for people."""
    about = f"{entry.seq:>4} {entry.kind:<10} {entry.population:<20} "
    if entry.unit == NO_UNIT:
        return about + entry.binding
    amount = f"rho {entry.rho:.6g}" if entry.unit == "device" else f"epsilon {entry.epsilon:.6g} per {entry.unit}"
    return f"{about}{entry.launch_id}/{entry.stage}: {amount}"


def _budget(
    max_rho: float, max_discovery_epsilon: float | None, window_days: int | None, lifetime_rho: float | None
) -> Budget:
    if lifetime_rho is not None and window_days is None:
        raise ValueError("--lifetime-rho: stands beside --window-days; without a window --max-rho is for ever")
    try:
        return Budget(
            max_rho=max_rho,
            max_discovery_epsilon=max_discovery_epsilon,
            window_days=window_days,
            lifetime_rho=lifetime_rho,
        )
    except ValidationError as error:
        wrong = error.errors()[0]
        option = "--" + str(wrong["loc"][0]).replace("_", "-")
        bound = "from 1 to 36,500" if option == "--window-days" else "above 0 and finite"
        raise ValueError(f"{option}: {wrong['input']!r}; give a positive number, {bound}") from error


def _answer_population(ledger: "PrivacyLedger", population: Population, as_json: bool) -> None:
    budget = population.budget
    words = "no ceiling" if budget.max_discovery_epsilon is None else f"{budget.max_discovery_epsilon:g}"
    within = f" in any {budget.window_days} days" if budget.window_days else ""
    ever = f", and rho {budget.lifetime_rho:g} for ever" if budget.lifetime_rho else ""
    text = (
        f"ledger: {ledger.address}\npopulation {population.name}: rho {budget.max_rho:g}, epsilon per typed word "
        f"{words}{within}{ever}; changed by {', '.join(population.raised_by)}"
    )
    answer({"ledger": ledger.address} | population.model_dump(mode="json"), as_json, text=text)


def _ledger() -> "PrivacyLedger":
    from pipeline.ledger.ledger import PrivacyLedger

    return PrivacyLedger.of(settings.load())
