"""Forecast of a launch's gain from its size alone: points of top-1 recall over the start, by way to spend rho.

Counts gain by *heard people*, ``N sqrt(rho)`` of N devices, as the noise of their sums falls with both; soon all that
so few contexts can say is heard. Training gains by its *way* (``federated.planning.law``), 0.4 points a doubling, and
noise lets the way grow as ``N sqrt(k rho)`` with k participations.

The curves are those of one population, interpolated over the logarithm; another population's are a multiple of them,
as its text lies further from the start's or nearer, which nothing but that text tells. A start of text that people
typed has half of it in it already (``LEFT``). Curves, mean multiples and their
spread are what ``python -m benchmarks.utility.forecast`` fits to ``benchmarks/results/crossing.csv``; ways past
``NOISY_WAY`` are those of ``python -m benchmarks.utility.way``, one path of that population without noise.
"""

import itertools
import math
from dataclasses import dataclass

# Points at heard people, of the start mixed half and half with counts, from 5,000 on with 2,000 contexts.
COUNTS = (
    (3.0, 0.0),
    (13.5, 0.25),
    (44.0, 1.08),
    (140.0, 1.37),
    (424.0, 1.51),
    (1_414.0, 1.72),
    (7_071.0, 2.15),
    (28_284.0, 2.29),
)
# Points at a way, of training from the start, and from a start that counts of a tenth of the rho moved.
TRAINING = (
    *((1.0, 0.0), (2.8, 1.00), (9.5, 1.60), (28.7, 2.28), (121.4, 3.22), (405.7, 4.03), (900.0, 4.48)),
    *((1_875.9, 5.02), (3_893.6, 5.53), (6_920.2, 5.98), (9_946.8, 6.21)),
)
BOTH = ((1.0, 0.0), (2.6, 1.31), (9.0, 1.84), (27.2, 2.58), (115.2, 3.42), (384.9, 4.09), (900.0, 4.58))
# Longest way that was gone with noise.
NOISY_WAY = 900.0
# Mean multiple of a population, and its standard deviation.
COUNTS_SCALE, TRAINING_SCALE, BOTH_SCALE = (1.19, 0.36), (1.11, 0.38), (1.13, 0.39)
# Root mean square by which the lead of training over counts, in points, was missed.
LEAD_ERROR = 0.89
# Share of rho for counts that move the start.
COUNTS_SHARE = 0.1

# Share of these gains that is left where the start has read typed chat, too; the mean of its cells, 0.52 to 0.68.
LEFT = {"sample-with-chat": 0.57}

# Of whom all this was measured, and with what: populations, the languages that they typed, fewest and most of them that
# train, and the network's hidden units and words.
POPULATIONS, LANGUAGES, PEOPLE, HIDDEN, WORDS = 6, ("en", "es", "fr"), (100, 40_000), 256, 4_000

# Points of the start mixed half and half with the n-gram of its own text, over the start: mean of populations, standard
# deviation.
FREE = (0.29, 0.17)
# Share that is left on people of a lead of public n-grams on held-out public text: 0.39 of 1.23 points in the demo, 1.0
# of 3.4 in an earlier tutorial, 1.83 of 3.35 on the demo's chat with a small network.
LEAD_ON_PEOPLE = 0.39
# Standard error of a gain on held-out people, times the root of their number.
PEOPLE_ERROR = 2.60

Curve = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Forecast:
    """Points of top-1 recall, and their standard deviation between populations."""

    points: float
    error: float

    @property
    def sure(self) -> bool:
        """Return whether the points are above zero by two standard deviations."""
        return self.points > 2 * self.error


def heard(devices: int, rho: float) -> float:
    """Heard people of counts."""
    return devices * math.sqrt(rho)


def left(source: str) -> float:
    """Share of every gain that the text of the start, by its ``public_text.source``, leaves to people."""
    return LEFT.get(source, 1.0)


def counts(people: float, left: float = 1.0) -> Forecast:
    """Gain of the start mixed half and half with counts, at so many heard people."""
    return _scaled(left * at(COUNTS, people), COUNTS_SCALE)


def training(way: float, left: float = 1.0) -> Forecast:
    """Gain of training by the step law."""
    return _scaled(left * at(TRAINING, way), TRAINING_SCALE)


def both(way: float, left: float = 1.0) -> Forecast:
    """Gain of training from a start that counts moved."""
    return _scaled(left * at(BOTH, way), BOTH_SCALE)


def lead(way: float, people: float, left: float = 1.0) -> Forecast:
    """Gain of training from a start that counts moved, over counts with the rho of both.

    Where it is above zero, training is the way to spend the rho.
    """
    return Forecast(both(way, left).points - counts(people, left).points, left * LEAD_ERROR)


def free_on_people(lead: float) -> tuple[float, float]:
    """Return ``FREE`` for a start that n-grams lead by so many points on held-out public text; no less than usual.

    Three launches are no distribution, so all of the lead is two standard deviations away.
    """
    return max(FREE[0], LEAD_ON_PEOPLE * lead), max(FREE[1], (1 - LEAD_ON_PEOPLE) / 2 * lead)


def over_free(forecast: Forecast, free: tuple[float, float] = FREE) -> Forecast:
    """Gain over the start mixed with the n-gram of its own text, which costs nothing."""
    return Forecast(forecast.points - free[0], math.hypot(forecast.error, free[1]))


def at(curve: Curve, size: float) -> float:
    """Points of a curve at a size: straight lines over its logarithm, the last one continued, and nothing below."""
    places = list(itertools.pairwise(curve))
    (low, first), (high, second) = next((pair for pair in places if size <= pair[1][0]), places[-1])
    return max(0.0, first + (second - first) * math.log(size / low) / math.log(high / low))


def _scaled(points: float, scale: tuple[float, float]) -> Forecast:
    return Forecast(points * scale[0], points * scale[1])
