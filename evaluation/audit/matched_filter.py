"""Audit of correlated noise: tests of the released sums against the accountant's claim.

Shape legend: T rounds, N canaries.

Canary devices sent one direction each (``evaluation.audit.directions``) through the trainer's own clipping, timer and
noise. The release along a canary's direction, minus the other devices' contributions, is
``a_t = p_t + noise_t`` in clip norms. Multiplied by the whitener W (``evaluation.audit.whitening``) the noise is
independent from round to round, and the best statistic for "this canary took part in the rounds p" is
the projection on ``W p``: the accountant's own worst case, so the estimate is tight for a correct run.

There are four tests, each of one possible fault, at a quarter of ``alpha`` each:

* noise: deviation of the whitened noise along canaries that are not included, against the noise multiplier;
* signal: length of a canary's update, against one clip norm;
* separation: mean score of included canaries in deviations of those of the others, against the
  claimed mu; it assumes only W and the participation records;
* reuse: noise of different rounds is independent (``whiteness``).

One further test is arithmetic: ``||W p|| / z`` of the recorded rounds of every canary is at most the claimed mu.

The inputs are secret (released sums minus noise are sums of real devices); the result is public.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from evaluation.config import ALPHA

TESTS = 4
# Power of a test at the stated least fault.
POWER = 0.9
# Clip norms that replace zero noise, so that divisions stay finite.
_NOTHING = 1e-12


@dataclass(frozen=True)
class Estimate:
    """An estimate and the claimed value.

    Attributes:
      p_value: probability of a value at least as far from the claim, if the claim is true.
      least: true value, relative to the present one, that is noticed with 90% power; None: no value is.
    """

    value: float
    claim: float
    p_value: float
    least: float | None = None


@dataclass(frozen=True)
class Whiteness:
    """The most correlated pair of rounds, the most correlated lag, and their p-value.

    Attributes:
      p_value: of the worse of the two, corrected for all pairs and lags.
      rounds: the pair.
      correlation: between them, -1 to 1.
      lag: distance in rounds of the pairs that are correlated on average.
      lag_score: standard deviations of that average from 0.
    """

    p_value: float
    rounds: tuple[int, int]
    correlation: float
    lag: int
    lag_score: float


@dataclass(frozen=True)
class MatchedFilter:
    """Estimates of noise, update length and mu of one run, and contradictions of the claim.

    Attributes:
      noise: standard deviation in clip norms; two-sided, as too much noise is a bug too.
      signal: length of a canary's update in clip norms.
      mu: separation of scores.
      reuse: of noise.
      failures: contradictions of the claim, in words; empty if there are none.
    """

    noise: Estimate
    signal: Estimate
    mu: Estimate
    reuse: Whiteness
    failures: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """Claim under test: strategy, noise multiplier and mu as accounted.

    Attributes:
      whitener_TT: W of the mechanism, one row per completed round.
      noise_multiplier: z, of the noise on updates.
      mu: of the guarantee for one device.
    """

    whitener_TT: np.ndarray
    noise_multiplier: float
    mu: float


def matched_filter(
    projections_TN: np.ndarray, joined_TN: np.ndarray, included_N: np.ndarray, claim: Claim, alpha: float = ALPHA
) -> MatchedFilter:
    """Test the projections of one run against the accounted noise and sensitivity.

    Guarantee: if the claim is true, canaries are orthogonal and ``joined_TN`` is correct, then ``failures``
    is empty with probability at least ``1 - alpha``.

    Args:
      projections_TN: released sums minus other devices' contributions, along each direction, in that round's clip
        norms.
      joined_TN: bool, the rounds in which each canary took part or, if not included, would have taken part.
      included_N: bool, the coins; the timer ran for all canaries, but only these sent updates.
      alpha: of all tests together.

    Raises:
      ValueError: mismatched shapes, or fewer than 3 canaries that took part or that did not.
    """
    inside, outside = int(included_N.sum()), int((~included_N).sum())
    if projections_TN.shape != joined_TN.shape or len(claim.whitener_TT) != len(joined_TN):
        raise ValueError(
            f"projections_TN, joined_TN, whitener_TT: {projections_TN.shape}, {joined_TN.shape} and "
            f"{claim.whitener_TT.shape}; give the same rounds and canaries to all"
        )
    if min(inside, outside) < 3:
        raise ValueError(f"included_N: {inside} canaries took part and {outside} did not; the audit needs 3 of each")
    if not joined_TN.any(axis=0).all():
        raise ValueError("joined_TN: some canaries never had a round; leave them out, or run more rounds")
    if not np.all(np.isfinite(projections_TN)):
        raise ArithmeticError("projections_TN: not finite")
    white_TN = claim.whitener_TT @ projections_TN
    filters_TN = claim.whitener_TT @ joined_TN.astype(np.float64)
    lengths_N = np.linalg.norm(filters_TN, axis=0)
    scores_N = np.sum(filters_TN * white_TN, axis=0) / lengths_N
    noise = _noise(white_TN[:, ~included_N], claim.noise_multiplier, alpha)
    signal = _signal(scores_N[included_N], lengths_N[included_N], noise.value, white_TN.shape[0] * outside, alpha)
    true_mu = float(lengths_N[included_N].mean()) / claim.noise_multiplier
    mu = _separation(scores_N[included_N], scores_N[~included_N], claim.mu, true_mu, alpha)
    silent_T = ~np.any(white_TN[:, ~included_N], axis=1)
    place = int(np.argmax(silent_T))
    # A round without noise is not a caller's mistake: it is evidence against the run.
    reuse = Whiteness(0.0, (place, place), 0.0, 0, 0.0) if silent_T.any() else whiteness(white_TN[:, ~included_N])
    recorded = float(lengths_N.max() / claim.noise_multiplier)
    return MatchedFilter(
        noise=noise,
        signal=signal,
        mu=mu,
        reuse=reuse,
        failures=tuple(_failures(noise, signal, mu, recorded, reuse, alpha / TESTS)),
    )


def whiteness(noise_TN: np.ndarray) -> Whiteness:
    """Test that whitened noise of different rounds is independent.

    Reused noise, after a restart that resets its counter or from a key that was used before, makes two rounds equal
    along *every* direction. Along N directions, the whitened noise of two rounds is 2 N independent normal numbers.

    The test covers each pair of rounds (reused noise) and each lag (a strategy other than the claimed one); both are
    Bonferroni-corrected, so the p-value is conservative.

    Args:
      noise_TN: along the directions of canaries that never took part.

    Raises:
      ValueError: fewer than 2 rounds or 3 directions.
      ArithmeticError: a round without any noise.
    """
    rounds, number = noise_TN.shape
    if rounds < 2 or number < 3:
        raise ValueError(f"noise_TN: {noise_TN.shape}; the test needs at least 2 rounds and 3 directions")
    lengths_T = np.linalg.norm(noise_TN, axis=1)
    if not np.all(lengths_T > 0):
        raise ArithmeticError(f"noise_TN: round {int(np.argmin(lengths_T))} has no noise at all")
    unit_TN = noise_TN / lengths_T[:, None]
    correlations_TT = unit_TN @ unit_TN.T
    first, second = np.triu_indices(rounds, 1)
    pairs = np.clip(correlations_TT[first, second], -1, 1)
    worst = int(np.argmax(np.abs(pairs)))
    # With a known mean of zero, r of N points is the cosine of a uniform direction: t with N - 1 degrees.
    strongest = abs(float(pairs[worst]))
    score = math.inf if strongest >= 1 else strongest * math.sqrt((number - 1) / (1 - strongest**2))
    p_pair = min(1.0, 2 * len(pairs) * float(stats.t.sf(score, number - 1)))
    lags = second - first
    # A sum of cosines, each of variance 1 / N.
    sums = np.bincount(lags, weights=pairs, minlength=rounds)[1:]
    scores = sums * np.sqrt(number / np.arange(rounds - 1, 0, -1))
    lag = int(np.argmax(np.abs(scores)))
    p_lag = min(1.0, 2 * len(scores) * float(stats.norm.sf(abs(scores[lag]))))
    return Whiteness(
        p_value=min(1.0, 2 * min(p_pair, p_lag)),
        rounds=(int(first[worst]), int(second[worst])),
        correlation=float(pairs[worst]),
        lag=lag + 1,
        lag_score=float(scores[lag]),
    )


def _noise(white_TN: np.ndarray, claimed: float, alpha: float) -> Estimate:
    numbers = white_TN.size
    total = max(float(np.sum(white_TN**2)), numbers * (_NOTHING * claimed) ** 2)
    tail = min(stats.chi2.cdf(total / claimed**2, numbers), stats.chi2.sf(total / claimed**2, numbers))
    least = least_noise(numbers, alpha / TESTS)
    return Estimate(math.sqrt(total / numbers), claimed, min(1.0, 2 * float(tail)), least)


def _signal(scores_K: np.ndarray, lengths_K: np.ndarray, deviation: float, degrees: int, alpha: float) -> Estimate:
    """Least squares through the origin: the mean of a score is the update's length times ``||W p||``."""
    weight = float(lengths_K @ lengths_K)
    value, error = float(scores_K @ lengths_K) / weight, deviation / math.sqrt(weight)
    p_value, least = float(stats.t.sf((value - 1) / error, degrees)), least_length(error, degrees, alpha / TESTS)
    return Estimate(value, 1.0, p_value, least)


