"""Independent noise with amplification by sampling: the epsilon of DP-FedAvg and DP-FedSGD.

Poisson rounds (every device joins by its own coin; McMahan et al. 2018) are accounted twice, by
programs that share nothing: privacy loss distributions, and Renyi orders by a closed form
(Mironov, Talwar and Zhang 2019). Fixed-size rounds without replacement (Ramaswamy et al. 2020) are
accounted by Renyi orders alone (Wang, Balle and Kasiviswanathan 2019, theorem 27); no second
accountant is known for them.

Two distances, and mixing them up is the classic mistake. With Poisson sampling one device comes or
goes, which moves a sum by at most C. With rounds of a fixed size one device takes the place of
another, which moves it by up to 2 C: the noise multiplier per distance is then z / 2.

Suffixes: O Renyi orders, K devices drawn.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import dp_accounting
import numpy as np
from dp_accounting import pld, rdp
from scipy.special import gammaln, logsumexp

Sampling = Literal["poisson", "fixed"]
Adjacency = Literal["zero-out", "replace-one"]

POISSON_ORDERS = tuple(range(2, 257))
FIXED_ORDERS = (*(1 + tenths / 10 for tenths in range(1, 100)), *range(11, 64), 128, 256)
ASSUMPTION = (
    "every round's sample is uniform over the whole population, drawn afresh with secret randomness, and neither the "
    "sample nor who took part is revealed to anyone the guarantee is meant to hold against"
)
_SLACK = 1e-3
# From exp(709) on a privacy loss distribution's sums overflow, and its epsilon comes out up to 1 too large.
_OVERFLOW = 700.0
_FINEST, _MOST_POINTS = 1e-4, 2e5


@dataclass(frozen=True)
class AmplifiedGuarantee:
    """Epsilon of a whole run when sampling counts.

    Attributes:
      sampling: how a round's devices are drawn.
      sampling_rate: chance of one device to be in one round.
      epsilon: delta -> epsilon, the one to report.
      epsilon_second: the same by the second accountant, looser by its nature; None without one.
      epsilon_unamplified: the same run when everybody knows who takes part.
      methods: of ``epsilon``, then of ``epsilon_second``.
      adjacency: what the two runs that must look alike differ in.
      assumption: without which none of this holds.
    """

    sampling: Sampling
    sampling_rate: float
    epsilon: Mapping[float, float]
    epsilon_second: Mapping[float, float] | None
    epsilon_unamplified: Mapping[float, float]
    methods: tuple[str, ...]
    adjacency: Adjacency
    assumption: str = ASSUMPTION


def amplified(
    sampling: Sampling,
    noise_multiplier: float,
    sampling_rate: float,
    population: int,
    rounds: int,
    deltas: Iterable[float],
) -> AmplifiedGuarantee:
    """Epsilon of ``rounds`` rounds with fresh Gaussian noise and a fresh secret sample in each.

    Guarantee: unit one device, for updates that may depend on earlier rounds' releases, as long as
    ``ASSUMPTION`` holds. Poisson: zero-out adjacency; add-or-remove has the same number.
    Fixed size: replace-one adjacency, which covers zero-out.

    Args:
      noise_multiplier: z, standard deviation of a round's noise on the sum, in clip norms.
      sampling_rate: chance of a device to be in a round; for fixed size, report goal / population.
      population: devices that are sampled from; only fixed size uses it.

    Raises:
      ValueError: an argument out of range.
      ArithmeticError: the accountants contradict each other.
    """
    _check(sampling, noise_multiplier, sampling_rate, population, rounds)
    wanted = tuple(deltas)
    for delta in wanted:
        _check_delta(delta)
    if sampling == "poisson":
        return _poisson(noise_multiplier, sampling_rate, rounds, wanted)
    return _fixed(noise_multiplier, sampling_rate, population, rounds, wanted)


def poisson_renyi(sampling_rate: float, noise_multiplier: float, orders: Sequence[int]) -> np.ndarray:
    """Renyi divergence of one Poisson round at integer orders, ``[O]``.

    ``log sum_k binom(a, k) (1 - q)^(a - k) q^k exp(k (k - 1) / (2 z^2)) / (a - 1)``
    (Mironov, Talwar and Zhang 2019, section 3.3). The opposite direction is never larger.
    """
    rate_logs = math.log(sampling_rate), math.log1p(-sampling_rate) if sampling_rate < 1 else -math.inf
    values = []
    for order in orders:
        drawn_K = np.arange(order + 1)
        terms_K = gammaln(order + 1) - gammaln(drawn_K + 1) - gammaln(order - drawn_K + 1)
        terms_K += drawn_K * rate_logs[0] + drawn_K * (drawn_K - 1) / (2 * noise_multiplier**2)
        terms_K[:-1] += (order - drawn_K[:-1]) * rate_logs[1]
        values.append(max(float(logsumexp(terms_K)), 0.0) / (order - 1))
    return np.array(values)


def fixed_renyi(population: int, report_goal: int, multiplier: float, orders: Sequence[float]) -> np.ndarray:
    """Renyi divergence of one round without replacement, ``[O]``, under replace-one.

    Args:
      multiplier: noise per replace-one *distance* (2 C for clipped updates), not per clip norm.
    """
    accountant = rdp.RdpAccountant(orders, dp_accounting.NeighboringRelation.REPLACE_ONE)
    gaussian = dp_accounting.GaussianDpEvent(multiplier)
    accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(population, report_goal, gaussian))
    return np.asarray(accountant.rdp)


def epsilon_of_renyi(orders: Sequence[float], renyi_O: np.ndarray, delta: float) -> float:
    """Today's conversion, ``min r + log((a - 1) / a) - log(delta a) / (a - 1)`` (Canonne et al. 2020)."""
    orders_O = np.array(orders, dtype=np.float64)
    values_O = renyi_O + np.log1p(-1 / orders_O) - np.log(delta * orders_O) / (orders_O - 1)
    return max(0.0, float(values_O.min()))


