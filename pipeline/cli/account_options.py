"""What ``tacit account`` is asked: groups of options, and how they become a mechanism and its limits.

Each class is one group, which ``command`` turns into options of the command line. Every problem is one line that
names the option, the value and the fix.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar

import typer

from pipeline.cli.launches.named import complete
from pretrain.config import LEAST_AMOUNT, MOST_AMOUNT

if TYPE_CHECKING:
    from federated.mechanisms import Banded, Blt, Independent, Mechanism, Tree

_LEAST_DELTA = 1e-30
_Value = TypeVar("_Value")
_Number = TypeVar("_Number", int, float)

NoiseMultiplier = Annotated[
    float | None,
    typer.Option(help="noise std per clip norm, before the sensitivity; not comparable between mechanisms"),
]
Restarts = Annotated[str, typer.Option(help="rounds at which the noise begins anew: 128,1152")]


@dataclass(frozen=True)
class Limits:
    """Rounds of a run, and how far apart and how often a device may join them."""

    rounds: int
    min_sep: int
    max_participations: int


@dataclass(frozen=True)
class AnyRounds:
    """Options ``--rounds`` and ``--max-participations``, with no separation between participations."""

    rounds: Annotated[int | None, typer.Option(help="rounds of training")] = None
    max_participations: Annotated[int | None, typer.Option(help="rounds one device may join (MaxP)")] = None

    def limits(self) -> Limits:
        """Limits that patterns can keep to: every round, unless fewer are asked for."""
        rounds = needed("rounds", self.rounds)
        return _checked(Limits(rounds, 1, rounds if self.max_participations is None else self.max_participations))


@dataclass(frozen=True)
class SpacedRounds(AnyRounds):
    """Rounds of a run, of which those that a device joins lie apart."""

    min_sep: Annotated[int | None, typer.Option(help="rounds from one participation to the next, at least")] = None
    mins: Annotated[int | None, typer.Option(help="the papers' MinS, rounds strictly between: min_sep - 1")] = None

    def limits(self) -> Limits:
        """Limits that patterns can keep to."""
        rounds = needed("rounds", self.rounds)
        if self.mins is not None and self.mins < 0:
            raise ValueError(f"mins: got {self.mins}; rounds strictly between two participations are 0 or more")
        stated = [apart for apart in (self.min_sep, None if self.mins is None else self.mins + 1) if apart is not None]
        if len(stated) != 1:
            raise ValueError("min-sep: give either --min-sep or --mins (= min_sep - 1), and not both")
        return _checked(Limits(rounds, stated[0], needed("max-participations", self.max_participations)))


@dataclass(frozen=True)
class Source:
    """Where a mechanism comes from if not from options, and the deltas asked for."""

    launch: Annotated[
        str | None,
        typer.Argument(
            metavar="LAUNCH",
            help="instead of all options: a launch that has trained, by its file, its id or how that begins",
            autocompletion=complete,
        ),
    ] = None
    mechanism: Annotated[
        Path | None,
        typer.Option("--mechanism", metavar="FILE", help="a mechanism file; it says the noise and the strategy"),
    ] = None
    delta: Annotated[list[float] | None, typer.Option(help="may be given several times; default 1e-10")] = None
    twice: Annotated[
        bool, typer.Option("--twice", help="ask dp_accounting too, as a launch does: takes two seconds more")
    ] = False

    def deltas(self) -> tuple[float, ...]:
        """The deltas asked for, each between 0 and 1; none if none were."""
        for delta in self.delta or ():
            check_delta(delta)
        return tuple(self.delta or ())

    def read(self, kind: str) -> "Mechanism":
        """The mechanism of the file, if it is of the command's kind."""
        from federated.mechanisms import mechanism_file

        path = needed("mechanism", self.mechanism)
        mechanism = mechanism_file.load(path)
        holds = type(mechanism).__name__.lower()
        if holds != kind:
            raise ValueError(f"mechanism: {path} holds kind {holds}; use: tacit account {holds} --mechanism {path}")
        return mechanism


class Strategy(Protocol):
    """A mechanism's own options."""

    def build(self, within: Limits) -> "Mechanism":
        """The mechanism; ValueError with the option and the fix if there is none."""


