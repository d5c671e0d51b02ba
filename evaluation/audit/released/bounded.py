"""Recomputation of a sum of bounded device vectors, and its comparison with the release.

Shape legend: U cells, M cells of one device.
"""

import math
from collections.abc import Iterable

import numpy as np

from evaluation.audit import keyed_noise
from evaluation.audit.verdict import Verdict

# Units per clip norm; a clipped vector ends 2^-20 inside it.
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
    """Verdicts on released sums: they equal all bounded vectors plus all of the key's noise, on the lattice.

    Guarantee: ``sum`` fails if any cell differs, by more than the slack, from the sum of the contributions, each
    clipped to a joint L2 norm of ``clip_norm``, plus noise of ``noise_multiplier`` clip norms from the key. So it fails
    if noise is missing, smaller or added twice, or if a device is left out, counted twice or above its bound.
    ``digits`` fails if a number is not a multiple of the release's lattice step (about a millionth of the noise).
    Exact: an honest release passes both.

    Args:
      size: U.
      contributions: for each device its cells, each once, and their values before the bound. Private.
    """
    if released_U.shape != (size,) or not np.all(np.isfinite(released_U)):
        return _verdicts(fits=False, shown=False)
    unnoised_U, devices_U = _summed(contributions, size, clip_norm)
    noise_U = np.rint(noise_multiplier * keyed_noise.gaussian(key, stream, 0, size) * UNITS).astype(np.int64)
    step = keyed_noise.step_of(noise_multiplier * UNITS)
    steps_U = np.rint(released_U / (clip_norm / UNITS) / step)
    # Below 2^62, the multiple of a step is a whole number, and so is the difference.
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
    """Sum in units of ``clip_norm / UNITS``, and the number of devices in each cell; private."""
    unnoised_U, devices_U = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for cells_M, values_M in contributions:
        length = math.sqrt(float(np.square(values_M).sum()))
        if math.isfinite(length) and length:
            share = min(1.0, clip_norm * _INSIDE / length)
            unnoised_U[cells_M] += (values_M * (share * (UNITS / clip_norm))).astype(np.int64)
            devices_U[cells_M] += 1
    return unnoised_U, devices_U
