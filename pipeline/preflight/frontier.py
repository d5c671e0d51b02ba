"""The frontier of a launch file: forecast gain against the total epsilon of one device, by way to spend it.

Words and noise's shape stay as they are in the file, so that a total has one forecast, that of the report
(``around``) among them.
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
from pipeline.releases.counts import COUNTS
from pipeline.releases.release import gaussian
from pipeline.releases.total import total
from pipeline.releases.training import TRAINING

Way = Literal["counts", "training", "both"]
_LEARNS = (TRAINING.stage, COUNTS.stage)
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LEAST_RHO, _MOST_RHO = 1e-8, 1e4
_NEAR = 0.1  # points below the most on the frontier at which more epsilon is not worth it
_STEPS = 8  # totals to try, between two on the frontier


@dataclass(frozen=True)
class Point:
    """Forecast at one total epsilon of one device.

    Attributes:
      rho: left for learning; 0 if the launch's other releases cost all of the total.
      way: of training with that rho.
      counts, training, both: points of top-1 recall over the start; ``both`` is training from a start that counts
        moved. None where devices are too many for one sum of counts, as for ``lead``.
      lead: of ``both`` over ``counts``.
      wins: the way that the forecast prefers; None where not even that one gains for sure.
    """

    epsilon: float
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
    devices, (others, learned) = terms.training_devices, _divided(spends)
    if config.trains:
        trained = spends[TRAINING.stage].rho or 0.0
        first = trained / learned if config.counts_move_start else 1 - gain.COUNTS_SHARE
        per_noise = law.way_per_noise(config.mechanism, config.server) / math.sqrt(trained)
    else:
        first, one = 1 - gain.COUNTS_SHARE, terms.server.model_copy(update={"learning_rate": 1.0})
        per_noise = law.way_per_noise(block_at(config.mechanism, terms, 1.0, thorough=False), one)

    def at(epsilon: float) -> Point:
        rho = rho_within(config, others, epsilon)
        return _point(epsilon, rho, first, devices, per_noise, gain.left(config.public_text.source))

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
    others, learned = _divided(spends)
    rhos = {total: rho_within(config, others, total) for total in (epsilon - 1, epsilon + 1) if total > 0}
    shares = {total: rho / learned for total, rho in rhos.items()} | {epsilon: 1.0}
    found = {total: forecast(config, devices, share) for total, share in sorted(shares.items()) if share}
    return {total: gained for total, gained in found.items() if gained}


def _divided(spends: Mapping[str, Spend]) -> tuple[dict[str, Spend], float]:
    """A training device's spends on other things than learning, and the rho of what it learns by."""
    others = {name: spend for name, spend in spends.items() if name not in _LEARNS and spend.split == "train"}
    return others, math.fsum(spend.rho or 0.0 for name, spend in spends.items() if name in _LEARNS)


def _held_out(config: LaunchConfig, spends: Mapping[str, Spend]) -> float:
    """Epsilon of a test device; 0 where no release is about it."""
    asked = {name: spend for name, spend in spends.items() if spend.rho is not None and spend.split == "test"}
    return total(config, asked).epsilon if asked else 0.0


def _point(epsilon: float, rho: float, share: float, devices: int, per_noise: float, left: float) -> Point:
    """Forecast of each way; ``share`` of the rho is training's where counts move its start."""
    if not rho:
        nothing = Forecast(0.0, 0.0)
        return Point(epsilon, 0.0, 0.0, nothing, nothing, nothing, nothing, None)
    way, first = (min(law.LONGEST_WAY, per_noise * law.STEP_NOISE * math.sqrt(part * rho)) for part in (1, share))
    training = gain.training(way, left)
    if devices > MOST_COUNTED:
        return Point(epsilon, rho, way, None, training, None, None, "training" if training.sure else None)
    people = gain.heard(devices, rho)
    counts, both, lead = gain.counts(people, left), gain.both(first, left), gain.lead(first, people, left)
    wins: Way | None = "both" if lead.points > 0 else "counts"
    if not (both if wins == "both" else counts).sure:
        wins = None
    return Point(epsilon, rho, way, counts, training, both, lead, wins)


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
