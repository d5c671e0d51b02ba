"""Mechanisms of private training: one object holds strategy, sensitivity and noise.

Each has the same few methods (see ``Tree``): ``init``, ``noise``, ``sensitivity_squared``,
``save`` and ``load``. ``federated.rounds.privatize`` adds what they make to a round's sum; after multiplication
by the strategy a run is one Gaussian release, so its event is the same for all and stands in
``federated.accounting.guarantees``.
"""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from federated.config.mechanism import BandedMechanism, MechanismConfig
from federated.mechanisms.banded import Banded, BandedState
from federated.mechanisms.blt import Blt, BltState
from federated.mechanisms.independent import Independent, IndependentState
from federated.mechanisms.tree import Tree, TreeState

Mechanism = Tree | Blt | Banded | Independent
KINDS = {"tree": Tree, "blt": Blt, "banded": Banded, "independent": Independent}
MechanismState = TreeState | BltState | BandedState | IndependentState


@functools.lru_cache(maxsize=8)
def build(config: MechanismConfig) -> Mechanism:
    """The mechanism that a launch file names.

    A banded one is searched for, which takes minutes for 2,000 rounds with a column each; a launch
    does it once, in its plan, and keeps the result in a mechanism file.
    """
    match config.kind:
        case "tree":
            return Tree(config.noise_multiplier, config.restarts)
        case "blt":
            return Blt(config.noise_multiplier, config.theta, config.omega, config.restarts)
        case "banded":
            from federated.mechanisms.optimise_banded import optimise_banded  # scipy's optimisers: half a second

            limits = (config.rounds, config.min_sep, config.max_participations)
            return replace(
                optimise_banded(*limits, config.bands, config.form, loss="model").strategy,
                noise_multiplier=config.noise_multiplier,
            )
        case "independent":
            rate = config.report_goal / config.population
            return Independent(config.noise_multiplier, config.sampling, rate, config.population)


def fits(config: MechanismConfig, mechanism: Mechanism) -> bool:
    """Return whether a mechanism, as from a mechanism file, matches a launch file.

    A banded strategy is searched for, and a search ends a little differently on another machine; what its
    guarantee rests on is the matrix in the file.
    """
    match config, mechanism:
        case BandedMechanism(), Banded():
            asked = (config.rounds, config.bands, config.noise_multiplier)
            return asked == (mechanism.rounds, mechanism.bands, mechanism.noise_multiplier)
        case (BandedMechanism(), _) | (_, Banded()):
            return False
        case _:
            return build(config) == mechanism


def sensitivity_squared(config: MechanismConfig) -> float:
    """Sensitivity of the whole run at the enforced limits, in clip norms squared; searched for only where it must be.

    A banded strategy of free columns has columns of norm 1, of which no device meets two that overlap.
    """
    if isinstance(config, BandedMechanism) and config.form != "toeplitz":
        return float(config.max_participations)
    return build(config).sensitivity_squared(config.rounds, config.min_sep, config.max_participations)


def whitener(
    mechanism: Mechanism, rounds: int, of_tree: Callable[..., np.ndarray], of_coefficients: Callable[..., np.ndarray]
) -> np.ndarray:
    """Matrix that makes the noise of the released sums independent again, ``[T, T]``.

    Args:
      of_tree: from rounds and restarts. of_coefficients: from a Toeplitz strategy's coefficients and restarts.
        An audit brings its own, so that it does not share a mistake of the code that makes the noise.
    """
    match mechanism:
        case Tree():
            return of_tree(rounds, mechanism.restarts)
        case Blt():
            return of_coefficients(mechanism.coefficients(rounds), mechanism.restarts)
        case Banded():
            return mechanism.matrix()[:rounds, :rounds]
        case Independent():
            return np.eye(rounds)


def begins_anew(mechanism: Mechanism, round_number: int) -> bool:
    """Return whether no noise of earlier rounds is still to be cancelled: only here may the clip norm change."""
    match mechanism:
        case Independent():
            return True
        case Banded():
            return round_number == 0
        case _:
            return round_number == 0 or round_number in mechanism.restarts
