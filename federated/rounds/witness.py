"""Per-round projections onto secret directions, recorded for the noise audit.

Shape legend: P parameters, T rounds, N directions, K weights that are followed.

Un-noised sum, released sum and the model that devices are sent next are each projected where they are used, so
that an audit can show two things without any of the vectors: the released sum minus noise drawn again is the sum,
and the models follow from the released sums alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from federated.local_training.clipping import Clip
from federated.local_training.sums import Aggregate
from pretrain.randomness.noise import FIXED_POINT

# Counts and digests, which float64 would round.
_WHOLE = ("updates_T", "longer_T", "missing_T", "rows_T")
# Weights whose every value is kept: a nonlinear optimiser cannot be replayed on projections.
FOLLOWED = 1024


class Sketch(Protocol):
    """Secret directions: ``evaluation.audit.directions.Directions``."""

    def project(self, vector_P: np.ndarray) -> np.ndarray:
        """Inner products with all directions, float64 ``[N]``."""

    def rounding(self, vector_P: np.ndarray) -> float:
        """Standard deviation along a direction of errors that are to each entry as its last place in float32."""


@dataclass(frozen=True)
class RoundSums:
    """Sums of one finished round. Private.

    Attributes:
      devices: sum and tally of the devices.
      unnoised_sum_P: int64, that the noise was added to.
      planted_P: int64, the canaries' share of it.
      released_sum_P: input of the server's optimiser.
      released_bits: noisy sum of the bits of adaptive clipping; 0 without.
      whole: whether noise is added to the devices' sum as it is; otherwise it is scaled down.
    """

    devices: Aggregate
    unnoised_sum_P: np.ndarray
    planted_P: np.ndarray
    released_sum_P: np.ndarray
    released_bits: float
    whole: bool

    @staticmethod
    def of(
        devices: Aggregate, unnoised_sum_P: np.ndarray, released_sum_P: np.ndarray, released_bits: float, whole: bool
    ) -> "RoundSums":
        """Build it from the state of the round loop."""
        planted_P = np.zeros_like(unnoised_sum_P) if devices.planted_P is None else devices.planted_P.numpy()
        return RoundSums(devices, unnoised_sum_P, planted_P, released_sum_P, released_bits, whole)

    @property
    def unexplained(self) -> int:
        """Part of the sum that gets the noise and that no device added, or the other way round; modulo 2^64.

        Decoded sums of secure aggregation hold its rounding too, so there it is only how many numbers the sum has
        that were not decoded; what was added, the canaries alone tell.
        """
        before_P, after_P = self.devices.sum_P.numpy(), self.unnoised_sum_P - self.planted_P
        # Scaling down goes through float64, which rounds beyond 2^53.
        grown_P = np.abs(after_P) - np.abs(before_P) > np.abs(before_P) >> 50
        changed_P = after_P != before_P if self.whole else grown_P
        missing = int(before_P.sum()) - self.devices.tally.added if self.devices.exact else 0
        return missing or int(changed_P.sum())


@dataclass(frozen=True)
class Witness:
    """One row a round done. Secret: sums of devices without their noise.

    Attributes:
      sums_TN: un-noised sums of devices and canaries, in clip norms.
      released_TN: input of the server's optimiser, in units of the update.
      weights_TN: the model that devices are sent after the round.
      rounding_T: standard deviation of float32 rounding in a row of ``weights_TN``.
      planted_TN: the canaries' share of the sums, in clip norms.
      clips_T: clip norms.
      bits_T: noisy sums of the bits of adaptive clipping, as released, and
      thresholds_T: the thresholds of the updates' norms for them; 0 without.
      updates_T, longer_T: updates of devices that were added, and of them longer than a clip norm.
      missing_T: ``RoundSums.unexplained``.
      rows_T: digest of the rows that devices trained on, modulo 2^64.
      followed_released_TK, followed_weights_TK: the same two at a few weights, in float64 and float32.
    """

    sums_TN: np.ndarray
    released_TN: np.ndarray
    weights_TN: np.ndarray
    planted_TN: np.ndarray
    rounding_T: np.ndarray
    clips_T: np.ndarray
    bits_T: np.ndarray
    thresholds_T: np.ndarray
    updates_T: np.ndarray
    longer_T: np.ndarray
    missing_T: np.ndarray
    rows_T: np.ndarray
    followed_released_TK: np.ndarray
    followed_weights_TK: np.ndarray

    def add(self, row: Mapping[str, object]) -> "Witness":
        """This witness and one more round, by attribute."""
        return Witness(
            **{name: np.concatenate([array, np.asarray(row[name])[None]]) for name, array in vars(self).items()}
        )


class Watch(Protocol):
    """Tests of every round before its model is kept or sent: ``evaluation.audit.watch.Watch``."""

    def begin(self, seen: Witness, cohorts: Iterable[tuple[int, np.ndarray]]) -> Any:
        """State after the rounds done. Secret."""

    def after(
        self,
        state: Any,
        cohort: np.ndarray,
        unnoised_P: np.ndarray,
        released_P: np.ndarray,
        joined_N: np.ndarray,
        seen: Witness,
    ) -> Any:
        """State after one more round, the last of ``seen``; raises where a test speaks against the run."""


def init(count: int, num_parameters: int) -> Witness:
    """Nothing seen yet.

    Args:
      count: of directions.
    """
    widths = {"N": count, "K": min(FOLLOWED, num_parameters)}
    shapes = {
        field.name: (0, *(widths[name] for name in field.name[-2:] if name in widths)) for field in fields(Witness)
    }
    return Witness(**{name: np.zeros(shape) for name, shape in shapes.items()})


def row(sketch: Sketch, done: RoundSums, weights_P: np.ndarray, clip: Clip) -> dict[str, object]:
    """Row recorded for one round.

    Args:
      weights_P: of the model that devices are sent next.
    """
    places_K, tally = followed(len(weights_P)), done.devices.tally
    return {
        "sums_TN": sketch.project(done.unnoised_sum_P / FIXED_POINT),
        "released_TN": sketch.project(done.released_sum_P),
        "weights_TN": sketch.project(weights_P),
        "planted_TN": sketch.project(done.planted_P / FIXED_POINT),
        "rounding_T": sketch.rounding(weights_P),
        "clips_T": clip.norm,
        "bits_T": done.released_bits,
        "thresholds_T": 0.0 if clip.below is None else clip.below,
        "updates_T": tally.updates,
        "longer_T": tally.longer,
        "missing_T": (done.unexplained + 2**63) % 2**64 - 2**63,
        "rows_T": tally.rows,
        "followed_released_TK": done.released_sum_P[places_K],
        "followed_weights_TK": weights_P[places_K],
    }


def followed(num_parameters: int) -> np.ndarray:
    """The weights that are followed, spread evenly over all of them."""
    return np.linspace(0, num_parameters - 1, min(FOLLOWED, num_parameters)).astype(np.int64)


def save(witness: Witness) -> dict[str, np.ndarray]:
    """Write it as arrays, for a private file."""
    return dict(vars(witness))


def load(arrays: Mapping[str, np.ndarray]) -> Witness:
    """Read it from arrays."""
    return Witness(**{field.name: arrays[field.name] for field in fields(Witness)})
