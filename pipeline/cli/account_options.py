"""What ``tacit account`` is given: its options, and how they become a mechanism and its limits.

Every problem is one line that names the option, the value and the fix.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pipeline.cli.support import open_existing

if TYPE_CHECKING:
    from federated.accounting.guarantees import Guarantee
    from federated.mechanisms import Mechanism

Rounds = Annotated[int | None, typer.Option(help="rounds of training")]
NoiseMultiplier = Annotated[
    float | None,
    typer.Option(help="noise std per clip norm, before the sensitivity; not comparable between mechanisms"),
]
MinSep = Annotated[int | None, typer.Option(help="rounds from one participation to the next, at least")]
Mins = Annotated[int | None, typer.Option(help="the papers' MinS, rounds strictly between: min_sep - 1")]
MaxParticipations = Annotated[int | None, typer.Option(help="rounds one device may join (MaxP)")]
Restarts = Annotated[str, typer.Option(help="rounds at which the noise begins anew: 128,1152")]
Delta = Annotated[list[float] | None, typer.Option(help="may be given several times; default 1e-10")]
MechanismFile = Annotated[
    Path | None,
    typer.Option("--mechanism", metavar="FILE", help="a mechanism file; it says the noise and the strategy"),
]
OfRun = Annotated[str | None, typer.Option("--run", help="instead of all others: a launch that has trained")]

DEFAULT_DELTA = 1e-10
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Limits:
    """What a device may do in a run."""

    rounds: int
    min_sep: int
    max_participations: int


def limits(rounds: int | None, min_sep: int | None, mins: int | None, max_participations: int | None) -> Limits:
    """Three limits that patterns can keep to; ValueError with the option and the fix otherwise."""
    from federated.mechanisms.sensitivity import check_pattern

    needed("rounds", rounds)
    if (min_sep is None) == (mins is None):
        raise ValueError("min-sep: give either --min-sep or --mins (= min_sep - 1), and not both")
    if mins is not None and mins < 0:
        raise ValueError(f"mins: got {mins}; rounds strictly between two participations are 0 or more")
    needed("max-participations", max_participations)
    given = Limits(rounds, mins + 1 if min_sep is None else min_sep, max_participations)
    check_pattern(given.rounds, given.min_sep, given.max_participations)
    return given


def needed(name: str, value: "_Value | None") -> "_Value":
    """The option's value; ValueError if it was not given."""
    if value is None:
        raise ValueError(f"{name}: missing; give --{name}, or --run ID of a launch that has trained")
    return value


def multiplier(noise_multiplier: float | None) -> float:
    """A noise multiplier that adds noise."""
    if not 0 < needed("noise-multiplier", noise_multiplier) < math.inf:
        raise ValueError(f"noise-multiplier: got {noise_multiplier}; give a finite number above 0")
    return noise_multiplier


def restart_rounds(text: str, rounds: int) -> tuple[int, ...]:
    """Rising rounds inside the run."""
    starts = tuple(int(number) for number in numbers("restarts", text, int))
    if list(starts) != sorted(set(starts)) or any(not 0 < start < rounds for start in starts):
        raise ValueError(
            f"restarts: {text} must rise and lie between 1 and {rounds - 1}, the rounds of this run; "
            "leave out those it never reaches"
        )
    return starts


def numbers(name: str, text: str, kind: type) -> tuple[float, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(kind(item) for item in text.split(",") if item.strip())
    except ValueError as error:
        example = "128,1152" if kind is int else "0.99,0.5"
        raise ValueError(f"{name}: got {text!r}; give numbers with commas, as in {example}") from error


def checked_deltas(deltas: list[float] | None) -> tuple[float, ...]:
    """The deltas asked for, or the default; each between 0 and 1."""
    for delta in deltas or ():
        if not 0 < delta < 1:
            raise ValueError(f"delta: got {delta:g}; give a number between 0 and 1, as in 1e-10")
    return tuple(deltas or (DEFAULT_DELTA,))


def alone(option: str, others: dict[str, object]) -> None:
    """ValueError if options were given that ``option`` already answers."""
    given = [f"--{name}" for name, value in others.items() if value not in (None, "", [])]
    if given:
        raise ValueError(f"{given[0][2:]}: --{option} says this already; leave out {', '.join(given)}")


def from_file(path: Path, kind: str) -> "Mechanism":
    """The mechanism of a file, if it is of the command's kind."""
    from federated.mechanisms import mechanism_file as files

    if not path.is_file():
        raise ValueError(f"mechanism: {path} does not exist; write one with 'tacit optimize', or name a launch's")
    mechanism = files.load(path)
    found = type(mechanism).__name__.lower()
    if found != kind:
        raise ValueError(f"mechanism: {path} holds kind {found}; use: tacit account {found} --mechanism {path}")
    return mechanism


def of_limits(given: Limits, deltas: list[float] | None, build: "Callable[[], Mechanism]") -> "Guarantee":
    """The guarantee of a mechanism for any run within the limits."""
    from federated.accounting import guarantees as accounting

    wanted = checked_deltas(deltas)
    return accounting.guarantee_of(build(), given.rounds, given.min_sep, given.max_participations, wanted)


def of_run(run: str, kind: str, deltas: list[float] | None) -> "Guarantee":
    """The guarantee of a launch that has trained, from what happened in it."""
    config, folder, _ = open_existing(run)
    used = config.mechanism.kind
    if used != kind:
        raise ValueError(f"run: {run} used kind {used}; use: tacit account {used} --run {run}")
    wanted = checked_deltas(deltas) if deltas else ()
    from pipeline.verify import guarantee_again

    return guarantee_again(config, folder, wanted)
