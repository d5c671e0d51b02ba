"""``tacit init``: a launch file from a few answers, valid and planned."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.cli.support import AsJson, answer, command
from pretrain.config import LOCALE
from pretrain.reading.paths import shown
from reports.losses import up


@command
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the launch file to make, such as en-US.yaml")],
    locale: Annotated[str | None, typer.Option(help="BCP 47 tag, as in en-US")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="path or glob of your Parquet or JSON lines (client_id, text[, ts]); synthetic: made up"),
    ] = None,
    population: Annotated[int | None, typer.Option(help="devices that have such text, about")] = None,
    rho: Annotated[float | None, typer.Option(help="most that one device loses to this launch, as zCDP")] = None,
    budget: Annotated[
        float | None, typer.Option(help="most that it loses to all launches; default: 3 times rho")
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(help="the budget holds in any so many days, which needs a column ts; default: for ever"),
    ] = None,
    public: Annotated[
        str | None, typer.Option(help="public text: sample (English, ships in wheels), c4, or a path or glob of yours")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a launch file from a few answers: valid, and with the mechanism that the planner finds for the population.

    What is not given by an option is asked for on a terminal. The file is named after itself, an existing one is never
    overwritten, and everything in it may be changed: 'tacit explain FIELD' says what a line means.

    Example: tacit init es-ES.yaml --locale es-ES --data 'data/*.parquet' --population 50000 --rho 0.5
    """
    from pipeline.preflight.draft import SYNTHETIC, Answers, draft, require_new

    require_new(file)
    asks = _asker(as_json)
    usual = file.stem if re.fullmatch(LOCALE, file.stem) else None
    tag = asks("locale", "Locale, as in en-US", usual) if locale is None else locale
    if not re.fullmatch(LOCALE, tag):
        raise ValueError(f"--locale: {shown(repr(tag))} is no BCP 47 tag; write one as in en-US or sr-Latn-RS")
    text = data or asks("data", "Your text: a path or glob of Parquet or JSON lines, or synthetic", SYNTHETIC)
    devices = asks("population", "Devices that have such text, about", None, int) if population is None else population
    loses = asks("rho", "Most that one device loses to this launch (rho)", 0.5, float) if rho is None else rho
    most, read = 3 * loses if budget is None else budget, public or ("sample" if tag.startswith("en") else "c4")
    made = draft(file, Answers(file.stem, tag, text, read, devices, loses, most, days))
    run = made.mechanism
    lines = [
        f"{file}: {run.kind}, {run.rounds:,} rounds of {run.report_goal:,} devices",
        f"at worst rho {made.rho:.4g}, epsilon {up(made.epsilon)} at delta {made.delta:g}; with the words "
        f"{made.total_epsilon:g} or less",
        *(f"  not feasible: {reason}" for reason in made.reasons),
        *(f"next: {row}" for row in made.next),
    ]
    answer(made, as_json, text="\n".join(lines))


def _asker(as_json: bool) -> Any:
    """Function that asks for an answer that no option gave; an error where nobody can answer."""

    def ask(option: str, question: str, default: object, kind: type = str) -> Any:
        if as_json or not sys.stdin.isatty():
            raise ValueError(f"--{option}: missing, and there is no terminal to ask on; give it ({question})")
        return typer.prompt(question, default=default, type=kind, err=True)

    return ask
