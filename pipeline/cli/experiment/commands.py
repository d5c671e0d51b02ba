"""``tacit experiment``: a launch between approval and everybody."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.launches.named import LaunchName
from pipeline.cli.support import AsJson, answer, command, open_existing, show_state
from pipeline.ground import settings
from pipeline.ground.errors import HELD, TooEarly
from pipeline.ground.settings import Settings

if TYPE_CHECKING:
    from pipeline.experiments.decide import Decided

_HELP = """Let some devices try an approved model before all get it, and decide by what keyboards log.

Needs the block 'experiment' in the launch file. It begins when the launch is published.
"""
FINISHED = "_SUCCESS"  # what Spark and others leave in a folder when all files are written

app = typer.Typer(help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False)
Logs = Annotated[
    list[str] | None,
    typer.Option(
        help="Parquet files or globs, again for more; default: the launch's folder in TACIT_EXPERIMENT_LOGS, once it "
        f"holds the file {FINISHED}"
    ),
]


@app.command()
@command
def status(launch: LaunchName, as_json: AsJson = False) -> None:
    """Where an experiment stands: who has what, which days count, and whether all logs are here.

    Example: tacit experiment status en-US-0123abcd
    """
    from pipeline.experiments.decide import begun
    from pipeline.ledger.ledger import PrivacyLedger

    config, run, here = open_existing(launch)
    tried = begun(config, run, PrivacyLedger.of(here))
    folder = here.experiment_logs / run.launch_id
    content: dict[str, Any] = {
        "launch_id": run.launch_id,
        "versions": tried.began.versions,
        "controls": tried.began.controls,
        "share": tried.began.share,
        "first_day": str(tried.first),
        "last_day": str(tried.last),
        "over": tried.over(),
        "ended": None if tried.ended is None else ("promote" if tried.ended.promoted else "roll back"),
        "logs": str(folder),
        "arrived": (folder / FINISHED).is_file(),
    }
    ended = f"{content['ended']}, " if content["ended"] else ""
    lines = [f"experiment of {run.launch_id}: {ended}{tried.said}"]
    if tried.ended is None:
        lines.append(f"days:    {'over' if tried.over() else 'not over'}")
        lines.append(
            f"logs:    {'all here' if content['arrived'] else f'not marked as complete by {FINISHED}'}, {folder}"
        )
    answer(content, as_json, text="\n".join(lines))


@app.command()
@command
def decide(launch: LaunchName, logs: Logs = None, as_json: AsJson = False) -> None:
    """Decide an experiment whose days are over, once: everybody gets the model (exit 0), or nobody does (exit 3).

    Before its days are over it ends with 75: try again later. Decided before, it finishes what was interrupted.

    Example: tacit experiment decide en-US-0123abcd --logs 'logs/*.parquet'
    """
    from pipeline.experiments import decide as core
    from pipeline.ledger.ledger import PrivacyLedger

    config, run, here = open_existing(launch)
    tried = core.begun(config, run, PrivacyLedger.of(here))
    wanted = logs or ([] if tried.ended else _arrived(here, run.launch_id))
    done = core.decide(config, run, here, wanted, settings.account())
    show_state(config, run, here)
    _answer(run.launch_id, done, as_json)


@app.command()
@command
def stop(
    launch: LaunchName,
    *,
    reason: Annotated[str, typer.Option(help="why; it stands in the ledger")],
    as_json: AsJson = False,
) -> None:
    """Stop an experiment: users keep what they have, whatever its logs say. Ends with 3.

    Example: tacit experiment stop en-US-0123abcd --reason "crashes on old phones"
    """
    from pipeline.experiments import decide as core

    config, run, here = open_existing(launch)
    done = core.stop(config, run, here, settings.account(), reason)
    show_state(config, run, here)
    _answer(run.launch_id, done, as_json)


@app.command()
@command
def simulate(
    launch: LaunchName,
    out: Annotated[Path | None, typer.Option(help="a folder; default: where 'decide' looks")] = None,
    as_json: AsJson = False,
) -> None:
    """Rehearse an experiment: logs of its days by simulated typists, who type public text under both arms.

    Logs of a simulator decide nothing about people: only where the population is a simulation too.

    Example: tacit experiment simulate demo-en-US-0123abcd
    """
    config, run, here = open_existing(launch)
    from pipeline.experiments.simulate import simulate as core

    folder = out or here.experiment_logs / run.launch_id
    made = core(config, run, here, folder)
    (folder / FINISHED).touch()
    names = [str(path) for path in made]
    answer(
        {"launch_id": run.launch_id, "files": names},
        as_json,
        text=f"{len(made)} days in {folder}; look: tacit ab {run.launch_id} --logs '{folder}/*.parquet'",
    )


def show(launch: str, patterns: list[str], as_json: bool) -> None:
    """Print the results in an experiment's logs, which decides nothing."""
    from pipeline.cli.experiment.shown import lines
    from pipeline.experiments import decide as core

    config, run, here = open_existing(launch)
    seen, _ = core.look(config, run, here, patterns)
    content = {"launch_id": run.launch_id, **seen.model_dump(mode="json", exclude=_EMPTY)}
    answer(content, as_json, text="\n".join(lines(seen)))


_EMPTY = {"headline", "datasets", "curve", "spend"}


def _arrived(here: Settings, launch_id: str) -> list[str]:
    """The logs where they are exported to."""
    folder = here.experiment_logs / launch_id
    if not (folder / FINISHED).is_file():
        raise TooEarly(
            f"logs: {folder} holds no file {FINISHED}, so they are not complete; write it when all days are there, or "
            "name files by --logs"
        )
    return [f"{folder}/*.parquet"]


def _answer(launch_id: str, done: "Decided", as_json: bool) -> None:
    from pipeline.cli.experiment.shown import lines
    from pipeline.cli.launches.held import Failed
    from pipeline.publication.gates.words import words_of

    rolled_back = done.decision == "roll back"
    failed = [] if done.look is None else [gate for gate in done.look.gates if not gate.passed]
    why = [
        Failed(
            **{name: getattr(gate, name) for name in ("id", "title", "value", "threshold", "evidence")},
            field=words_of(gate.id).field,
            fix=words_of(gate.id).fix,
        )
        for gate in failed
    ]
    content = {
        "launch_id": launch_id,
        "decision": done.decision,
        "by": done.by,
        "reasons": list(done.reasons),
        "failed_gates": [each.content for each in why],
        "look": None if done.look is None else done.look.model_dump(mode="json", exclude=_EMPTY),
    }
    text = [f"experiment of {launch_id}: {done.decision}, by {done.by}"]
    text += [line for each in why for line in each.lines] or [f"  - {reason}" for reason in done.reasons]
    if rolled_back:
        text.append(
            "next:    users keep what they had; a changed launch file is another launch, with its own experiment"
        )
    if done.look is not None:
        text += ["", *lines(done.look)]
    answer(content, as_json, text="\n".join(text))
    if rolled_back:
        raise typer.Exit(HELD)
