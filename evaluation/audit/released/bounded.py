"""A sum of bounded vectors of devices made again, and held against what was released of it.

Shape legend: U cells, M cells of one device.
"""

import math
from collections.abc import Iterable

import numpy as np

from evaluation.audit import keyed_noise
from evaluation.audit.verdict import Verdict

# Units of a clip norm; a clipped vector ends 2^-20 inside it.
UNITS, _INSIDE = 2**44, 1.0 - 2.0**-20
_SUM_SLACK = "one unit of 2^-44 clip norms for each device in a cell: a clip divides, which rounds"


def sum_audit(
    released_U: np.ndarray,
    contributions: Iterable[tuple[np.ndarray, np.ndarray]],
    size: int,
    noise_multiplier: float,
    clip_norm: float,
    key: bytes,
    stream: str,
) -> tuple[Verdict, Verdict]:
    """Verdicts on released sums: all devices' bounded vectors and all of the key's noise, and no digit more.

    Guarantee: ``sum`` fails if any cell is not the sum of the contributions, each cut to a joint L2 norm of
    ``clip_norm``, plus noise of ``noise_multiplier`` clip norms from the key, but for the slack; so it fails where
    noise is missing, smaller or there twice, where a device is left out, counted twice or above its bound. ``digits``
    fails if a number shows more than a millionth of the noise. Exact: an honest release passes both.

    Args:
      size: U.
      contributions: of each device the cells that it fills, each once, and what it adds before it is bounded. Private.
    """
    if released_U.shape != (size,) or not np.all(np.isfinite(released_U)):
        return _verdicts(fits=False, shown=False)
    unnoised_U, devices_U = _summed(contributions, size, clip_norm)
    noise_U = np.rint(noise_multiplier * keyed_noise.gaussian(key, stream, 0, size) * UNITS).astype(np.int64)
    step = keyed_noise.step_of(noise_multiplier * UNITS)
    steps_U = np.rint(released_U / (clip_norm / UNITS) / step)
    # Below 2^62 what a step is multiplied to is a whole number, and so is its difference.
    whole_U = np.where(np.abs(steps_U * step) < 2.0**62, steps_U * step, -(2.0**62)).astype(np.int64)
    return _verdicts(
        fits=bool(np.all(np.abs(unnoised_U + noise_U - whole_U) <= step / 2 + devices_U)),
        shown=bool(np.all(steps_U * step * (clip_norm / UNITS) == released_U)),
    )


def _verdicts(*, fits: bool, shown: bool) -> tuple[Verdict, Verdict]:
    return (
        Verdict(
            "sum",
            "released sums are what every device contributed, once and within its bound, and all the noise of the key",
            _SUM_SLACK,
            fits,
            "" if fits else "released sums are not the bounded contributions and the noise, made again",
        ),
        Verdict(
            "digits",
            "released sums are multiples of a millionth of the noise",
            "any further digit",
            shown,
            "" if shown else "released sums show digits beyond a millionth of the noise",
        ),
    )


def _summed(
    contributions: Iterable[tuple[np.ndarray, np.ndarray]], size: int, clip_norm: float
) -> tuple[np.ndarray, np.ndarray]:
    """Sum in units of ``clip_norm / UNITS``, and how many devices fill each cell; private."""
    unnoised_U, devices_U = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for cells_M, values_M in contributions:
        length = math.sqrt(float(np.square(values_M).sum()))
        if math.isfinite(length) and length:
            share = min(1.0, clip_norm * _INSIDE / length)
            unnoised_U[cells_M] += (values_M * (share * (UNITS / clip_norm))).astype(np.int64)
            devices_U[cells_M] += 1
    return unnoised_U, devices_U
