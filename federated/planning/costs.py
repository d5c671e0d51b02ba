"""Privacy cost of each mechanism at the same noise-to-signal ratio.

Symbols: T rounds, b ``min_sep``, k ``max_participations``, m ``report_goal``, z noise multiplier.

The model after round t holds the sum of the first t mean updates. With strategy C that sum carries
Gaussian noise, whose standard deviation per coordinate is, as a root mean square over t and in clip
norms, ``z * RmsErr(C) / m``. This *noise-to-signal ratio* decides utility whatever C is, so plans
and mechanisms are compared at the same ratio (Xu et al. 2023, section 2.5: z and m grow together;
McMahan et al. 2024, section 5). Then ``rho = sens^2 / (2 z^2) = (sens * RmsErr / (ratio * m))^2 / 2``.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from scipy.optimize import minimize

from federated import mechanisms
from federated.config.mechanism import MATRIX_ROUNDS, MechanismConfig
from federated.mechanisms.banded import from_coefficients, toeplitz_rms_error
from federated.mechanisms.blt import Blt
from federated.mechanisms.optimise_banded import fhu_coefficients, optimise_banded, toeplitz_objective
from federated.mechanisms.optimise_blt import optimise_blt
from federated.mechanisms.tree import Tree


@dataclass(frozen=True)
class Strategy:
    """A mechanism without its noise multiplier, made for one pattern of participation.

    Attributes:
      kind: as in a launch file.
      label: for people, as in "BLT, 3 buffers".
      parameters: of the ``mechanism:`` block, beyond what all kinds share.
      rms_error: RmsErr of prefix sums per unit of noise.
      sensitivity_squared: exact, in clip norms squared.
      copies: numbers kept between rounds to make the noise, in copies of the model.
      searched_again: a launch searches for a better strategy of these parameters, see ``as_launched``.
    """

    kind: str
    label: str
    parameters: Mapping[str, object]
    rounds: int
    min_sep: int
    max_participations: int
    rms_error: float
    sensitivity_squared: float
    copies: int
    searched_again: bool = False

    @property
    def loss(self) -> float:
        """RmsLoss: RmsErr times sensitivity, the one number that rho depends on."""
        return self.rms_error * math.sqrt(self.sensitivity_squared)

    def noise_multiplier(self, ratio: float, report_goal: int) -> float:
        """z that gives this noise-to-signal ratio, rounded up to four digits so that it can be written down."""
        return round_up(ratio * report_goal / self.rms_error, 4)


def most_participations(rounds: int, min_sep: int) -> int:
    """Rounds that a device can join when two of them lie ``min_sep`` or more apart."""
    return -(-rounds // min_sep)


def round_up(value: float, digits: int) -> float:
    """The next number not below ``value`` that has this many significant digits."""
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    # Through decimal text, or 0.1 * 3 would come out as 0.30000000000000004.
    rounded = float(f"{math.ceil(round(value / step, 6)) * step:.{digits}g}")
    return rounded if rounded >= value else float(f"{rounded + step:.{digits}g}")


def noise_to_signal(config: MechanismConfig) -> float:
    """Ratio of a launch's mechanism block: ``z * RmsErr / m``, in clip norms per coordinate."""
    error = mechanisms.build(config).rms_error(config.rounds)
    return config.noise_multiplier * error / config.report_goal


@functools.cache
def tree(rounds: int, min_sep: int, max_participations: int, restarts: tuple[int, ...] = ()) -> Strategy:
    """Tree aggregation, streamed; ``restarts`` lower the sensitivity and raise the error."""
    made = Tree(1.0, restarts)
    spans = np.diff([0, *restarts, rounds])
    return Strategy(
        kind="tree",
        label=f"tree, {len(restarts)} restart{'s' * (len(restarts) != 1)}" if restarts else "tree",
        parameters=MappingProxyType({"restarts": restarts} if restarts else {}),
        rounds=rounds,
        min_sep=min_sep,
        max_participations=max_participations,
        rms_error=made.rms_error(rounds),
        sensitivity_squared=made.sensitivity_squared(rounds, min_sep, max_participations),
        # As many subtrees are open at once as the round's number has binary ones.
        copies=max(int(span).bit_length() - ((int(span) + 1).bit_count() > 1) for span in spans),
    )