def epsilon_of_renyi_2017(orders: Sequence[float], renyi_O: np.ndarray, delta: float) -> float:
    """The conversion of the older papers, ``min r + log(1 / delta) / (a - 1)`` (Mironov 2017, proposition 3)."""
    return float((renyi_O - np.log(delta) / (np.array(orders, dtype=np.float64) - 1)).min())


def _poisson(z: float, rate: float, rounds: int, deltas: tuple[float, ...]) -> AmplifiedGuarantee:
    renyi_O = rounds * poisson_renyi(rate, z, POISSON_ORDERS)
    second = {delta: epsilon_of_renyi(POISSON_ORDERS, renyi_O, delta) for delta in deltas}
    plain = {delta: dp_accounting.get_epsilon_gaussian(z / math.sqrt(rounds), delta) for delta in deltas}
    # A distribution of losses is a grid: fine enough for small losses, small enough for memory with large ones.
    span = max([1 / (2 * z * z) + 10 / z, *(min(second[delta], plain[delta]) for delta in deltas)])
    first = dict(zip(deltas, _by_losses(z, rate, rounds, deltas, max(_FINEST, span / _MOST_POINTS)), strict=True))
    for delta, value in first.items():
        # Infinite is no contradiction: with a delta below the tails that were cut off, nothing finite can be said.
        if math.isinf(value):
            continue
        slack = _SLACK if value < _OVERFLOW else 1.0
        if not value <= second[delta] * (1 + _SLACK) + slack:
            raise ArithmeticError(
                f"epsilon at delta {delta:g}: {value:.6f} by the privacy loss distribution is above "
                f"{second[delta]:.6f} by Renyi orders, which cannot be; one of the accountants is wrong, "
                "so this run must not be published"
            )
        if not value <= plain[delta] * (1 + _SLACK) + slack:
            raise ArithmeticError(
                f"epsilon at delta {delta:g}: {value:.6f} with sampling is above {plain[delta]:.6f} without, which "
                "cannot be; the accountant is wrong, so this run must not be published"
            )
    # Each of the three is an upper bound.
    best = {delta: min(value, second[delta], plain[delta]) for delta, value in first.items()}
    silent = ", ".join(f"{delta:g}" for delta, value in first.items() if math.isinf(value))
    instead = f"; silent at delta {silent}, so the least of the others there" if silent else ""
    methods = (
        f"privacy loss distribution of Poisson-sampled Gaussians, dp_accounting 0.6.0 (reported{instead})",
        "Renyi orders 2 to 256 in closed form (Mironov et al. 2019), conversion of Canonne et al. 2020 (second)",
    )
    return AmplifiedGuarantee("poisson", rate, best, second, plain, methods, "zero-out")


