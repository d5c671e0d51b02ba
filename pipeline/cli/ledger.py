"""``tacit ledger``: budgets of populations, and spends of launches."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

import typer

from pipeline.cli.support import AsJson, LaunchName, answer, command
from pipeline.ground import settings
from pipeline.ground.errors import PERMANENT
from pretrain.reading.paths import shown
from reports.losses import up

if TYPE_CHECKING:
    from pipeline.ledger.budget import Budget, Population, Rules
    from pipeline.ledger.entries import Entry
    from pipeline.ledger.ledger import PrivacyLedger
    from pipeline.ledger.statement import Statement

# Limit on the days of a forecast; no backfill is longer.
_MOST_DAYS = 1830
# Fix of each option, where its value is refused.
_FIXES = {
    "--max-rho": "give a positive number, at most 1,000",
    "--lifetime-rho": "give a positive number, at most 1,000",
    "--delta": "give a positive number, between 0 and 1",
    "--window-days": "give a positive number, from 1 to 36,500",
    "--max-words-epsilon": "give a positive number, above 0 and finite",
    "--max-discovery-epsilon": "give a positive number, above 0 and finite",
    "--retention-days": "give a number of days from 1 to 36,500",
    "--min-approvals": "give a number from 0 to 9",
    "--reviewer": "name an account by letters, digits and ._@+-",
    "--gate": "give a finite number, as in min_top1_gain=0",
    "--airflow": "write an address with https, or one on this machine, as in http://127.0.0.1:8080, without a login",
}

app = typer.Typer(no_args_is_help=True, help="Budgets and spends. Example: tacit ledger show")


class Terms(TypedDict):
    """Options that state a budget and rules, by their fields; None where one is not given."""

    max_rho: Annotated[float | None, typer.Option(help="device-level rho of all launches together")]
    delta: Annotated[float | None, typer.Option(help="delta of one device, over all releases of all launches together")]
    max_words_epsilon: Annotated[
        float | None, typer.Option(help="epsilon of one device to words found locally, of all launches together")
    ]
    max_discovery_epsilon: Annotated[
        float | None, typer.Option(help="epsilon of one typed word, of all launches together")
    ]
    window_days: Annotated[
        int | None, typer.Option(help="length of the window of both, and retention of text; default: no window")
    ]
    lifetime_rho: Annotated[
        float | None, typer.Option(help="beside a window: device-level rho of all launches, without a window")
    ]
    retention_days: Annotated[int | None, typer.Option(help="days for which text is kept; default: --window-days")]
    min_approvals: Annotated[
        int | None, typer.Option(help="least number of different persons who approve a launch; default for people: 1")
    ]
    reviewers: Annotated[
        list[str] | None, typer.Option("--reviewer", help="account that launch files may name as reviewer (repeatable)")
    ]
    gates: Annotated[
        list[str] | None,
        typer.Option("--gate", help="bound that no launch file may loosen, as in min_top1_gain=0 (repeatable)"),
    ]
    airflow: Annotated[
        str | None, typer.Option(help="Airflow's API that is asked for answers: https, or on this machine")
    ]
    airflow_people: Annotated[
        bool | None,
        typer.Option(
            "--airflow-people/--airflow-person",
            help="each account of Airflow is a separate person; default: all answers through Airflow are one person's",
        ),
    ]


def _with_terms(*required: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of ``Terms`` to a command, in place of its variable keyword arguments."""

    def extended(function: Callable[..., None]) -> Callable[..., None]:
        signature, empty = inspect.signature(function), inspect.Parameter.empty
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        terms = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=empty if name in required else None, annotation=kind
            )
            for name, kind in Terms.__annotations__.items()
        ]
        first = sum(each.default is empty for each in own)
        function.__signature__ = signature.replace(parameters=[*own[:first], *terms, *own[first:]])  # type: ignore[attr-defined]
        return function

    return extended


@app.command("init")
@command
def ledger_init(as_json: AsJson = False) -> None:
    """Create this installation's ledger, once; no other command creates one.

    Example: tacit ledger init
    """
    from pipeline.ledger.statement import ONE_LEDGER, create

    done = create(settings.load())
    text = f"ledger: {done.ledger} " + ("created" if done.made else f"exists, with {done.entries} entries")
    text += f"\n{ONE_LEDGER}"
    answer(done, as_json, text=text)


