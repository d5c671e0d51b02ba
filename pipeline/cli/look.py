"""``tacit runs``, ``tacit status``, ``tacit predict``, ``tacit site``: show launches and models of this machine."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.support import AsJson, OfPopulation, answer, command, completions, duration, table_text
from pipeline.ground import settings
from reports.listed import gain, minute, shown_state

if TYPE_CHECKING:
    from pipeline.ledger.statement import Remainder, StageSpend
    from pipeline.publication.launches import FailedGate, LaunchSummary, Row, RunningStage

_HEADS = ("launch", "locale", "features", "began", "state", "rho", "epsilon", "gain in top-1 recall")


@command
def runs(
    locale: Annotated[str | None, typer.Option(help="only launches of this locale, such as en-US")] = None,
    as_json: AsJson = False,
) -> None:
    """List the launches of this machine, newest first, with state, spend, gain and running stage.

    The states are those of 'tacit review': unfinished, held, waiting, approved, candidate, rejected, published or
    rolled back. Epsilon holds at the delta of each launch file; the gain is that of the private model over its starting
    point on held-out devices, with its interval.

    Example: tacit runs --locale en-US
    """
    from pipeline.publication.launches import listed
    from pipeline.stages.graph import STAGES

    here = settings.load()
    rows = listed(here, STAGES, locale)
    answer({"runs": rows}, as_json, text="" if as_json else _table(rows, here))


@command
def status(
    launch: Annotated[
        str | None,
        typer.Argument(
            metavar="LAUNCH",
            help="a launch file, a name, locale or id, or how an id begins; without one, the status of this machine",
            autocompletion=completions,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show running stages, the last launch, and the remaining budget of each population.

    For one launch: its state, its finished stages, its spends, and the next steps.

    Example: tacit status demo-en-US
    """
    here = settings.load()
    if launch is None:
        _of_machine(here, as_json)
    else:
        _of_launch(here, launch, as_json)


def _of_machine(here: settings.Settings, as_json: bool) -> None:
    from pipeline.ledger.statement import ONE_LEDGER
    from pipeline.publication.launches import machine_status
    from pipeline.stages.graph import STAGES

    now = machine_status(here, STAGES)
    running = [f"running: {_progress(each)}" for each in now.running]
    lines = [
        *(running or ["running: nothing"]),
        f"last:    {_sentence(now.last)}" if now.last else f"last:    no launch in {here.runs_dir}",
        *(f"left:    {each}, for {each.population}" for each in now.left),
        f"left:    {now.without_ledger}" if now.without_ledger else f"ledger:  {ONE_LEDGER}",
    ]
    answer(now, as_json, text="\n".join(lines))


def _of_launch(here: settings.Settings, launch: str, as_json: bool) -> None:
    from pipeline.publication.launches import status as status_of
    from pipeline.run.named import begun_id
    from pipeline.stages.graph import STAGES

    now = status_of(here, STAGES, begun_id(launch, here))
    seconds = sum(each.seconds for each in now.stages)
    coming = f"; not yet: {', '.join(now.not_yet)}" if now.not_yet else ""
    lines = [
        _sentence(now),
        *(gate_lines(now.failed_gates) or ([f"  {now.detail}"] if now.detail else [])),
        *(f"running: {_progress(each)}" for each in now.running),
        f"ended:   {len(now.stages)} of {len(now.stages) + len(now.not_yet)} stages, in {duration(seconds)}{coming}",
        *budget_lines(now.spent, now.left),
        *(f"next:    {step}" for step in now.next),
    ]
    answer(now, as_json, text="\n".join(lines))


@command
def predict(
    launch: Annotated[
        str,
        typer.Argument(
            metavar="LAUNCH",
            help="a locale, for its champion; a launch file, a launch id or the beginning of one; or the folder of a "
            "published model",
            autocompletion=completions,
        ),
    ],
    text: Annotated[str, typer.Argument(help="the text typed so far")],
    feature: Annotated[str, typer.Option(help="with a locale: NWP, SC or OTF")] = "NWP",
    population: OfPopulation = None,
    as_json: AsJson = False,
) -> None:
    """Predict the three likeliest next words, in their typical form.

    A locale's champion is the one in the ledger. Of a launch or a folder the model is used directly; the answer states
    whether a launch in the ledger registered its bundle.json.

    Example: tacit predict en-US "see you"

    tacit predict dags/launches/demo-en-US.yaml "how are"
    """
    from federated.config.population import population_key
    from pipeline.publication.prediction import predict as core

    of = None if population is None else population_key(population)
    done = core(launch, text, settings.load(), feature, of)
    answer(done, as_json, text=" | ".join(done.words))


@command
def site(as_json: AsJson = False) -> None:
    """Write an index of all launches into the runs directory, and keyboards to try published models.

    The index lists the launches of 'tacit runs' with links, and figures of spends and gains over time.

    Example: tacit site
    """
    from pipeline.publication.site import build
    from pipeline.stages.graph import STAGES

    here = settings.load()
    made = build(here, STAGES)
    lines = [f"index: {made.index}", *(f"keyboard: {page}" for page in made.keyboards)]
    if made.without:
        lines.append(
            f"keyboards: {made.without} not made, as {here.web_dir} holds no onnxruntime-web; "
            "'make web' installs it by npm, then 'tacit site' again"
        )
    answer(made, as_json, text="\n".join(lines))


def gate_lines(gates: "Sequence[FailedGate]") -> list[str]:
    """Format failed gates, each with its field and its fix."""
    lines = []
    for gate in gates:
        where = f" ({gate.field} in the launch file)" if gate.field else ""
        lines += [f"  - {gate.title}: {gate.evidence}{where}", f"      {gate.fix}"]
    return lines


def budget_lines(spent: "Sequence[StageSpend]", left: "Sequence[Remainder]") -> list[str]:
    """Format a launch's spends and its population's remaining budget."""
    lines = [f"spent:   {each}" for each in spent] or ["spent:   nothing"]
    return [*lines, *(f"left:    {each}, for {each.population}" for each in left)]


def _table(rows: "Sequence[LaunchSummary]", here: settings.Settings) -> str:
    from rich.table import Table

    if not rows:
        return f"no launch in {here.runs_dir}; begin one: tacit launch FILE"
    table = Table(*_HEADS, box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            row.launch_id,
            row.locale,
            ", ".join(row.features),
            minute(row.began),
            shown_state(vars(row)) + (f", {row.running} runs" if row.running else ""),
            "-" if row.rho is None else f"{row.rho:.4f}",
            row.guarantee or "-",
            gain(vars(row)),
        )
    return table_text(table)


def _sentence(row: "Row") -> str:
    amounts = "" if row.loss is None else f", {row.loss}"
    gained = "" if row.top1_gain is None else f", {gain(vars(row))} in top-1 recall"
    return f"{row.launch_id}: {shown_state(vars(row))}, begun {minute(row.began)}{amounts}{gained}"


def _progress(now: "RunningStage") -> str:
    place = f" (stage {now.number} of {now.of})" if now.of else ""
    for_long = duration((datetime.now(UTC) - now.since).total_seconds())
    point = now.progress
    how_far = f", {point.what} {point.share:.0%}" if point else ""
    left = f", about {duration(point.left)} left" if point and point.left is not None else ""
    return f"{now.launch_id}, {now.stage}{place}, since {minute(now.since)} ({for_long}){how_far}{left}"