def _separation(inside_K: np.ndarray, outside_K: np.ndarray, claimed: float, true_mu: float, alpha: float) -> Estimate:
    """Mean difference in deviations of the scores outside: a noncentral t, for any rounds that each canary joined.

    Its noncentrality is the mean of the canaries' own mu, which the claim bounds.
    """
    error = math.sqrt(1 / len(inside_K) + 1 / len(outside_K))
    value = float((inside_K.mean() - outside_K.mean()) / max(outside_K.std(ddof=1), _NOTHING))
    degrees = len(outside_K) - 1

    # P(T > t) is the mean of P(N(centre, 1) > t v) over a chi variable v in units of its degrees' root; scipy's
    # own noncentral t gives NaN for centres far below 0.
    law = stats.chi(degrees, scale=degrees**-0.5)
    places = np.linspace(law.ppf(1e-15), law.isf(1e-15), 2001)
    weights = law.pdf(places) * (places[1] - places[0])

    def larger(centre: float, than: float) -> float:
        return float(special.ndtr(centre - than * places) @ weights)

    # The statistic from which on the claim is refuted, then the true value that reaches it with 90% power.
    level, start = alpha / TESTS, claimed / error
    wide = 20 * math.sqrt(1 + start**2 / degrees) * max(1.0, math.sqrt(40 / degrees))
    refuted = float(optimize.brentq(lambda than: larger(start, than) - level, start - wide, start + 20 * wide))
    wide = 12 * math.sqrt(1 + refuted**2 / (2 * degrees))
    centre = optimize.brentq(lambda centre: larger(centre, refuted) - POWER, refuted - wide, refuted + wide)
    least = error * float(centre) / true_mu
    return Estimate(value, claimed, larger(start, value / error), least)