@functools.lru_cache(maxsize=64)  # a launch and its verification ask for the same again, and it takes seconds
def _by_losses(z: float, rate: float, rounds: int, deltas: tuple[float, ...], grid: float) -> tuple[float, ...]:
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL, grid)
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z))
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, rounds))
    return tuple(float(accountant.get_epsilon(delta)) for delta in deltas)


def _fixed(z: float, rate: float, population: int, rounds: int, deltas: tuple[float, ...]) -> AmplifiedGuarantee:
    report_goal = round(rate * population)
    per_distance = z / 2
    renyi_O = fixed_renyi(population, report_goal, per_distance, FIXED_ORDERS)
    # A secret sample never hurts (quasi-convexity), but the theorem's bound alone may say so: at rates near 1.
    renyi_O = rounds * np.minimum(renyi_O, np.array(FIXED_ORDERS) / (2 * per_distance**2))
    plain = {delta: dp_accounting.get_epsilon_gaussian(per_distance / math.sqrt(rounds), delta) for delta in deltas}
    first = {delta: min(epsilon_of_renyi(FIXED_ORDERS, renyi_O, delta), plain[delta]) for delta in deltas}
    methods = (
        "Renyi orders 1.1 to 256 of fixed-size rounds without replacement (Wang et al. 2019, theorem 27) at z / 2 as "
        "replacing a device moves a sum by 2 C, dp_accounting 0.6.0, conversion of Canonne et al. 2020; never above "
        "the exact Gaussian curve without sampling",
    )
    return AmplifiedGuarantee("fixed", rate, first, None, plain, methods, "replace-one")


def _check(sampling: str, noise_multiplier: float, sampling_rate: float, population: int, rounds: int) -> None:
    if sampling not in ("poisson", "fixed"):
        raise ValueError(f"sampling: got {sampling!r}, expected 'poisson' or 'fixed'")
    if not 0 < noise_multiplier < math.inf:
        raise ValueError(f"noise_multiplier: got {noise_multiplier}, expected a finite number above 0")
    if not 0 < sampling_rate <= 1:
        raise ValueError(f"sampling_rate: got {sampling_rate}, expected above 0 and at most 1")
    if rounds < 1:
        raise ValueError(f"rounds: got {rounds}, expected at least 1")
    if sampling == "fixed":
        drawn = sampling_rate * population
        if drawn < 1 - 1e-6 or not math.isclose(drawn, round(drawn), rel_tol=1e-9, abs_tol=1e-6):
            raise ValueError(
                f"sampling_rate: {sampling_rate:g} of a population of {population} is {drawn:g} devices; rounds of a "
                "fixed size hold a whole number of them, at least 1: give report_goal / population"
            )


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta: got {delta}, expected a number between 0 and 1")


# How two papers counted, for their tables only. Neither is a guarantee that this project gives.

MOMENTS_2018 = tuple(range(2, 34))


def moments_accountant_2018(sampling_rate: float, noise_multiplier: float, rounds: int, delta: float) -> float:
    """Epsilon as in McMahan et al. 2018: Poisson rounds, moments 1 to 32 (orders 2 to 33), the 2017 conversion."""
    renyi_O = rounds * poisson_renyi(sampling_rate, noise_multiplier, MOMENTS_2018)
    return epsilon_of_renyi_2017(MOMENTS_2018, renyi_O, delta)


def without_replacement_2020(
    population: int, report_goal: int, noise_multiplier: float, rounds: int, delta: float
) -> float:
    """Epsilon as in Ramaswamy et al. 2020, table 5: z taken against S where replace-one moves a sum by 2 S."""
    orders = rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS
    renyi_O = rounds * fixed_renyi(population, report_goal, noise_multiplier, orders)
    return epsilon_of_renyi_2017(orders, renyi_O, delta)
