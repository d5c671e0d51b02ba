"""Clip one device's update, and write it as an integer.

Shape legend: P parameters.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Integers per clip norm. A power of two: scaling by it is exact, and it leaves 19 bits of an
# int64 for the number of devices in a sum.
FIXED_POINT = 2**44
MAX_DEVICES = 2**63 // FIXED_POINT - 1

# Strictly inside the ball: rounding in the arithmetic below must not lift a norm above C.
_SAFETY = 1.0 - 2.0**-20


@dataclass(frozen=True)
class Clip:
    """How one round clips and counts.

    Attributes:
      norm: C, the L2 bound of one device's whole update.
      per_layer: bound each layer by ``C / sqrt(layers)`` first (McMahan et al. 2018, section 3.1).
      below: count the devices whose update, before any clipping, has at most this norm.
      weight_words: a device weighs ``min(words / weight_words, 1)``; None: every device weighs 1.
    """

    norm: float
    per_layer: bool = False
    below: float | None = None
    weight_words: int | None = None

    def weight(self, words: int) -> float:
        """Weight of a device that trained on so many words."""
        return 1.0 if self.weight_words is None else min(words / self.weight_words, 1.0)


def shrink_layers(layers: Mapping[str, Tensor], clip_norm: float) -> None:
    """Scale each layer of one device's update, in place, to norm ``clip_norm / sqrt(layers)`` at most.

    Rounding may leave a layer a hair above; the guarantee rests on ``clip_to_grid``, which follows.
    """
    bound = clip_norm / math.sqrt(len(layers))
    for layer in layers.values():
        # A norm that is not finite makes the layer so, and ``clip_to_grid`` then drops the device.
        layer.mul_((bound / layer.double().norm().clamp(min=bound)).to(layer.dtype))


def norm_of(update: Sequence[Tensor]) -> float:
    """Joint L2 norm of one device's update, summed in float64."""
    return math.sqrt(sum(float(part.double().square().sum()) for part in update))


def clip_to_grid(update: Sequence[Tensor], clip_norm: float, weight: float = 1.0) -> list[Tensor]:
    """One device's whole update, clipped and on the integer grid.

    ``trunc(x * w * min(1, C (1 - 2^-20) / norm) * 2^44 / C)`` with the norm of all tensors together. All
    zeros if the norm is not finite, so that the device drops out of the sum (it still counts in the
    fixed denominator).

    Guarantee: the result, times ``C / 2^44``, has joint L2 norm at most C: truncation is towards
    zero. No entry is above 2^44, so ``MAX_DEVICES`` of them add up in int64 without overflow.

    Args:
      update: the update in parts, any shapes.
      weight: in [0, 1], applied after clipping.

    Returns:
      The parts as float64 that holds whole numbers; up to 512 of them add up exactly as they are.
    """
    # One buffer for all parts, reused in each pass: that keeps it in cache.
    flat_P = torch.cat([part.flatten() for part in update]).double()
    norm = math.sqrt(float(torch.dot(flat_P, flat_P)))
    if math.isfinite(norm):
        factor = min(1.0, clip_norm * _SAFETY / norm) if norm else 1.0
        flat_P.mul_(factor * weight * (FIXED_POINT / clip_norm)).trunc_()
    else:
        flat_P.zero_()
    sizes = [part.numel() for part in update]
    return [piece.view_as(part) for piece, part in zip(flat_P.split(sizes), update, strict=True)]


def release(unnoised_sum_P: np.ndarray, noise_P: np.ndarray, clip_norm: float) -> np.ndarray:
    """Add noise to a sum of clipped updates.

    Noise is rounded to the same grid and added as an integer: what comes out is a rounding of
    (exact sum + noise), so no low bit of a float carries data.

    Args:
      unnoised_sum_P: int64 in units of ``C / 2^44``.
      noise_P: float64 in units of the clip norm.

    Returns:
      float64 ``[P]`` in units of the update.

    Raises:
      ArithmeticError: noise beyond the range of the grid; a property of the noise alone.
    """
    if not np.all(np.abs(noise_P) < 2.0**18):
        raise ArithmeticError("noise: not finite, or 2^18 clip norms and more; lower mechanism.noise_multiplier")
    noisy_P = unnoised_sum_P + np.rint(noise_P * FIXED_POINT).astype(np.int64)
    return noisy_P.astype(np.float64) * (clip_norm / FIXED_POINT)


def check_report_goal(report_goal: int) -> None:
    """ValueError if a sum over this many devices (and its noise) could overflow."""
    if report_goal > MAX_DEVICES // 2:
        raise ValueError(
            f"mechanism.report_goal: {report_goal} devices overflow a 64-bit fixed-point sum; "
            f"at most {MAX_DEVICES // 2} in a round"
        )


def check_clip_norm(clip_norm: float) -> None:
    """ValueError unless the norm is a finite positive number."""
    if not (math.isfinite(clip_norm) and clip_norm > 0):
        raise ValueError(f"mechanism.clip_norm: {clip_norm} is no bound; give a finite number above 0")
