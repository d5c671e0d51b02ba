"""``tacit ledger``: what every launch spent."""

import math
from collections.abc import Collection
from dataclasses import asdict
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from federated.config.population import PopulationKey, population_key
from pipeline.cli.launches.budget import (
    Delta,
    LifetimeEpsilon,
    LifetimeRho,
    MaxEpsilon,
    MaxRho,
    MaxTotal,
    WindowDays,
    budget_of,
)
from pipeline.cli.launches.named import LaunchName, to_run
from pipeline.cli.support import AsJson, answer, command, foreseen, taken_over
from pipeline.ground import settings
from pipeline.ground.errors import PERMANENT, LedgerMissing, PopulationUnknown
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.budget import Population
from pipeline.ledger.entries import NO_UNIT, Entry
from pretrain.reading.paths import shown
from reports.losses import up

if TYPE_CHECKING:
    from pipeline.ledger.ledger import PrivacyLedger
    from pipeline.preflight.foresee import Forecast

# A schedule has as many dates in as many years; nobody fills more in at once.
_MOST_DAYS = 1830

app = typer.Typer(no_args_is_help=True, help="What every launch spent. Example: tacit ledger show")


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
    population: Annotated[
        str,
        typer.Argument(help="private_text.name of its launch files; SOURCE:NAME of a simulation (made_up_files:NAME)"),
    ],
    max_rho: MaxRho,
    max_epsilon: MaxTotal,
    delta: Delta,
    max_discovery_epsilon: MaxEpsilon = None,
    window_days: WindowDays = None,
    lifetime_rho: LifetimeRho = None,
    lifetime_epsilon: LifetimeEpsilon = None,
    raised_by: Annotated[
        list[str] | None, typer.Option(help="account that may change the budget (repeatable); default: yours")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give a population its budget, once, before its first launch.

    Example: tacit ledger register en-US --max-rho 1 --max-epsilon 40 --delta 1e-9 --max-discovery-epsilon 80
    """
    key = population_key(population)
    budget = budget_of(
        max_rho=max_rho,
        max_epsilon=max_epsilon,
        delta=delta,
        max_discovery_epsilon=max_discovery_epsilon,
        window_days=window_days,
        lifetime_rho=lifetime_rho,
        lifetime_epsilon=lifetime_epsilon,
    )
    ledger = _ledger()
    _answer_population(ledger, ledger.register(key, budget, settings.account(), raised_by or ()), as_json)


@app.command("budget")
@command
def ledger_budget(
    population: Annotated[str, typer.Argument(help="a registered population, as 'tacit ledger show' lists it")],
    reason: Annotated[str, typer.Option(help="why; it stands in the ledger")],
    max_rho: Annotated[float | None, typer.Option(help="device-level rho of all launches together")] = None,
    max_epsilon: Annotated[
        float | None, typer.Option(help="epsilon of one device over all releases of all launches, words too")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="delta at which that epsilon holds")] = None,
    max_discovery_epsilon: MaxEpsilon = None,
    window_days: WindowDays = None,
    lifetime_rho: LifetimeRho = None,
    lifetime_epsilon: LifetimeEpsilon = None,
    as_json: AsJson = False,
) -> None:
    """Change a population's budget; only those named at its registration may. What is not named stays.

    Example: tacit ledger budget en-US --max-rho 2 --max-discovery-epsilon 80 --reason "reviewed 2026-11"
    """
    ledger = _ledger()
    key = population_key(population)
    named = {
        "max_rho": max_rho,
        "max_epsilon": max_epsilon,
        "delta": delta,
        "max_discovery_epsilon": max_discovery_epsilon,
        "window_days": window_days,
        "lifetime_rho": lifetime_rho,
        "lifetime_epsilon": lifetime_epsilon,
    }
    changed = {option: value for option, value in named.items() if value is not None}
    if not changed:
        raise ValueError("--max-rho: nothing is named, so nothing would change; name what is to change")
    budget = budget_of(**ledger.population(key).budget.model_dump() | changed)
    _answer_population(ledger, ledger.change_budget(key, budget, settings.account(), reason), as_json)


@app.command("show")
@command
def ledger_show(
    population: Annotated[str | None, typer.Option(help="only this population")] = None, as_json: AsJson = False
) -> None:
    """List reservations and commits, and what each population has spent.

    Example: tacit ledger show --population chitchat:chitchat-2018
    """
    ledger = _ledger()
    entries = ledger.entries(None if population is None else population_key(population))
    if population is not None and not entries:
        every = sorted({entry.population for entry in ledger.entries()})
        raise PopulationUnknown(
            f"--population: {shown(repr(population))} has no entry in {ledger.address}; it has those of "
            f"{', '.join(every) or 'nobody'}"
        )
    names = sorted({entry.population for entry in entries if entry.unit != NO_UNIT})
    totals = {name: ledger.total(name) for name in names}
    discovery = {name: ledger.discovery_total(name) for name in names}
    deltas = {name: owner.budget.delta for name in names if (owner := ledger.registered(name))}
    epsilons = {name: ledger.total_epsilon(name, delta) for name, delta in deltas.items()}
    lines = [f"ledger: {ledger.address}", *(_line(entry) for entry in entries)]
    for name in names:
        # A device and a typed word are two units; epsilon of the device has all that it sends.
        lines.append(f"spent on {name}: device-level rho {totals[name]:.6g}")
        lines.append(f"spent on {name}: epsilon {discovery[name]:.6g} per typed word, in discovery")
        if name in deltas:
            lines.append(
                f"spent on {name}: epsilon {up(epsilons[name])} of one device over all releases, at delta "
                f"{deltas[name]:g}"
            )
        lines += _windows(ledger, name)
    content = {
        "ledger": ledger.address,
        "entries": [entry.model_dump() for entry in entries],
        "totals": totals,
        "discovery_totals": discovery,
        "total_epsilons": epsilons,
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
    from pipeline.preflight import schedule
    from pipeline.preflight.foresee import forecast
    from pipeline.preflight.readiness import estimated_devices, planned

    config, here = to_run(launch).config, settings.load()
    begins, ends = _day(first, "--from"), _day(last, "--to")
    if not begins <= ends <= begins + timedelta(days=_MOST_DAYS):
        raise ValueError(f"--to: {ends} is not from {begins} to {_MOST_DAYS} days later; correct one of them")
    if config.schedule is None:
        raise ValueError(f"schedule: {launch} has none, so it has no dates; 'tacit plan' says what its launch costs")
    ids = [launch_id(config, f"{day:%Y%m%d}") for day in schedule.launch_dates(config.schedule, begins, ends)]
    if not ids:
        raise ValueError(f"--to: {config.schedule!r} has no date from {begins} to {ends}")
    rows = forecast(
        config,
        here,
        ids,
        planned(config, estimated_devices(config)),
        lambda run_id: taken_over(foreseen(config, run_id, here)),
    )
    spending = [row for row in rows if not row.problem]
    rho = math.fsum(max(row.rho, row.held_out_rho) for row in spending)
    epsilon, refused = math.fsum(row.epsilon for row in spending), len(rows) - len(spending)
    name = config.population
    ending = f"together: rho {rho:.6g} of one device and epsilon {epsilon:.6g} of one typed word of population {name!r}"
    lines = [f"{name}: {len(rows)} launches of {config.schedule!r} from {begins} to {ends}", *map(_forecast_line, rows)]
    content = {"ok": not refused, "population": name, "dates": [asdict(row) for row in rows]}
    content |= {"rho": rho, "epsilon": epsilon, "refused": refused}
    text = [*lines, ending + (f"; {refused} would be refused" if refused else "")]
    answer(content, as_json, text="\n".join(text))
    if refused:
        raise typer.Exit(PERMANENT)


def would_spend(config: LaunchConfig, here: settings.Settings, run_id: str, made: Collection[str]) -> tuple[str, ...]:
    """New spend of a dated launch as of now, in a line; none where no ledger is there to ask.

    Args:
      made: stages that another launch made for it.
    """
    from pipeline.preflight.foresee import forecast
    from pipeline.preflight.readiness import estimated_devices, planned

    try:
        rows = forecast(config, here, [run_id], planned(config, estimated_devices(config)), lambda run_id: made)
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
    return (
        f"  {row.launch_id}: rho {row.rho:.4g}{held_out}, epsilon {row.epsilon:g} per typed word; of one device "
        f"epsilon {up(row.total)} over all releases{before}"
    )


def _day(text: str, option: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{option}: {shown(repr(text))} is no date; write it as in 2026-11-01") from error


def _windows(ledger: "PrivacyLedger", name: PopulationKey) -> list[str]:
    """Spend that counts against a population's budget now, and that of the worst window; nothing without a window."""
    population = ledger.registered(name)
    days = population.budget.window_days if population else None
    if population is None or days is None:
        return []
    budget, delta = population.budget, population.budget.delta
    now, most = ledger.counted(name, "device"), ledger.most_in_any(name, "device", days)
    total_now, total_most = ledger.counted(name, "total", delta), ledger.most_in_any(name, "total", days, delta)
    return [
        f"spent on {name}: of rho {budget.max_rho:g} in any {days} days, {now:.6g} in the last {days} and {most:.6g} "
        "in the worst",
        f"spent on {name}: of epsilon {budget.max_epsilon:g} over all releases in any {days} days, {up(total_now)} in "
        f"the last {days} and {up(total_most)} in the worst",
    ]


def _line(entry: Entry) -> str:
    """One entry for people."""
    about = f"{entry.seq:>4} {entry.kind:<10} {entry.population:<20} "
    if entry.unit == NO_UNIT:
        return about + entry.binding
    amount = f"rho {entry.rho:.6g}" if entry.unit == "device" else f"epsilon {entry.epsilon:.6g} per {entry.unit}"
    return f"{about}{entry.launch_id}/{entry.stage}: {amount}"


def _answer_population(ledger: "PrivacyLedger", population: Population, as_json: bool) -> None:
    budget = population.budget
    words = "no ceiling" if budget.max_discovery_epsilon is None else f"{budget.max_discovery_epsilon:g}"
    within = f" in any {budget.window_days} days" if budget.window_days else ""
    lifetime = (("rho", budget.lifetime_rho), ("epsilon", budget.lifetime_epsilon))
    ever = "".join(f", and {name} {amount:g} for ever" for name, amount in lifetime if amount)
    text = (
        f"ledger: {ledger.address}\npopulation {population.key}: rho {budget.max_rho:g}, epsilon "
        f"{budget.max_epsilon:g} over all releases at delta {budget.delta:g}, epsilon per typed word {words}{within}"
        f"{ever}; changed by {', '.join(population.raised_by)}"
    )
    answer({"ledger": ledger.address} | population.model_dump(mode="json"), as_json, text=text)


def _ledger() -> "PrivacyLedger":
    from pipeline.ledger.ledger import PrivacyLedger

    return PrivacyLedger.of(settings.load())