@app.command("register")
@command
@_with_terms("max_rho", "delta")
def ledger_register(
    population: Annotated[
        str,
        typer.Argument(help="private_text.name of its launch files; SOURCE:NAME of a simulation (made_up_files:NAME)"),
    ],
    *,
    case_sensitive_ids: Annotated[
        bool, typer.Option("--case-sensitive-ids", help="ids that differ only by case are different devices")
    ] = False,
    raised_by: Annotated[
        list[str] | None, typer.Option(help="account that may change all of this (repeatable); default: yours")
    ] = None,
    as_json: AsJson = False,
    **terms: Unpack[Terms],
) -> None:
    """Give a population its budget and its rules, once, before its first launch.

    Example: tacit ledger register en-US --max-rho 1 --max-words-epsilon 24 --delta 1e-9 --reviewer ana
    """
    from federated.config.population import is_simulation, population_key
    from pretrain.config import ACCOUNT_NAME

    key, before = population_key(population), dict[str, object](case_sensitive_ids=case_sensitive_ids)
    if not is_simulation(key):
        before |= {"airflow": _own_airflow(), "min_approvals": 1}
    budget, rules = _stated(before, terms)
    if not is_simulation(key) and len(set(rules.reviewers)) < rules.min_approvals:
        raise ValueError(
            f"--reviewer: {len(set(rules.reviewers))} named, and launches on people's text need {rules.min_approvals} "
            "approvals; name those who may give them, or let gates alone decide by --min-approvals 0"
        )
    if wrong := [name for name in raised_by or () if not re.fullmatch(ACCOUNT_NAME, name)]:
        raise ValueError(f"--raised-by: {shown(repr(wrong[0]))} is no account's name; write letters, digits and ._@+-")
    ledger = _ledger()
    _answer_population(ledger, ledger.register(key, budget, settings.account(), raised_by or (), rules), as_json)


@app.command("budget")
@command
@_with_terms()
def ledger_budget(
    population: Annotated[str, typer.Argument(help="a registered population, as 'tacit ledger show' lists it")],
    reason: Annotated[str, typer.Option(help="reason, recorded in the ledger")],
    *,
    witness: Annotated[
        bool, typer.Option("--witness", help="register the log's witness anew, after its keeper replaced it")
    ] = False,
    as_json: AsJson = False,
    **terms: Unpack[Terms],
) -> None:
    """Change a population's budget or rules; only accounts of its --raised-by may. Options left out stay unchanged.

    Example: tacit ledger budget en-US --max-rho 2 --max-discovery-epsilon 80 --reason "reviewed 2026-11"
    """
    from federated.config.population import population_key

    if not witness and all(value is None for value in terms.values()):
        raise ValueError("--max-rho: no option is given, so nothing would change; give at least one")
    ledger, key = _ledger(), population_key(population)
    before = ledger.population(key)
    budget, rules = _stated({**before.budget.model_dump(), **before.rules.model_dump()}, terms)
    done = ledger.change_budget(key, budget, settings.account(), reason, rules, replace_witness=witness)
    _answer_population(ledger, done, as_json)


@app.command("key")
@command
def ledger_key(as_json: AsJson = False) -> None:
    """Print your public key for reviews; the first time, make your private key in the file of TACIT_REVIEW_KEY.

    Example: tacit ledger key
    """
    from pipeline.ground.keys import make_reviewer

    here = settings.load()
    public = make_reviewer(here.review_key).public_key.keyval["public"]
    answer({"account": settings.account(), "file": str(here.review_key), "public": public}, as_json, text=public)