def _failures(
    noise: Estimate, signal: Estimate, mu: Estimate, recorded: float, reuse: Whiteness, level: float
) -> list[str]:
    failures = []
    if noise.p_value < level:
        failures.append(f"noise: {noise.value:.4g} clip norms, claimed {noise.claim:.4g}")
    if signal.p_value < level:
        failures.append(f"signal: a canary's update is {signal.value:.3g} clip norms long, claimed at most 1")
    if mu.p_value < level:
        failures.append(f"separation: mu {mu.value:.3g}, claimed at most {mu.claim:.3g}")
    if reuse.p_value < level:
        failures.append(
            f"reuse: noise of rounds {reuse.rounds[0]} and {reuse.rounds[1]} has correlation {reuse.correlation:.2f}, "
            f"at lag {reuse.lag} {reuse.lag_score:.1f} deviations from none"
        )
    # Arithmetic, not statistics: no chance of error, only rounding.
    if recorded > mu.claim * (1 + 1e-9):
        failures.append(f"records: the rounds a canary joined allow mu {recorded:.4g}, claimed at most {mu.claim:.4g}")
    return failures


def least_noise(numbers: int, level: float) -> float:
    """Largest share of the claimed noise that a two-sided test of ``numbers`` squares at this level notices.

    ``share^2 chi2 < q`` with probability 0.9 for the lower critical value q.
    """
    critical = stats.chi2.ppf(level / 2, numbers)
    return math.sqrt(critical / stats.chi2.ppf(POWER, numbers))


def least_length(error: float, degrees: int, level: float) -> float:
    """Smallest length that a one-sided t-test at this level notices, for a claim of 1.

    Args:
      error: standard error of the estimate.
    """
    return 1.0 + error * float(stats.t.isf(level, degrees) + stats.norm.ppf(POWER))
