"""Ratios from noisy sums, with intervals that hold what the noise adds to what devices vary by.

A ratio of sums moves with its devices by the spread of ``numerator - ratio * denominator`` between them, whose square
is summed by the sums of squares and of the product, which are noisy themselves; and by the noise of both sums, whose
variance is known exactly. The two variances add up. t has the degrees of freedom of Satterthwaite: the part that is
known has no uncertainty, the other has that of few devices and that of its own noise.
"""

import math

import numpy as np
from scipy import optimize, stats

from evaluation.comparison.intervals import Estimate
from evaluation.noisy.questions import LEAST_DENOMINATOR, WORDS, Question, Sums

_FEWEST_DEGREES, _MOST_DEGREES = 1.0, 1e6
_LARGEST, _NOTHING = 1e3, 1e-12
_NODES_N, _WEIGHTS_N = np.polynomial.hermite_e.hermegauss(41)
_WEIGHTS_N = _WEIGHTS_N / _WEIGHTS_N.sum()


def stands(name: str, sums: Sums) -> bool:
    """True if a sum is so far above its noise that it can be a denominator."""
    return sums.value[name] > LEAST_DENOMINATOR * sums.deviation[name]


def estimate(question: Question, sums: Sums, confidence: float) -> Estimate | None:
    """The ratio and its interval; None where the denominator is lost in its noise.

    Guarantee: a function of noisy sums and of numbers from the launch file, so it is as private as these are.
    """
    value, deviation = sums.value, sums.deviation
    top, bottom = question.numerator, question.denominator
    below = value[bottom]
    if not stands(bottom, sums):
        return None
    ratio = value[top] / below
    terms = {(top, top): 1.0, (top, bottom): -2 * ratio, (bottom, bottom): ratio**2}
    heaviest = min(max(value[bottom, bottom], 0.0) / below**2, 0.5)
    few = 1 / (1 - heaviest)
    spread = few * sum(factor * value[name] for name, factor in terms.items()) / below**2
    spread_error = few * math.hypot(*(factor * deviation[name] for name, factor in terms.items())) / below**2
    noise = (deviation[top] ** 2 + (ratio * deviation[bottom]) ** 2) / below**2
    sampling = max(spread, 0.0)
    error = math.sqrt(sampling + noise)
    # If all weighed as much as one can; where only some words count, if those that have any were alike (Kish 1965).
    whole, alike = (max(value.get(pair, 0.0), _NOTHING) for pair in ((WORDS, WORDS), (bottom, bottom)))
    devices = max(min(whole, below**2 / alike) - 1, _FEWEST_DEGREES)
    degrees = min(devices * ((sampling + noise) / sampling) ** 2, _MOST_DEGREES) if sampling else _MOST_DEGREES
    reach = _half_widths(confidence, degrees, sampling, noise, spread_error) * error
    return Estimate(value=ratio, low=ratio - reach, high=ratio + reach, standard_error=error, degrees=degrees)


def unknown(question: Question, sums: Sums, low: float, high: float) -> Estimate:
    """A ratio of which the noise leaves no more than that it lies between ``low`` and ``high``, as all such ratios do.

    Guarantee: a function of noisy sums, as ``estimate`` is.
    """
    below = max(sums.value[question.denominator], LEAST_DENOMINATOR * sums.deviation[question.denominator])
    value = min(max(sums.value[question.numerator] / below, low), high)
    return Estimate(value=value, low=low, high=high, standard_error=(high - low) / 2, degrees=_FEWEST_DEGREES)


def _half_widths(confidence: float, degrees: float, sampling: float, noise: float, spread_error: float) -> float:
    """Half of an interval in standard errors, if the sampling variance is only known with so much noise.

    The noise of the estimated variance is symmetric where it is not cut off at zero; the factor is what makes the
    chance of covering, averaged over that noise, the confidence that is asked for.
    """
    drawn_N = np.maximum(sampling + spread_error * _NODES_N, 0.0) + noise
    share_N = np.sqrt(drawn_N / (sampling + noise))
    law = stats.t(degrees)

    def missing(factor: float) -> float:
        return float(_WEIGHTS_N @ law.cdf(factor * share_N)) - (1 + confidence) / 2

    return float(optimize.brentq(missing, 0.0, _LARGEST))
