"""Clip device updates onto a grid of integers, and add noise to a sum of them.

Shape legend: P parameters.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pretrain.randomness.noise import FIXED_POINT, on_grid

if TYPE_CHECKING:
    from federated.local_training.rows import DeviceRows  # torch is slow to import

MAX_DEVICES = 2**63 // FIXED_POINT - 1

# Strictly inside the ball: rounding must not lift a norm above C.
_SAFETY = 1.0 - 2.0**-20


@dataclass(frozen=True)
class Clip:
    """Clipping and weighting rules of one round.

    Attributes:
      norm: C, the L2 bound of one device's whole update.
      per_layer: bound each layer by ``C / sqrt(layers)`` first (McMahan et al. 2018, section 2).
      below: count the devices whose update, before any clipping, has at most this norm: 1/2 for each, -1/2 for each
        device above it, 0 for a device that contributes nothing.
      weight_words: a device has weight ``min(words / weight_words, 1)``; None: every device weighs 1.
    """

    norm: float
    per_layer: bool = False
    below: float | None = None
    weight_words: int | None = None

    def weight(self, rows: "DeviceRows") -> float:
        """Weight of a device that trained on these rows."""
        return 1.0 if self.weight_words is None else min(rows.words / self.weight_words, 1.0)


def grid_scale(norm: float, clip_norm: float, weight: float = 1.0) -> float:
    """Factor for an update of this joint L2 norm, before it is cut towards zero to integers.

    ``w * min(1, C (1 - 2^-20) / norm) * 2^44 / C``; 0 if the norm is not finite.

    Guarantee: the integers, times ``C / 2^44``, have joint L2 norm at most C: cutting is towards zero. None is
    above 2^44, so ``MAX_DEVICES`` of them add up in int64 without overflow. ``sums.Sums.add``, which every update
    and every canary goes through, scales by this and by nothing else.

    Args:
      norm: of all parameters together.
      weight: in [0, 1], applied after clipping.
    """
    if not math.isfinite(norm):
        return 0.0
    factor = min(1.0, clip_norm * _SAFETY / norm) if norm else 1.0
    return factor * weight * (FIXED_POINT / clip_norm)


def release(unnoised_sum_P: np.ndarray, noise_P: np.ndarray, clip_norm: float, noise_multiplier: float) -> np.ndarray:
    """Add noise to a sum of clipped updates.

    Noise is rounded to the same grid and added as an integer: the result is (exact sum + noise) rounded to multiples of
    a millionth of the noise, so no low bit of a float carries data.

    Args:
      unnoised_sum_P: int64 in units of ``C / 2^44``.
      noise_P: float64 in units of the clip norm.
      noise_multiplier: standard deviation of the noise that is new in it, in units of the clip norm.

    Returns:
      float64 ``[P]`` in units of the update.

    Raises:
      ArithmeticError: noise beyond the range of the grid; a property of the noise alone.
    """
    if not np.all(np.abs(noise_P) < 2.0**18):
        raise ArithmeticError("noise: not finite, or 2^18 clip norms and more; lower mechanism.noise_multiplier")
    noisy_P = unnoised_sum_P + np.rint(noise_P * FIXED_POINT).astype(np.int64)
    return on_grid(noisy_P, noise_multiplier * FIXED_POINT) * (clip_norm / FIXED_POINT)


def check_report_goal(report_goal: int) -> None:
    """Raise ValueError if a sum over this many devices (and its noise) could overflow."""
    if report_goal > MAX_DEVICES // 2:
        raise ValueError(
            f"mechanism.report_goal: {report_goal} devices overflow a 64-bit fixed-point sum; "
            f"at most {MAX_DEVICES // 2} in a round"
        )


def check_clip_norm(clip_norm: float) -> None:
    """Raise ValueError unless the norm is a finite positive number."""
    if not (math.isfinite(clip_norm) and clip_norm > 0):
        raise ValueError(f"mechanism.clip_norm: {clip_norm} is not a bound; give a finite number above 0")
