"""Forecast of a launch's gain from its size alone: points of top-1 recall over the start, by way to spend rho.

Counts gain a nearly fixed amount: noise of rho on counts of N devices falls as ``N sqrt(rho)``, and so many words are
common. Training gains a logarithm of its *way* (``federated.planning.law``), which noise lets grow as ``N sqrt(k rho)``
with k participations. Both differ between populations by how far their text is from the start's, which nothing but
that text tells; the *lead* of training over counts differs by less.

The numbers are fitted by ``python -m benchmarks.utility.gain_fit`` to ``benchmarks/results/crossing.csv``: four
populations of 256 to 40,000 people, each forecast from the three others.
"""

import math
from dataclasses import dataclass

# Points at N sqrt(rho) = 1,000, a doubling, and their standard deviation between populations.
COUNTS = (2.2, 0.06, 0.7)
# Points at a way of 100, a doubling, and their standard deviation between populations.
TRAINING = (3.5, 0.45, 0.7)
# The same of counts that move the start of training, over counts alone; rho of both together is that of counts.
LEAD = (1.3, 0.40, 0.35)
# Share of rho for counts that move the start.
COUNTS_SHARE = 0.1


@dataclass(frozen=True)
class Forecast:
    """Points of top-1 recall, and their standard deviation between populations."""

    points: float
    error: float

    @property
    def sure(self) -> bool:
        """Return whether the points are above zero by two standard deviations."""
        return self.points > 2 * self.error


def counts(devices: int, rho: float) -> Forecast:
    """Gain of the start mixed half and half with counts."""
    return _at(COUNTS, devices * math.sqrt(rho) / 1_000)


def training(way: float) -> Forecast:
    """Gain of training by the step law."""
    return _at(TRAINING, way / 100)


def lead(way: float) -> Forecast:
    """Gain of training from a start that counts moved, over counts of the same rho."""
    return _at(LEAD, way / 100)


def _at(line: tuple[float, float, float], size: float) -> Forecast:
    points, doubling, error = line
    return Forecast(points + doubling * math.log2(size), error)
