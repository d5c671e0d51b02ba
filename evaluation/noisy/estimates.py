"""Ratios from noisy sums, with intervals that include both the variation between devices and the noise.

A ratio of sums has two variances, which add up. The variance between devices is that of the ratio's linear
approximation, from the sums of squares and products, which are noisy themselves. The variance from the noise of the
sums is known exactly. t has the degrees of freedom of Satterthwaite: the known part has no uncertainty, the other has
that of few devices and that of its own noise.
"""

import math

import numpy as np
from scipy import optimize, special

from evaluation.comparison.intervals import Estimate, half_widths
from evaluation.noisy.questions import LEAST_DENOMINATOR, Question, Sums

_FEWEST_DEGREES, _MOST_DEGREES = 1.0, 1e6
_LARGEST, _NOTHING = 1e3, 1e-12
_NODES_N, _WEIGHTS_N = np.polynomial.hermite_e.hermegauss(41)
_WEIGHTS_N = _WEIGHTS_N / _WEIGHTS_N.sum()


def estimate(question: Question, sums: Sums, confidence: float) -> Estimate | None:
    """The ratio and its interval; None if noise exceeds the denominator.

    Guarantee: a function of noisy sums and of numbers from the launch file, so it is as private as they are.
    """
    value, deviation, bottom = sums.value, sums.deviation, question.denominator
    if question.is_drowned(sums):
        return None
    below = value[bottom]
    ratio, slopes = question.at(sums)
    terms = {(one, two): slopes[one] * slopes[two] * (1 if one == two else 2) for one, two in question.pairs}
    heaviest = min(max(value[bottom, bottom], 0.0) / below**2, 0.5)
    few = 1 / (1 - heaviest)
    spread = few * sum(factor * value[name] for name, factor in terms.items())
    spread_error = few * math.hypot(*(factor * deviation[name] for name, factor in terms.items()))
    noise = math.fsum((slope * deviation[name]) ** 2 for name, slope in slopes.items())
    sampling = max(spread, 0.0)
    error = math.sqrt(sampling + noise)
    # As if all devices had the largest weight; where only some words count, as if devices with any were alike (Kish
    # 1965).
    unit = question.unit
    whole, alike = (max(value.get(pair, 0.0), _NOTHING) for pair in ((unit, unit), (bottom, bottom)))
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


def less(level: Estimate, gain: Estimate, confidence: float) -> Estimate:
    """A baseline's recall, which has no sum of its own: this launch's recall minus its gain.

    The correlation of the two is unknown, so their errors are added.
    """
    value, error = level.value - gain.value, level.standard_error + gain.standard_error
    degrees = min(level.degrees, gain.degrees)
    reach = max(half_widths(confidence, degrees) * error, (level.high - level.low + gain.high - gain.low) / 2)
    return Estimate(value, value - reach, value + reach, error, degrees)


def relative(gain: Estimate, theirs: Estimate, level: Estimate) -> Estimate | None:
    """The gain relative to the baseline, whose own error is added; None if noise exceeds the baseline."""
    if not theirs.low > 0:
        return None
    value = gain.value / theirs.value
    stretch = math.hypot(1.0, value * level.standard_error / max(gain.standard_error, 1e-300))
    down, up = ((gain.value - gain.low) * stretch / theirs.value, (gain.high - gain.value) * stretch / theirs.value)
    return Estimate(value, value - down, value + up, gain.standard_error * stretch / theirs.value, gain.degrees)


def _half_widths(confidence: float, degrees: float, sampling: float, noise: float, spread_error: float) -> float:
    """Half-width of an interval in standard errors, for a sampling variance that is known with noise.

    The noise of the estimated variance is symmetric except for the cut at zero. With this factor, the coverage averaged
    over that noise equals ``confidence``.
    """
    drawn_N = np.maximum(sampling + spread_error * _NODES_N, 0.0) + noise
    share_N = np.sqrt(drawn_N / (sampling + noise))

    def missing(factor: float) -> float:
        return float(_WEIGHTS_N @ special.stdtr(degrees, factor * share_N)) - (1 + confidence) / 2

    # A variance far below its own noise: no factor is enough, and an error would depend on the devices.
    return float(optimize.brentq(missing, 0.0, _LARGEST)) if missing(_LARGEST) > 0 else _LARGEST
