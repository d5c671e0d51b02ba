"""The frontier of a launch's population: forecast gain against the total epsilon of one device, by way to spend it.

It is of other files: words, rounds and noise are chosen for each total and number of devices. The launch file as it is
has a forecast of its own (``around``), which its plan and its report state.

Everything is known before any text is read: the launch file, the number of devices, the step law, and the forecast that
belongs to it (``federated.planning.gain``).
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from federated.counts.bounded_sum import MOST_DEVICES as MOST_COUNTED
from federated.planning import gain, law
from federated.planning.gain import Forecast
from federated.planning.search import Terms, block_at
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.preflight.gains import forecast
from pipeline.preflight.words import CentralWords, both_ways
from pipeline.releases.counts import COUNTS
from pipeline.releases.local_words import LOCAL_WORDS
from pipeline.releases.release import gaussian
from pipeline.releases.total import total
from pipeline.releases.training import TRAINING

Way = Literal["counts", "training", "both"]
_LEARNS = (TRAINING.stage, COUNTS.stage)
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LEAST_RHO, _MOST_RHO = 1e-8, 1e4
# Share of the rho that words must leave; where they would leave less, other words are found, or none.
LEFT_BY_WORDS = 0.5
_NEAR = 0.1  # points below the most on the frontier at which more epsilon is not worth it
_STEPS = 8  # totals to try, between two on the frontier


@dataclass(frozen=True)
class Point:
    """Forecast at one total epsilon of one device.

    Attributes:
      words: kind of word discovery that leaves enough to learn with; empty for none.
      rho: left for learning; 0 if the launch's other releases cost all of the total.
      way: of training with that rho.
      counts, training, both: points of top-1 recall over the start; ``both`` is training from a start that counts
        moved. None where devices are too many for one sum of counts, as for ``lead``.
      lead: of ``both`` over ``counts``.
      wins: the way that the forecast prefers; None where not even that one gains for sure.
    """

    epsilon: float
    words: str
    rho: float
    way: float
    counts: Forecast | None
    training: Forecast
    both: Forecast | None
    lead: Forecast | None
    wins: Way | None

    @property
    def best(self) -> Forecast:
        """Forecast of the way that wins; that of counts if none does, or of training if counts are no way."""
        won = {"counts": self.counts, "training": self.training, "both": self.both}[self.wins or "counts"]
        return won or self.training


@dataclass(frozen=True)
class Frontier:
    """Forecasts for several totals.

    Attributes:
      evaluation: epsilon of a held-out device to its own releases, which must be no more than the total.
      beats_start: least total epsilon at which a way gains for sure; None within the frontier.
      beats_counts: least total at which training, with counts or alone, is the way that wins.
      knee: least total whose forecast is near the frontier's last.
    """

    points: tuple[Point, ...]
    evaluation: float
    beats_start: float | None
    beats_counts: float | None
    knee: float | None


def frontier(config: LaunchConfig, terms: Terms, spends: Mapping[str, Spend]) -> Frontier:
    """Forecast the launch at several totals.

    Args:
      spends: worst-case spend of every release of the launch, by stage.

    Raises:
      ValueError: as ``federated.planning.search.block_at``.
    """
    devices = terms.training_devices
    one = terms.server.model_copy(update={"learning_rate": 1.0})
    block = block_at(config.mechanism, terms, 1.0, thorough=False)
    per_noise, longest = law.way_per_noise(block, one), law.longest_way(block, one)

    def way(rho: float) -> float:
        return min(longest, law.STEP_NOISE * per_noise * math.sqrt(rho))

    others = [
        (kind, {name: spend for name, spend in found.items() if name not in _LEARNS and spend.split == "train"})
        for kind, found in _words(config, spends, devices)
    ]

    def at(epsilon: float) -> Point:
        rhos = [(kind, rho_within(config, found, epsilon)) for kind, found in others]
        most = rhos[-1][1]
        words, rho = next((kind, rho) for kind, rho in rhos if rho >= LEFT_BY_WORDS * most)
        return _point(epsilon, words, rho, devices, way, gain.left(config.public_text.source))

    fine = [
        low * (high / low) ** (step / _STEPS) for low, high in itertools.pairwise(EPSILONS) for step in range(_STEPS)
    ]
    tried = [at(epsilon) for epsilon in (*fine, EPSILONS[-1])]
    last = tried[-1].best.points

    def least(holds: Callable[[Point], bool]) -> float | None:
        return next((float(f"{point.epsilon:.2g}") for point in tried if holds(point)), None)

    return Frontier(
        points=tuple(point for point in tried if point.epsilon in EPSILONS),
        evaluation=_held_out(config, spends),
        beats_start=least(lambda point: point.wins is not None),
        beats_counts=least(lambda point: point.wins in ("training", "both")),
        knee=least(lambda point: point.wins is not None and point.best.points >= last - _NEAR),
    )


def around(config: LaunchConfig, devices: int, spends: Mapping[str, Spend], epsilon: float) -> dict[float, Forecast]:
    """Forecast a launch as it is, at its total epsilon and at one less and more, by total; {} without a forecast.

    Words stay as they are, and what is left goes to counts and training by the shares of the launch, at the server rate
    that it allows.

    Args:
      devices: that train.
      spends: of every release of the launch, by stage.
      epsilon: total of one device.
    """
    others = {name: spend for name, spend in spends.items() if name not in _LEARNS and spend.split == "train"}
    learned = math.fsum(spend.rho or 0.0 for name, spend in spends.items() if name in _LEARNS)
    rhos = {total: rho_within(config, others, total) for total in (epsilon - 1, epsilon + 1) if total > 0}
    # A held-out device may lose more than one that trains: with one epsilon less, training need not have less.
    shares = {total: (min if total < epsilon else max)(rho / learned, 1.0) for total, rho in rhos.items()}
    shares |= {epsilon: 1.0}
    found = {total: forecast(config, devices, share) for total, share in sorted(shares.items()) if share}
    return {total: gained for total, gained in found.items() if gained}


def _held_out(config: LaunchConfig, spends: Mapping[str, Spend]) -> float:
    """Epsilon of a test device; 0 where no release is about it."""
    asked = {name: spend for name, spend in spends.items() if spend.rho is not None and spend.split == "test"}
    return total(config, asked).epsilon if asked else 0.0


def _point(
    epsilon: float, words: str, rho: float, devices: int, way_at: Callable[[float], float], left: float
) -> Point:
    if not rho:
        nothing = Forecast(0.0, 0.0)
        return Point(epsilon, words, 0.0, 0.0, nothing, nothing, nothing, nothing, None)
    way, first = way_at(rho), way_at((1 - gain.COUNTS_SHARE) * rho)
    training = gain.training(way, left)
    if devices > MOST_COUNTED:
        return Point(epsilon, words, rho, way, None, training, None, None, "training" if training.sure else None)
    people = gain.heard(devices, rho)
    counts, both, lead = gain.counts(people, left), gain.both(first, left), gain.lead(first, people, left)
    wins: Way | None = "both" if lead.points > 0 else "counts"
    if not (both if wins == "both" else counts).sure:
        wins = None
    return Point(epsilon, words, rho, way, counts, training, both, lead, wins)


def _words(config: LaunchConfig, spends: Mapping[str, Spend], devices: int) -> list[tuple[str, Mapping[str, Spend]]]:
    """The launch's spends with its own words, with those of a central discovery, if it finds any, and without words."""
    stage = LOCAL_WORDS.stage
    without = {name: spend for name, spend in spends.items() if name != stage}
    if stage not in spends:
        return [("", without)]
    own, other, _ = both_ways(config, devices)
    found: list[tuple[str, Mapping[str, Spend]]] = [(own.kind, spends)]
    if isinstance(other, CentralWords) and other.reach.shares[0] < 1:
        found.append((other.kind, without | {stage: gaussian(other.rho, other.delta, "words")}))
    return [*found, ("", without)]


def rho_within(config: LaunchConfig, others: Mapping[str, Spend], epsilon: float) -> float:
    """Largest rho for learning with which all releases together cost one device this total; 0 if there is none."""

    def fits(rho: float) -> bool:
        return (
            total(config, {**others, TRAINING.stage: gaussian(rho, config.mechanism.delta, "learning")}).epsilon
            <= epsilon
        )

    if not fits(_LEAST_RHO):
        return 0.0
    low, high = math.log(_LEAST_RHO), math.log(_MOST_RHO)
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(math.exp(middle)) else (low, middle)
    return math.exp(low)
