"""Ratios from noisy sums, with intervals that include both the variation between devices and the noise.

A ratio of sums has two variances, which add up. The variation of ``numerator - ratio * denominator`` between devices is
estimated from the sums of squares and of the product, which are noisy themselves. The variance from the noise of both
sums is known exactly. t has the degrees of freedom of Satterthwaite: the known part has no uncertainty, the other has
that of few devices and that of its own noise.
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
    """Return whether a sum is far enough above its noise to be a denominator."""
    return sums.value[name] > LEAST_DENOMINATOR * sums.deviation[name]


def estimate(question: Question, sums: Sums, confidence: float) -> Estimate | None:
    """The ratio and its interval; None if noise exceeds the denominator.

    Guarantee: a function of noisy sums and of numbers from the launch file, so it is as private as they are.
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
    # As if all devices had the largest weight; where only some words count, as if devices with any were alike (Kish
    # 1965).
    whole, alike = (max(value.get(pair, 0.0), _NOTHING) for pair in ((WORDS, WORDS), (bottom, bottom)))
    devices = max(min(whole, below**2 / alike) - 1, _FEWEST_DEGREES)
    degrees = min(devices * ((sampling + noise) / sampling) ** 2, _MOST_DEGREES) if sampling else _MOST_DEGREES
    reach = _half_widths(confidence, degrees, sampling, noise, spread_error) * error
    return Estimate(value=ratio, low=ratio - reach, high=ratio + reach, standard_error=error, degrees=degrees)


def unknown(question: Question, sums: Sums, low: float, high: float) -> Estimate:
    """Estimate of a ratio that noise exceeds: its interval is the whole range from ``low`` to ``high``.

    Guarantee: a function of noisy sums, as ``estimate`` is.
    """
    below = max(sums.value[question.denominator], LEAST_DENOMINATOR * sums.deviation[question.denominator])
    value = min(max(sums.value[question.numerator] / below, low), high)
    return Estimate(value=value, low=low, high=high, standard_error=(high - low) / 2, degrees=_FEWEST_DEGREES)


def _half_widths(confidence: float, degrees: float, sampling: float, noise: float, spread_error: float) -> float:
    """Half-width of an interval in standard errors, for a sampling variance that is known with noise.

    The noise of the estimated variance is symmetric except for the cut at zero. With this factor, the coverage averaged
    over that noise equals ``confidence``.
    """
    drawn_N = np.maximum(sampling + spread_error * _NODES_N, 0.0) + noise
    share_N = np.sqrt(drawn_N / (sampling + noise))
    law = stats.t(degrees)

    def missing(factor: float) -> float:
        return float(_WEIGHTS_N @ law.cdf(factor * share_N)) - (1 + confidence) / 2

    return float(optimize.brentq(missing, 0.0, _LARGEST))
