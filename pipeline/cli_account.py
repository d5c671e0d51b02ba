"""``tacit account``: guarantees without running anything."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli_support import AsJson, answer, command, open_existing
from pipeline.display import round_up

if TYPE_CHECKING:
    from federated.accounting import Guarantee
    from federated.mechanisms import Mechanism

app = typer.Typer(
    no_args_is_help=True,
    help="The guarantee of a mechanism. Example: tacit account tree --noise-multiplier 7 --rounds 1000 "
    "--min-sep 300 --max-participations 4 --delta 1e-10",
)


Rounds = Annotated[int | None, typer.Option(help="rounds of training")]
NoiseMultiplier = Annotated[
    float | None,
    typer.Option(help="noise std per clip norm, before the sensitivity; not comparable between mechanisms"),
]
MinSep = Annotated[int | None, typer.Option(help="rounds from one participation to the next, at least")]
Mins = Annotated[int | None, typer.Option(help="the papers' MinS, rounds strictly between: min_sep - 1")]
MaxParticipations = Annotated[int | None, typer.Option(help="rounds one device may join (MaxP)")]
Delta = Annotated[list[float] | None, typer.Option(help="may be given several times; default 1e-10")]
OfRun = Annotated[str | None, typer.Option("--run", help="instead of all others: a launch that has trained")]


@app.command()
@command
def tree(
    rounds: Rounds = None,
    noise_multiplier: NoiseMultiplier = None,
    min_sep: MinSep = None,
    mins: Mins = None,
    max_participations: MaxParticipations = None,
    restarts: Annotated[str, typer.Option(help="rounds at which the tree starts anew: 128,1152")] = "",
    delta: Delta = None,
    run: OfRun = None,
    as_json: AsJson = False,
) -> None:
    """Tree aggregation with Honaker's estimate, by device under zero-out adjacency.

    Example: tacit account tree --noise-multiplier 7 --rounds 1000 --min-sep 300 --max-participations 4 --delta 1e-10
    """
    from federated.mechanisms import Tree

    starts = tuple(int(number) for number in _numbers("restarts", restarts, int))
    limits = _limits(rounds, noise_multiplier, min_sep, mins, max_participations) if run is None else None
    reached = _reached(run, limits, lambda multiplier: Tree(multiplier, starts), delta)
    content, text = _guarantee(reached)
    answer(content, as_json, text)


@app.command()
@command
def blt(
    rounds: Rounds = None,
    noise_multiplier: NoiseMultiplier = None,
    min_sep: MinSep = None,
    mins: Mins = None,
    max_participations: MaxParticipations = None,
    preset: Annotated[str | None, typer.Option(help="min-sep-100, min-sep-400 or min-sep-1000")] = None,
    theta: Annotated[str, typer.Option(help="buffer decays: 0.99,0.5")] = "",
    omega: Annotated[str, typer.Option(help="output scales: 0.1,0.2")] = "",
    delta: Delta = None,
    run: OfRun = None,
    as_json: AsJson = False,
) -> None:
    """A buffered linear Toeplitz mechanism (McMahan et al. 2024), by device under zero-out adjacency.

    Example: tacit account blt --preset min-sep-400 --noise-multiplier 7.379 --rounds 1280 --mins 300
    --max-participations 4 --delta 1e-10
    """
    from federated.mechanisms import PRESETS, Blt

    limits = _limits(rounds, noise_multiplier, min_sep, mins, max_participations) if run is None else None
    if run is None and (preset is None) == (not theta):
        raise ValueError("preset: give either --preset, or --theta and --omega")
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"preset: {preset!r} does not exist; choose one of {', '.join(PRESETS)}")
    decays, scales = _numbers("theta", theta, float), _numbers("omega", omega, float)
    if preset is not None:
        decays, scales = PRESETS[preset].theta, PRESETS[preset].omega
    reached = _reached(run, limits, lambda multiplier: Blt(multiplier, decays, scales), delta)
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


def _limits(
    rounds: int | None,
    noise_multiplier: float | None,
    min_sep: int | None,
    mins: int | None,
    max_participations: int | None,
) -> tuple[float, int, int, int]:
    """Noise multiplier, rounds, min_sep and max_participations, all given."""
    if (min_sep is None) == (mins is None):
        raise ValueError("min-sep: give either --min-sep or --mins (= min_sep - 1), and not both")
    needed = {"rounds": rounds, "noise-multiplier": noise_multiplier, "max-participations": max_participations}
    missing = [f"--{name}" for name, value in needed.items() if value is None]
    if missing:
        raise ValueError(f"{missing[0][2:]}: missing; give {', '.join(missing)}, or --run ID of a launch")
    if not noise_multiplier > 0:
        raise ValueError(f"noise-multiplier: got {noise_multiplier}; give a number above 0")
    return noise_multiplier, rounds, mins + 1 if min_sep is None else min_sep, max_participations


def _reached(
    run: str | None,
    limits: tuple[float, int, int, int] | None,
    build: Callable[[float], "Mechanism"],
    deltas: list[float] | None,
) -> "Guarantee":
    """The guarantee of a launch that has trained, or of a mechanism at the given limits."""
    from federated import accounting

    if limits is None:
        config, folder, _ = open_existing(run)
        from pipeline.verify import observed

        return accounting.from_records(config.mechanism, observed(folder.result("fine_tune")), tuple(deltas or ()))
    multiplier, rounds, min_sep, max_participations = limits
    return accounting.guarantee_of(build(multiplier), rounds, min_sep, max_participations, tuple(deltas or (1e-10,)))


def _numbers(name: str, text: str, kind: type) -> tuple[float, ...]:
    try:
        return tuple(kind(item) for item in text.split(",") if item.strip())
    except ValueError as error:
        example = "128,1152" if kind is int else "0.99,0.5"
        raise ValueError(f"{name}: got {text!r}; give numbers with commas, as in {example}") from error


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
