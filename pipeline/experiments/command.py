"""``tacit experiment``: the live experiment of an approved launch."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.look import gate_lines
from pipeline.cli.support import AsJson, LaunchName, answer, command, open_existing
from pipeline.ground import settings
from pipeline.ground.errors import HELD

if TYPE_CHECKING:
    from pipeline.experiments.decide import DecisionResult, ExperimentStatus, Look
    from reports.disclosure.utility import ArmMetric

_HELP = """Try an approved model on a share of devices before all get it, and decide by the keyboards' logs.

Needs the block 'experiment' in the launch file: its launch is published as a candidate, which no device has before.
"""
_EMPTY = {"headline", "datasets", "curve", "spend"}
_NAME = 60

app = typer.Typer(help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False)
Logs = Annotated[
    list[str] | None,
    typer.Option(
        help="Parquet files or globs, repeatable; default: the launch's folder in TACIT_DEVICE_LOGS, once it "
        "holds the file _SUCCESS"
    ),
]


@app.command()
@command
def begin(launch: LaunchName, as_json: AsJson = False) -> None:
    """Give the approved model to its share of devices, once, and show the state of the experiment.

    Example: tacit experiment begin en-US-0123abcd
    """
    from pipeline.experiments.decide import begin as core

    _show(core(*open_existing(launch)), as_json)


@app.command()
@command
def status(launch: LaunchName, as_json: AsJson = False) -> None:
    """Show the state of an experiment: shares of both arms, the days that count, and missing logs.

    Example: tacit experiment status en-US-0123abcd
    """
    from pipeline.experiments.decide import status as core

    _show(core(*open_existing(launch)), as_json)


def _show(now: "ExperimentStatus", as_json: bool) -> None:
    from pipeline.experiments.decide import FINISHED

    ended = f"{now.ended}, " if now.ended else ""
    lines = [f"experiment of {now.launch_id}: {ended}{now.detail}"]
    if now.ended is None:
        lines.append(f"days:    {'over' if now.over else 'not over'}")
        lines.append(f"logs:    {'all here' if now.arrived else f'not marked as complete by {FINISHED}'}, {now.logs}")
    answer(now, as_json, text="\n".join(lines))


@app.command()
@command
def decide(launch: LaunchName, logs: Logs = None, as_json: AsJson = False) -> None:
    """Decide an experiment whose days are over, once: all devices get the model (exit 0), or none does (exit 3).

    Before its days are over it exits with 75: retry later. If already decided, it completes an interrupted decision.

    Example: tacit experiment decide en-US-0123abcd --logs 'logs/*.parquet'
    """
    from pipeline.experiments.decide import decide as core
    from pipeline.publication.approvals import announce

    config, run, here = open_existing(launch)
    done = core(config, run, here, logs or (), settings.account())
    announce(config, run, here)
    _answer(run.launch_id, done, as_json)


@app.command()
@command
def stop(
    launch: LaunchName,
    *,
    reason: Annotated[str, typer.Option(help="reason, recorded in the ledger")],
    as_json: AsJson = False,
) -> None:
    """Stop an experiment: users keep their present model, whatever its logs show. Exits with 3.

    Example: tacit experiment stop en-US-0123abcd --reason "crashes on old phones"
    """
    from pipeline.experiments.decide import stop as core
    from pipeline.publication.approvals import announce

    config, run, here = open_existing(launch)
    done = core(config, run, here, settings.account(), reason)
    announce(config, run, here)
    _answer(run.launch_id, done, as_json)


@app.command()
@command
def simulate(
    launch: LaunchName,
    out: Annotated[Path | None, typer.Option(help="a folder; default: the one that 'decide' reads")] = None,
    as_json: AsJson = False,
) -> None:
    """Rehearse an experiment: write logs of its days by simulated typists, who type public text in both arms.

    Simulated logs can decide only an experiment on a simulated population.

    Example: tacit experiment simulate demo-en-US-0123abcd
    """
    from pipeline.experiments.simulate import simulate_logs

    config, run, here = open_existing(launch)
    made = simulate_logs(config, run, here, out)
    text = (
        f"{len(made.files)} days in {made.folder}; evaluate: tacit experiment look {made.launch_id} --logs "
        f"'{made.folder}/*.parquet'"
    )
    answer(made, as_json, text=text)


@app.command()
@command
def look(launch: LaunchName, logs: Logs = None, as_json: AsJson = False) -> None:
    """Show the results of an experiment's logs up to now; it decides nothing.

    Example: tacit experiment look en-US-0123abcd --logs 'logs/*.parquet'
    """
    from pipeline.experiments.decide import look as core

    config, run, here = open_existing(launch)
    seen, _ = core(config, run, here, logs or ())
    content = {"launch_id": run.launch_id, **seen.model_dump(mode="json", exclude=_EMPTY)}
    answer(content, as_json, text="\n".join(_lines(seen)))


def _answer(launch_id: str, done: "DecisionResult", as_json: bool) -> None:
    from pipeline.experiments.gate import GATES
    from pipeline.publication.launches import failed_gates

    rolled_back = done.decision == "roll back"
    failed = () if done.look is None else failed_gates((gate.model_dump() for gate in done.look.gates), GATES)
    content = {
        "launch_id": launch_id,
        "decision": done.decision,
        "by": done.by,
        "reasons": done.reasons,
        "failed_gates": failed,
        "look": None if done.look is None else done.look.model_dump(mode="json", exclude=_EMPTY),
    }
    text = [f"experiment of {launch_id}: {done.decision}, by {done.by}"]
    text += gate_lines(failed) or [f"  - {reason}" for reason in done.reasons]
    if rolled_back:
        text.append(
            "next:    users keep their present model; a changed launch file is another launch, with its own experiment"
        )
    if done.look is not None:
        text += ["", *_lines(done.look)]
    answer(content, as_json, text="\n".join(text))
    if rolled_back:
        raise typer.Exit(HELD)


def _lines(seen: "Look") -> list[str]:
    """Format days, buckets, every metric of both arms with its relative change, and the gates."""
    from evaluation.comparison.verdicts import LOWER_IS_BETTER
    from pipeline.experiments.logs import CONTROL, TREATMENT
    from reports.formats import metric_name

    page = [
        f"days {seen.first_day} to {seen.last_day}, logs until {seen.logged_until}"
        + (", of simulated users" if seen.simulated else ""),
        f"{seen.treated_buckets:,} of {seen.buckets:,} buckets had the model, {seen.share:.2%} expected "
        f"(p-value {seen.split_chance:.3g})",
        "",
        f"{'':<{_NAME}}{'control':>18}{'with the model':>18}  relative change (95%)",
    ]
    arms = {(row.arm, row.metric): row for row in seen.arms}
    for row in seen.differences:
        cells = "".join(f"{_value(arms[arm, row.metric]):>18}" for arm in (CONTROL, TREATMENT))
        less = " (less is better)" if row.metric in LOWER_IS_BETTER else ""
        page.append(f"{metric_name(row.metric) + less:<{_NAME}}{cells}  {_change(row.relative)}")
    page += [f"no interval: {', '.join(map(metric_name, seen.undefined))}"] if seen.undefined else []
    page += ["", *(f"{'ok' if gate.passed else 'NOT':>4}  {gate.title}: {gate.evidence}" for gate in seen.gates)]
    if not seen.over:
        page.append("an interim result: it decides nothing, and repeated looks lower the coverage of its intervals")
    return page


def _value(row: "ArmMetric") -> str:
    scale, unit = (1, "") if row.metric == "words_per_minute" else (100, "%")
    return f"{scale * row.value:.2f}{unit} ± {scale * (row.high - row.low) / 2:.2f}"


def _change(relative: Mapping[str, float] | None) -> str:
    if relative is None:
        return "none: the control has none"
    # Zero has no sign.
    value, low, high = (round(relative[name], 4) + 0.0 for name in ("value", "low", "high"))
    return f"{value:+.2%} ({low:+.2%} to {high:+.2%})"