@app.command("reviewer")
@command
def ledger_reviewer(
    population: Annotated[str, typer.Argument(help="a registered population, as 'tacit ledger show' lists it")],
    account: Annotated[str, typer.Argument(help="the reviewer's account in the operating system")],
    key: Annotated[
        str | None, typer.Option(help="their public key, as 'tacit ledger key' prints it; default: yours")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Register a reviewer's public key for a population; only accounts that may change its budget may.

    Example: tacit ledger reviewer en-US ana --key 8f5dc80b...
    """
    from federated.config.population import population_key
    from pipeline.ground.keys import make_reviewer

    own, of = settings.account(), population_key(population)
    if key is None:
        if account != own:
            raise ValueError(f"--key: missing, and you are {own}; give what 'tacit ledger key' prints to {account}")
        key = make_reviewer(settings.load().review_key).public_key.keyval["public"]
    ledger = _ledger()
    made, notes = ledger.register_reviewer(of, account, key, own), _notes(ledger, (account,))
    text = f"{account} answers about {made.population} with key {made.names('public')[:16]}"
    answer(made.model_dump() | {"notes": notes}, as_json, text="\n".join((text, *notes)))


@app.command("show")
@command
def ledger_show(
    population: Annotated[str | None, typer.Option(help="only this population")] = None, as_json: AsJson = False
) -> None:
    """List reservations and commits, and the total spend of each population.

    Example: tacit ledger show --population chitchat:chitchat-2018
    """
    from pipeline.ledger.statement import statement

    stated = statement(settings.load(), population)
    answer(stated, as_json, text="\n".join(_lines(stated)))


@app.command("verify")
@command
def ledger_verify(as_json: AsJson = False) -> None:
    """Check the ledger's entries, secrets, signatures and triggers, and the log on this machine.

    Example: tacit ledger verify
    """
    from pipeline.ledger.statement import integrity

    found = integrity(settings.load())
    text = "\n".join(found.problems) or f"the ledger {found.ledger} is whole: {found.entries} entries"
    answer(found, as_json, text=text)
    if not found.ok:
        raise typer.Exit(PERMANENT)


@app.command("rotate")
@command
def ledger_rotate(
    role: Annotated[str, typer.Argument(help="ledger, launch, model, witness or answers")], as_json: AsJson = False
) -> None:
    """Replace a key of this installation; the ledger keeps the new public key, signed with the old one.

    Example: tacit ledger rotate ledger
    """
    from pipeline.ground.keys import ROLES
    from pipeline.ledger.ledger import rotate

    named = next((each for each in ROLES if each == role), None)
    if named is None:
        raise ValueError(f"role: {shown(repr(role))} has no key; choose one of {', '.join(ROLES)}")
    done = rotate(settings.load(), named)
    text = f"{role}: key {done.names('number')} signs from now on; its entry is {done.hash[:12]}"
    answer({**done.content, "entry": done.hash}, as_json, text=text)


@app.command("forecast")
@command
def ledger_forecast(
    launch: LaunchName,
    first: Annotated[str, typer.Option("--from", help="the first date, as in 2026-11-01")],
    last: Annotated[str, typer.Option("--to", help="the last date")],
    as_json: AsJson = False,
) -> None:
    """Forecast the spends of a schedule's launches, one after another, before any of them runs.

    Nothing is written. A date that has spent spends nothing again. A date that would be refused is listed with the
    reason, and the command then exits with 65. 'make backfill' runs it before it creates runs in Airflow.

    Example: tacit ledger forecast dags/launches/en-US.yaml --from 2026-09-01 --to 2026-11-30
    """
    from pipeline.preflight.readiness import forecast_dates
    from pipeline.run.named import to_run
    from pipeline.stages.graph import STAGES

    config, begins, ends = to_run(launch).config, _day(first, "--from"), _day(last, "--to")
    if not begins <= ends <= begins + timedelta(days=_MOST_DAYS):
        raise ValueError(f"--to: {ends} is not from {begins} to {_MOST_DAYS} days later; correct one of them")
    if config.schedule is None:
        raise ValueError(f"schedule: {launch} has none, so it has no dates; 'tacit plan' shows the cost of its launch")
    found = forecast_dates(config, settings.load(), STAGES, begins, ends)
    name, refused = found.population, found.refused
    lines = [
        f"{name}: {len(found.dates)} launches of {config.schedule!r} from {begins} to {ends}",
        *(f"  {row}" for row in found.dates),
        f"together, of the budgets of population {name!r}: rho {found.rho:.6g}, epsilon per typed word "
        f"{found.epsilon:.6g}" + (f"; {refused} would be refused" if refused else ""),
    ]
    answer(found, as_json, text="\n".join(lines))
    if refused:
        raise typer.Exit(PERMANENT)


def _day(text: str, option: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{option}: {shown(repr(text))} is no date; write it as in 2026-11-01") from error


def _lines(stated: "Statement") -> list[str]:
    """Format the whole statement; a device and a typed word are two units."""
    lines = [f"ledger: {stated.ledger}", *map(_line, stated.entries)]
    for name, rho in stated.totals.items():
        lines.append(f"spent on {name}: device-level rho {rho:.6g}")
        lines.append(f"spent on {name}: epsilon {stated.discovery_totals[name]:.6g} per typed word, in discovery")
        lines.append(f"spent on {name}: epsilon {stated.words_totals[name]:.6g} of one device to words found locally")
        if name in stated.deltas:
            lines.append(
                f"ceiling of {name}: epsilon {up(stated.epsilons[name])} of one device at delta "
                f"{stated.deltas[name]:g} over all releases"
            )
        left = [each for each in stated.left if each.population == name]
        lines += [f"left on {name}: {each}; {each.most:.6g} was spent in the worst window" for each in left]
    return lines if stated.entries else [*lines, "the ledger is empty"]


def _line(entry: "Entry") -> str:
    """Format one entry."""
    from pipeline.ledger.entries import NO_UNIT

    about = f"{entry.seq:>4} {entry.kind:<10} {entry.population:<20} "
    if entry.unit == NO_UNIT:
        return about + entry.binding
    amount = f"rho {entry.rho:.6g}" if entry.unit == "device" else f"epsilon {entry.epsilon:.6g} per {entry.unit}"
    return f"{about}{entry.launch_id}/{entry.stage}: {amount}"


def _answer_population(ledger: "PrivacyLedger", population: "Population", as_json: bool) -> None:
    budget = population.budget
    words = "no ceiling" if budget.max_discovery_epsilon is None else f"{budget.max_discovery_epsilon:g}"
    within = f" in any {budget.window_days} days" if budget.window_days else ""
    ever = f", and rho {budget.lifetime_rho:g} for ever" if budget.lifetime_rho else ""
    rules = population.rules
    ruled = f"; {rules.min_approvals} approvals" + (f" of {', '.join(rules.reviewers)}" if rules.reviewers else "")
    ruled += f"; answers in Airflow at {rules.airflow}" if rules.airflow else ""
    notes = () if population.simulated else _notes(ledger, rules.reviewers, rules.airflow)
    text = (
        f"ledger: {ledger.address}\npopulation {population.key}: rho {budget.max_rho:g}, epsilon "
        f"{budget.max_words_epsilon:g} of words found locally: together epsilon {up(budget.epsilon)} of one device at "
        f"delta {budget.delta:g}; epsilon per typed word {words}{within}"
        f"{ever}{ruled}; changed by {', '.join(population.raised_by)}"
    )
    stated = {"ledger": ledger.address, "notes": notes} | population.model_dump(mode="json")
    answer(stated, as_json, text="\n".join((text, *notes)))


def _own_airflow() -> str:
    """Airflow's address here, if a registration may name it; empty if it may not, or there is none."""
    from pipeline.ledger.budget import AIRFLOW

    here = settings.load().airflow
    return here.url if here and re.fullmatch(AIRFLOW, here.url) else ""


def _notes(ledger: "PrivacyLedger", reviewers: Iterable[str], airflow: str = "") -> list[str]:
    """Notes on reviewers who could not answer: the owner alone can open a ledger in SQLite, and Airflow is in clear."""
    others, here, notes = sorted(set(reviewers) - {settings.account()}), settings.load().airflow, list[str]()
    if others and "://" not in ledger.address:  # the address of a file has no scheme
        notes.append(
            f"note: this ledger is a file that its owner alone can open, so {', '.join(others)} cannot answer by "
            "'tacit review'; let them answer in Airflow (--airflow), or keep it in PostgreSQL (TACIT_LEDGER_URL)"
        )
    if others and here and not (airflow or _own_airflow()):
        notes.append(
            f"note: Airflow at {here.url} (TACIT_AIRFLOW_URL) is asked neither by TLS nor on this machine, so no "
            "answer there counts for people; put TLS before it (--airflow), or let reviewers use 'tacit review'"
        )
    return notes


def _ledger() -> "PrivacyLedger":
    from pipeline.ledger.ledger import PrivacyLedger

    return PrivacyLedger.of(settings.load())


def _stated(before: Mapping[str, object], terms: Terms) -> "tuple[Budget, Rules]":
    """Build a budget and rules from earlier fields and the options that are given; ValueError that names the option."""
    from pydantic import ValidationError

    from pipeline.launch.policy import is_gate
    from pipeline.ledger.budget import Budget, Rules

    stated = {**before, **{name: value for name, value in terms.items() if value is not None}}
    if terms["gates"] is not None:
        stated["gates"] = bounds = {name: bound for name, _, bound in (each.partition("=") for each in terms["gates"])}
        if unknown := next((name for name in bounds if not is_gate(name)), None):
            raise ValueError(f"--gate: {shown(repr(unknown))} is no gate of policy; write one as in min_top1_gain=0")
    if stated.get("lifetime_rho") is not None and stated.get("window_days") is None:
        raise ValueError("--lifetime-rho: needs --window-days; without a window --max-rho already holds for ever")
    budget = {name: stated.pop(name) for name in Budget.model_fields if name in stated}
    try:
        return Budget.model_validate(budget), Rules.model_validate(stated)
    except ValidationError as error:
        wrong = error.errors()[0]
        field = str(wrong["loc"][0])
        option = "--" + {"reviewers": "reviewer", "gates": "gate"}.get(field, field).replace("_", "-")
        raise ValueError(f"{option}: {shown(repr(wrong['input']))}; {_FIXES[option]}") from error
