"""From a sensitivity to rho, mu and epsilon(delta), by two routes that must agree.

Route one is the exact curve of the Gaussian mechanism (``gaussian``). Route two hands the same
Gaussian to dp_accounting's privacy loss distributions, under its zero-out relation (``epsilon_by_losses``).
Correlated noise needs no other theory: after multiplication by C the release is one Gaussian of
sensitivity ``sens(C)`` and multiplier z (Kairouz et al. 2021, theorem 4.1).

Both routes start from one sensitivity, so a mistake there would pass both. It is therefore
computed twice too, by programs of different construction, wherever the second is affordable;
``Guarantee.methods`` says whether it was.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from federated import mechanisms
from federated.accounting.gaussian import epsilon_of_rho
from federated.config.mechanism import BandedMechanism, MechanismConfig
from federated.participation.observation import Observation
from federated.secagg.bounds import Encoding

if TYPE_CHECKING:
    from federated.accounting.amplification import AmplifiedGuarantee

AGREEMENT = 1e-3
METHODS = (
    "exact Gaussian curve at mu = sqrt(2 rho) (Balle and Wang 2018)",
    "privacy loss distribution, dp_accounting 0.6.0, REPLACE_SPECIAL (zero-out)",
)
SENSITIVITY_TWICE = "sensitivity was computed by two programs of different construction, which agree"
SENSITIVITY_COUNTED = "squared sensitivity of independent noise is the number of participations, from the records"
WITHOUT_ROUNDING = "rounding before secure aggregation is not counted: it depends on the size of the model"
SENSITIVITY_ONCE = "sensitivity was computed by one program alone: no second one, or too many patterns for it"


@dataclass(frozen=True)
class Guarantee:
    """Guarantee for one device. Every number is for the whole run.

    Attributes:
      sensitivity_squared: in clip norms squared, ``norm_inflation`` included.
      rho: zero-concentrated DP, ``sensitivity^2 / (2 z^2)``.
      mu: Gaussian DP, ``sqrt(2 rho)``.
      epsilon: delta -> epsilon by the exact Gaussian curve.
      epsilon_pld: delta -> epsilon by the second route; empty if not requested.
      norm_inflation: what rounding before secure aggregation may add to a device's norm, as a factor.
      amplified: what sampling gains, under an assumption of its own; None where nothing is sampled. The
        other numbers hold without it.
    """

    rounds: int
    min_sep: int
    max_participations: int
    sensitivity_squared: float
    rho: float
    mu: float
    epsilon: Mapping[float, float]
    epsilon_pld: Mapping[float, float]
    methods: tuple[str, ...]
    unit: str = "device"
    adjacency: str = "zero-out"
    norm_inflation: float = 1.0
    amplified: "AmplifiedGuarantee | None" = None


def account(
    config: MechanismConfig,
    deltas: Iterable[float] = (),
    mechanism: mechanisms.Mechanism | None = None,
    encoding: Encoding | None = None,
    *,
    twice: bool = True,
) -> Guarantee:
    """The worst case that the limits of a mechanism block allow, before any device takes part.

    Args:
      deltas: at which epsilon is stated; none for the block's own.
      mechanism: the one that makes the noise, from its mechanism file. Without it a banded strategy with a column for
        each round is not searched for: whichever is found has columns of norm 1 that do not overlap.
      encoding: of secure aggregation. Without it, what rounding adds to a norm is left out, and ``methods`` says so.
      twice: as in ``guarantee_of``.

    Raises:
      As ``guarantee_of``.
    """
    if mechanism is None and isinstance(config, BandedMechanism) and config.form == "matrix":
        mechanism = mechanisms.Banded(config.noise_multiplier, np.ones((config.rounds, 1)))
    reached = guarantee_of(
        mechanism or mechanisms.build(config),
        config.rounds,
        config.min_sep,
        config.max_participations,
        tuple(deltas) or (config.delta,),
        encoding,
        twice=twice,
    )
    if config.secagg is None or encoding is not None:
        return reached
    return replace(reached, methods=(*reached.methods, WITHOUT_ROUNDING))


def guarantee_of(
    mechanism: mechanisms.Mechanism,
    rounds: int,
    min_sep: int,
    max_participations: int,
    deltas: Iterable[float],
    encoding: Encoding | None = None,
    *,
    twice: bool = True,
) -> Guarantee:
    """The guarantee of ``rounds`` rounds in which every device kept to the two limits.

    Guarantee: zero-out adjacency, unit one device; holds for adaptively chosen updates. It does not
    count on anything being sampled; ``amplified`` does, for independent noise.

    Args:
      encoding: of secure aggregation; its rounding may lengthen a device's contribution.
      twice: whether to ask the second accountant, whose import takes a second or two. Whatever a launch
        commits, discloses or verifies does.

    Raises:
      ValueError: limits that cannot happen, or a delta outside (0, 1).
      ArithmeticError: the two routes disagree by more than ``AGREEMENT``, or the two
        sensitivities differ.
    """
    norm_inflation = 1.0 if encoding is None else encoding.inflated_norm
    deltas = tuple(deltas)
    # A longer contribution under the same noise is the same as the bound under less noise.
    accounted = replace(mechanism, noise_multiplier=mechanism.noise_multiplier / norm_inflation)
    squared = mechanism.sensitivity_squared(rounds, min_sep, max_participations)
    again = mechanism.second_sensitivity_squared(rounds, min_sep, max_participations)
    if again is not None and not math.isclose(squared, again, rel_tol=1e-9):
        raise ArithmeticError(
            f"sensitivity_squared: {squared:g} by one program but {again:g} by the other, for {rounds} rounds at "
            f"min_sep {min_sep} and max_participations {max_participations}; one of the programs is wrong, so this run "
            "must not be published"
        )
    rho = squared / (2 * accounted.noise_multiplier**2)
    exact = {delta: epsilon_of_rho(rho, delta) for delta in deltas}
    second = second_opinion([accounted.noise_multiplier / math.sqrt(squared)], exact) if twice else {}
    return Guarantee(
        rounds=rounds,
        min_sep=min_sep,
        max_participations=max_participations,
        sensitivity_squared=squared * norm_inflation**2,
        rho=rho,
        mu=math.sqrt(2 * rho),
        epsilon=exact,
        epsilon_pld=second,
        methods=(*METHODS[: 2 if twice else 1], _sensitivity_method(mechanism, again)),
        norm_inflation=norm_inflation,
        amplified=_amplified(accounted, rounds, deltas),
    )


def untrained(deltas: Iterable[float]) -> Guarantee:
    """The guarantee of a training that does not happen: no device loses anything to it."""
    none = dict.fromkeys(deltas, 0.0)
    return Guarantee(0, 1, 0, 0.0, 0.0, 0.0, none, none, METHODS)


def second_opinion(noise_multipliers: Sequence[float], exact: Mapping[float, float]) -> dict[float, float]:
    """Delta -> epsilon of Gaussian releases together, by the second accountant.

    Args:
      noise_multipliers: over the sensitivity of each release.
      exact: delta -> epsilon by the first.

    Raises:
      ArithmeticError: the two differ by more than ``AGREEMENT``.
    """
    second = epsilon_by_losses(noise_multipliers, exact)
    for delta, value in exact.items():
        # From exp(709) on its sums overflow, and its epsilon comes out up to 1 too large.
        if abs(value - second[delta]) > AGREEMENT * max(1.0, value) + (1.0 if value > 700 else 0.0):
            raise ArithmeticError(
                f"epsilon at delta {delta:g}: {value:.6f} by the Gaussian curve but {second[delta]:.6f} by the privacy "
                "loss distribution; one of the accountants is wrong, so this run must not be published"
            )
    return second


def epsilon_by_losses(noise_multipliers: Sequence[float], epsilon: Mapping[float, float]) -> dict[float, float]:
    """Epsilon of Gaussian releases together under dp_accounting's zero-out relation, for each delta.

    Args:
      noise_multipliers: standard deviation of the noise over the sensitivity, of each whole release.
      epsilon: delta -> epsilon by another accountant, which decides how fine the grid is.
    """
    # A grid that suits the loss: at the usual 1e-4 an epsilon of 3,000 takes minutes and gigabytes.
    grid = max(1e-4, max(epsilon.values(), default=0.0) / 1e5)
    return dict(zip(epsilon, _epsilons(tuple(noise_multipliers), tuple(epsilon), grid), strict=True))


@functools.lru_cache(maxsize=64)  # a launch and its verification compute the same, and it takes up to a second
def _epsilons(noise_multipliers: tuple[float, ...], deltas: tuple[float, ...], grid: float) -> tuple[float, ...]:
    import dp_accounting  # Takes seconds.
    from dp_accounting import pld

    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL, grid)
    for noise_multiplier in noise_multipliers:
        accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier))
    return tuple(float(accountant.get_epsilon(delta)) for delta in deltas)


def _sensitivity_method(mechanism: mechanisms.Mechanism, again: float | None) -> str:
    if mechanism.secret_sample:
        return SENSITIVITY_COUNTED
    return SENSITIVITY_ONCE if again is None else SENSITIVITY_TWICE


def _amplified(mechanism: mechanisms.Mechanism, rounds: int, deltas: tuple[float, ...]) -> "AmplifiedGuarantee | None":
    sample = mechanism.secret_sample
    if sample is None:
        return None
    from federated.accounting.amplification import amplified  # Imports dp_accounting: seconds.

    return amplified(sample.kind, mechanism.noise_multiplier, sample.rate, sample.population, rounds, deltas)


def from_records(
    config: MechanismConfig,
    observed: Observation,
    deltas: Iterable[float] = (),
    mechanism: mechanisms.Mechanism | None = None,
    encoding: Encoding | None = None,
) -> Guarantee:
    """The guarantee from observed rounds, separation and participations.

    A device that joined once only leaves no separation to observe; the enforced one is used,
    which the single participation makes irrelevant.

    Args:
      mechanism: the one that made the noise, from its mechanism file; None to build it.
      encoding: of secure aggregation; None without it.

    Raises:
      As ``guarantee_of``.
    """
    return guarantee_of(
        mechanism or mechanisms.build(config),
        rounds=observed.rounds,
        min_sep=min(observed.min_sep or config.min_sep, observed.rounds),
        max_participations=max(observed.max_participations, 1),
        deltas=tuple(deltas) or (config.delta,),
        encoding=encoding,
    )
