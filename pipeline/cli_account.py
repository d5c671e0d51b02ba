"""``tacit account`` and ``tacit plan``: guarantees without running anything."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline import settings
from pipeline.cli_support import AsJson, LaunchPath, answer, command, open_existing, read_launch
from pipeline.config import LaunchConfig, launch_id
from pipeline.display import round_up
from pipeline.run_dir import RunDir

if TYPE_CHECKING:
    from federated.accounting import Guarantee

app = typer.Typer(
    no_args_is_help=True,
    help="The guarantee of a mechanism. Example: tacit account tree --noise-multiplier 7 --rounds 1000 "
    "--min-sep 300 --max-participations 4 --delta 1e-10",
)


@app.command()
@command
def tree(
    rounds: Annotated[int | None, typer.Option(help="rounds of training")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="noise std per clip norm, of one tree node")] = None,
    min_sep: Annotated[int | None, typer.Option(help="rounds from one participation to the next, at least")] = None,
    mins: Annotated[int | None, typer.Option(help="the papers' MinS, rounds strictly between: min_sep - 1")] = None,
    max_participations: Annotated[int | None, typer.Option(help="rounds one device may join (MaxP)")] = None,
    restarts: Annotated[str, typer.Option(help="rounds at which the tree starts anew: 128,1152")] = "",
    delta: Annotated[list[float] | None, typer.Option(help="may be given several times; default 1e-10")] = None,
    run: Annotated[str | None, typer.Option("--run", help="instead of all others: a launch that has trained")] = None,
    as_json: AsJson = False,
) -> None:
    """Tree aggregation with Honaker's estimate, by device under zero-out adjacency.

    Example: tacit account tree --noise-multiplier 7 --rounds 1000 --min-sep 300 --max-participations 4 --delta 1e-10
    """
    if run is not None:
        config, folder, _ = open_existing(run)
        from federated import accounting
        from pipeline.verify import observed

        reached = accounting.from_records(config.mechanism, observed(folder.result("fine_tune")))
    else:
        if (min_sep is None) == (mins is None):
            raise ValueError("min-sep: give either --min-sep or --mins (= min_sep - 1), and not both")
        needed = {"rounds": rounds, "noise-multiplier": noise_multiplier, "max-participations": max_participations}
        missing = [f"--{name}" for name, value in needed.items() if value is None]
        if missing:
            raise ValueError(f"{missing[0][2:]}: missing; give {', '.join(missing)}, or --run ID of a launch")
        separation = mins + 1 if min_sep is None else min_sep
        reached = _tree(rounds, noise_multiplier, separation, max_participations, restarts, tuple(delta or (1e-10,)))
    content, text = _guarantee(reached)
    answer(content, as_json, text)


@app.command()
@command
def shuffle(
    epsilon0: Annotated[float, typer.Option(help="local epsilon of one message")],
    messages: Annotated[int, typer.Option(help="messages of one layer that were received")],
    delta: Annotated[float, typer.Option(help="delta of the central statement")],
    as_json: AsJson = False,
) -> None:
    """Central epsilon of shuffled local messages, by hiding among the clones (Feldman et al. 2021).

    Example: tacit account shuffle --epsilon0 4 --messages 100000 --delta 1e-8
    """
    from discovery import amplification

    epsilon = amplification.clones(epsilon0, messages, delta)
    content = {"epsilon0": epsilon0, "messages": messages, "delta": delta, "clones": epsilon}
    answer(content, as_json, text=f"epsilon {round_up(epsilon)} at delta {delta:g}, item level, swap adjacency")


@command
def plan(
    file: LaunchPath,
    devices: Annotated[
        int | None, typer.Option(help="train devices of the population; default: what was ingested")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Worst-case guarantee of a launch file, from its enforced bounds alone.

    Example: tacit plan dags/launches/demo-en-US.yaml --devices 900
    """
    from federated import plan as core

    config = read_launch(file)
    planned = core.plan(config.mechanism, devices if devices is not None else _ingested(config))
    content, text = _guarantee(planned.guarantee)
    content |= {"feasible": planned.feasible, "reasons": list(planned.reasons)}
    content["alternatives"] = [asdict(row) for row in planned.alternatives]
    verdict = "feasible" if planned.feasible else "not feasible: " + "; ".join(planned.reasons)
    answer(content, as_json, text=f"{text}\n{verdict}")


def _ingested(config: LaunchConfig) -> int:
    record = RunDir(settings.load().runs_dir, launch_id(config)).record("ingest_private")
    if record is None:
        raise ValueError("devices: unknown before 'ingest_private' ran; give an estimate, as in --devices 100000")
    return record.result["devices_by_split"]["train"]


def _tree(
    rounds: int,
    noise_multiplier: float,
    min_sep: int,
    max_participations: int,
    restarts: str,
    deltas: tuple[float, ...],
) -> "Guarantee":
    if not noise_multiplier > 0:
        raise ValueError(f"noise-multiplier: got {noise_multiplier}; give a number above 0")
    try:
        starts = tuple(int(item) for item in restarts.split(",") if item.strip())
    except ValueError as error:
        raise ValueError(f"restarts: got {restarts!r}; give round numbers with commas, as in 128,1152") from error
    from federated import accounting
    from federated.mechanisms import Tree

    mechanism = Tree(noise_multiplier=noise_multiplier, restarts=starts)
    return accounting.guarantee_of(mechanism, rounds, min_sep, max_participations, deltas)


def _guarantee(reached: "Guarantee") -> tuple[dict, str]:
    content = {
        "sensitivity_squared": reached.sensitivity_squared,
        "rho": reached.rho,
        "mu": reached.mu,
        "epsilon": {f"{delta:g}": value for delta, value in reached.epsilon.items()},
        "method": "; ".join(reached.methods),
        "unit": reached.unit,
        "adjacency": reached.adjacency,
    }
    lines = [f"rho {reached.rho:.6g} (zCDP), mu {reached.mu:.6g} (GDP), sensitivity^2 {reached.sensitivity_squared:g}"]
    lines += [f"epsilon {round_up(value)} at delta {delta:g}" for delta, value in reached.epsilon.items()]
    return content, "\n".join([*lines, f"per {reached.unit}, {reached.adjacency} adjacency"])