@dataclass(frozen=True)
class TreeStrategy:
    """A tree's noise and its restarts."""

    noise_multiplier: NoiseMultiplier = None
    restarts: Restarts = ""

    def build(self, within: Limits) -> "Tree":
        """Tree aggregation with these options."""
        from federated.mechanisms import Tree

        return Tree(multiplier(self.noise_multiplier), restart_rounds(self.restarts, within.rounds))


@dataclass(frozen=True)
class BltStrategy:
    """A BLT's noise, buffers and restarts."""

    noise_multiplier: NoiseMultiplier = None
    preset: Annotated[str | None, typer.Option(help="min-sep-100, min-sep-400 or min-sep-1000")] = None
    theta: Annotated[str, typer.Option(help="buffer decays: 0.99,0.5")] = ""
    omega: Annotated[str, typer.Option(help="output scales: 0.1,0.2")] = ""
    restarts: Restarts = ""

    def build(self, within: Limits) -> "Blt":
        """A BLT of a preset or of the decays and scales stated."""
        from federated.config.blt_presets import PRESETS
        from federated.mechanisms import Blt

        z, starts = multiplier(self.noise_multiplier), restart_rounds(self.restarts, within.rounds)
        if (self.preset is None) == (not self.theta and not self.omega):
            raise ValueError("preset: give either --preset, or --theta and --omega")
        if self.preset is None:
            return Blt(z, numbers("theta", self.theta, float), numbers("omega", self.omega, float), starts)
        if self.preset not in PRESETS:
            raise ValueError(f"preset: {self.preset!r} does not exist; choose one of {', '.join(PRESETS)}")
        return Blt(z, PRESETS[self.preset].theta, PRESETS[self.preset].omega, starts)


@dataclass(frozen=True)
class BandedStrategy:
    """A banded strategy's noise, width and form."""

    noise_multiplier: NoiseMultiplier = None
    bands: Annotated[int | None, typer.Option(help="rounds whose noise is remembered; at most min_sep")] = None
    form: Annotated[Literal["matrix", "toeplitz"], typer.Option(help="BandMF, or one column for all rounds")] = "matrix"

    def build(self, within: Limits) -> "Banded":
        """The strategy of a launch, or for BandMF any with the same sensitivity: all have columns of norm 1."""
        import numpy as np

        from federated.config.mechanism import MOST_BANDED_ROUNDS, MOST_MATRIX_ROUNDS
        from federated.mechanisms.banded import from_coefficients, from_matrix
        from federated.mechanisms.optimise_banded import fhu_coefficients, optimise_banded

        z, bands, most = multiplier(self.noise_multiplier), self.bands, min(within.min_sep, within.rounds)
        if bands is None:
            raise ValueError(f"bands: missing; give --bands, at most {most}, or a file with --mechanism")
        if not 1 <= bands <= most:
            raise ValueError(
                f"bands: got {bands}; give 1 to {most}: with more than min_sep {within.min_sep} or the {within.rounds} "
                "rounds, two participations of a device would share noise"
            )
        widest = MOST_MATRIX_ROUNDS if self.form == "matrix" else MOST_BANDED_ROUNDS
        if within.rounds > widest:
            raise ValueError(f"rounds: got {within.rounds:,}; give at most {widest:,} with --form {self.form}")
        if self.form == "toeplitz":
            best = optimise_banded(within.rounds, within.min_sep, within.max_participations, bands, self.form)
            return replace(best.strategy, noise_multiplier=z)
        dense_NN = from_coefficients(z, fhu_coefficients(bands), within.rounds).matrix()
        return from_matrix(z, dense_NN / np.linalg.norm(dense_NN, axis=0), bands)