@functools.cache
def tree_with_restarts(rounds: int, min_sep: int, max_participations: int) -> Strategy | None:
    """The tree that starts anew every power of two of rounds and has the least loss; None for short runs."""
    periods = [1 << level for level in range(2, rounds.bit_length()) if rounds / 32 <= 1 << level < rounds]
    trees = [tree(rounds, min_sep, max_participations, tuple(range(period, rounds, period))) for period in periods]
    return min(trees, key=lambda strategy: strategy.loss, default=None)


@functools.cache
def blt(rounds: int, min_sep: int, max_participations: int, buffers: int) -> Strategy:
    """The BLT of least RmsLoss for this pattern (McMahan et al. 2024, section 4)."""
    fit = optimise_blt(rounds, min_sep, max_participations, buffers, "rms")
    made = Blt(1.0, fit.theta, fit.omega)
    return Strategy(
        kind="blt",
        label=f"BLT, {buffers} buffers",
        parameters=MappingProxyType({"theta": fit.theta, "omega": fit.omega}),
        rounds=rounds,
        min_sep=min_sep,
        max_participations=max_participations,
        rms_error=made.rms_error(rounds),
        sensitivity_squared=made.sensitivity_squared(rounds, min_sep, max_participations),
        copies=buffers,
    )


@functools.cache
def banded(rounds: int, min_sep: int, max_participations: int, bands: int | None = None) -> Strategy:
    """The banded Toeplitz strategy of least RmsErr at unit norm; by default as many bands as ``min_sep`` allows."""
    bands = min(rounds, min_sep) if bands is None else bands
    coefficients_K = _toeplitz_coefficients(rounds, bands)
    made = from_coefficients(1.0, coefficients_K, rounds)
    return Strategy(
        kind="banded",
        label=f"banded, {bands} band{'s' * (bands != 1)}",
        parameters=MappingProxyType({"bands": bands}),
        rounds=rounds,
        min_sep=min_sep,
        max_participations=max_participations,
        rms_error=toeplitz_rms_error(coefficients_K, rounds),
        sensitivity_squared=made.sensitivity_squared(rounds, min_sep, max_participations),
        copies=bands - 1,
        searched_again=rounds <= MATRIX_ROUNDS,
    )


def as_launched(strategy: Strategy) -> Strategy:
    """The strategy that a launch makes of these parameters: banded noise of a short run has a column for each round.

    It is searched for once, as the plan ends: with seconds to spend on each of a plan's many report goals, the
    one column for all rounds, which is nearly as good, decides.
    """
    if not strategy.searched_again:
        return strategy
    limits = (strategy.rounds, strategy.min_sep, strategy.max_participations)
    best = optimise_banded(*limits, strategy.copies + 1)
    rms = best.strategy.rms_error(strategy.rounds)
    return replace(strategy, rms_error=rms, sensitivity_squared=best.sensitivity_squared)


def _toeplitz_coefficients(rounds: int, bands: int) -> np.ndarray:
    # As optimise_banded finds them, without its dense matrices, which a sweep over rounds cannot afford.
    free_L = fhu_coefficients(bands)[1:]
    if bands > 1:
        options = {"maxiter": 500, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-8}
        # A step of the search may reach a C whose inverse grows without bound; it then steps back.
        with np.errstate(over="ignore", invalid="ignore"):
            free_L = minimize(toeplitz_objective, free_L, (rounds,), "L-BFGS-B", jac=True, options=options).x
    coefficients_K = np.concatenate([[1.0], free_L])
    return coefficients_K / np.linalg.norm(coefficients_K)
