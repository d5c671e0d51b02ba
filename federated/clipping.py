"""Clip one device's update, and write it as an integer.

Shape legend: C devices, P parameters.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

# Integers per clip norm. A power of two: scaling by it is exact, and it leaves 19 bits of an
# int64 for the number of devices in a sum.
FIXED_POINT = 2**44
MAX_DEVICES = 2**63 // FIXED_POINT - 1

# Strictly inside the ball: rounding in the arithmetic below must not lift a norm above C.
_SAFETY = 1.0 - 2.0**-20


def clip_together(updates: Sequence[Tensor], clip_norm: float) -> Tensor:
    """What to multiply each device's whole update by: ``min(1, C (1 - 2^-20) / norm)``.

    The norm is that of all tensors of one device together. A device whose norm is not finite is
    set to zeros in place, and so drops out of the sum; it still counts in the fixed denominator.

    Guarantee: each scaled update has joint L2 norm at most C.

    Args:
      updates: the update in parts, each ``[C, ...]``.

    Returns:
      float64 ``[C]``.
    """
    parts_C = [torch.linalg.vector_norm(part.flatten(1), dim=1, dtype=torch.float64) for part in updates]
    norms_C = torch.linalg.vector_norm(torch.stack(parts_C), dim=0)
    for device in torch.nonzero(~torch.isfinite(norms_C)).flatten().tolist():
        for part in updates:
            part[device] = 0
    return (clip_norm * _SAFETY / norms_C.nan_to_num(0.0).clamp_min(torch.finfo(torch.float64).tiny)).clamp_max(1.0)


def sum_fixed_point(update: Tensor, factors_C: Tensor, clip_norm: float) -> Tensor:
    """Sum over the devices of ``trunc(update * factor * 2^44 / C)``, without the axis C.

    A float64 that holds whole numbers exactly, for up to 512 devices.

    Guarantee: truncation is towards zero, so it never lengthens an update. An entry is at most
    2^44, so ``MAX_DEVICES`` of them add up in int64 without overflow.
    """
    total = torch.zeros(update.shape[1:], dtype=torch.float64)
    scaled = torch.empty_like(total)
    # One device at a time: the buffer stays in cache, and no float64 copy of the whole chunk is made.
    for device, factor in zip(update, factors_C.tolist(), strict=True):
        scaled.copy_(device)
        total += scaled.mul_(factor * (FIXED_POINT / clip_norm)).trunc_()
    return total


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