@dataclass(frozen=True)
class IndependentStrategy:
    """Independent noise, and how devices are sampled."""

    noise_multiplier: NoiseMultiplier = None
    sampling: Annotated[
        Literal["poisson", "fixed"] | None, typer.Option(help="a coin per device, or rounds of exactly report-goal")
    ] = None
    sampling_rate: Annotated[float | None, typer.Option(help="chance of a device to be in a round (poisson)")] = None
    population: Annotated[int | None, typer.Option(help="devices sampled from, at least")] = None
    report_goal: Annotated[int | None, typer.Option(help="devices of a round; with population, the rate")] = None

    def build(self, within: Limits) -> "Independent":
        """Independent noise for devices sampled at the rate, or at the one of population and report goal."""
        from federated.config.mechanism import MOST_DEVICES
        from federated.mechanisms import Independent

        z = multiplier(self.noise_multiplier)
        sampling: Literal["poisson", "fixed"] = needed("sampling", self.sampling)
        rate = self.sampling_rate
        if sampling == "fixed" and rate is not None:
            raise ValueError("sampling-rate: rounds of a fixed size need --population and --report-goal instead")
        if rate is not None:
            alone("--sampling-rate", {"population": self.population, "report-goal": self.report_goal})
            if not 1 / MOST_DEVICES <= rate <= 1:
                raise ValueError(f"sampling-rate: got {rate:g}; give a number above 0 and at most 1, as in 0.01")
            # Poisson sampling is accounted by its rate alone; this is the smallest population with a device a round.
            return Independent(z, "poisson", rate, max(1, round(1 / rate)))
        devices, goal = needed("population", self.population), needed("report-goal", self.report_goal)
        if not 1 <= devices <= MOST_DEVICES:
            raise ValueError(f"population: got {devices:,}; give 1 to {MOST_DEVICES:,}")
        if not 1 <= goal <= devices:
            raise ValueError(f"report-goal: got {goal}; give 1 to {devices}, the population")
        return Independent(z, sampling, goal / devices, devices)


def stated(*groups: AnyRounds | Strategy) -> dict[str, object]:
    """The options of some groups that differ from their defaults, by name."""
    return {
        field.name.replace("_", "-"): getattr(group, field.name)
        for group in groups
        for field in fields(group)  # type: ignore[arg-type]  # a protocol cannot say that it is a dataclass
        if getattr(group, field.name) != field.default
    }


def alone(option: str, others: Mapping[str, object]) -> None:
    """ValueError if options are stated that another one, or the launch that was named, already answers."""
    doubled = [f"--{name}" for name, value in others.items() if value is not None]
    if doubled:
        raise ValueError(f"{doubled[0][2:]}: {option} says this already; leave out {', '.join(doubled)}")


def needed(name: str, value: _Value | None) -> _Value:
    """The option's value; ValueError if there is none."""
    if value is None:
        raise ValueError(f"{name}: missing; give --{name}, or name a launch that has trained")
    return value


def multiplier(noise_multiplier: float | None) -> float:
    """A noise multiplier that adds noise."""
    value = needed("noise-multiplier", noise_multiplier)
    if not LEAST_AMOUNT <= value <= MOST_AMOUNT:
        raise ValueError(
            f"noise-multiplier: got {value}; give a finite number above 0, from {LEAST_AMOUNT:g} to {MOST_AMOUNT:g}"
        )
    return value


def check_delta(delta: float) -> None:
    """ValueError unless certificates can be computed at it."""
    if not _LEAST_DELTA <= delta < 1:
        raise ValueError(
            f"delta: got {delta:g}; give a number between 0 and 1, as in 1e-10, and not below {_LEAST_DELTA:g}"
        )


def restart_rounds(text: str, rounds: int) -> tuple[int, ...]:
    """Rising rounds inside the run."""
    starts = numbers("restarts", text, int)
    if list(starts) != sorted(set(starts)) or any(not 0 < start < rounds for start in starts):
        raise ValueError(
            f"restarts: {text} must rise and lie between 1 and {rounds - 1}, the rounds of this run; "
            "leave out those it never reaches"
        )
    return starts


def numbers(name: str, text: str, kind: type[_Number]) -> tuple[_Number, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(kind(item) for item in text.split(",") if item.strip())
    except ValueError as error:
        example = "128,1152" if kind is int else "0.99,0.5"
        raise ValueError(f"{name}: got {text!r}; give numbers with commas, as in {example}") from error


def _checked(limits: Limits) -> Limits:
    from federated.mechanisms.sensitivity import check_pattern

    check_pattern(limits.rounds, limits.min_sep, limits.max_participations)
    return limits
