"""One Gaussian release of a sum over devices, each of which adds one bounded vector.

Shape legend: U cells of a vector.

Counts before training and the evaluation of held-out devices are such sums.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from federated.local_training.clipping import MAX_DEVICES, grid_scale
from pretrain.randomness import noise
from pretrain.randomness.noise import FIXED_POINT, on_grid

# Half of the range of a 64-bit sum: the other half is for the noise.
MOST_DEVICES = MAX_DEVICES // 2
_MOST_NOISE = 2.0**18
Contribution = TypeVar("Contribution")
Made = TypeVar("Made")


def require_few_enough(devices: int) -> None:
    """ValueError if a fixed-point sum over this many devices could overflow."""
    if devices > MOST_DEVICES:
        raise ValueError(f"devices: {devices} overflow a 64-bit fixed-point sum; count at most {MOST_DEVICES}")


def released_sum(
    vectors: Iterable[tuple[np.ndarray, np.ndarray]],
    size: int,
    noise_multiplier: float,
    key: bytes,
    stream: str,
    clip_norm: float,
) -> np.ndarray:
    """The noisy sum of one vector of each device, float64 ``[U]``.

    Guarantee: the sum of the vectors of all devices, each of joint L2 norm at most ``clip_norm`` over all cells,
    plus Gaussian noise of standard deviation ``noise_multiplier * clip_norm`` in every cell: zCDP with
    ``rho = 1 / (2 noise_multiplier^2)``, unit one device, zero-out adjacency, one participation. It holds for
    whatever a device's vector is; one that is not finite counts as zeros. Noise is drawn before any vector is made
    and is a function of the key, so that a retry is the same release.

    Args:
      vectors: for each device the cells that it fills, each named once, and what it adds to them; made lazily, so that
        its text is read after the noise was drawn. ``require_few_enough`` has let their number pass.
      size: U.
      noise_multiplier: z, in clip norms.
      key: 32 secret bytes.
      stream: name of the noise stream.

    Raises:
      ArithmeticError: noise beyond the grid; a property of the noise alone.
    """
    return make(
        vectors,
        lambda: drawn(key, stream, size, noise_multiplier),
        lambda vector: bounded(*vector, clip_norm),
        lambda noisy_U: on_grid(noisy_U, noise_multiplier * FIXED_POINT) * (clip_norm / FIXED_POINT),
    )


def make(
    contributions: Iterable[Contribution],
    noise_of: Callable[[], np.ndarray],
    bound: Callable[[Contribution], tuple[np.ndarray, np.ndarray]],
    finish: Callable[[np.ndarray], Made],
) -> Made:
    """Release a sum over devices: the one place where its noise meets it.

    Args:
      contributions: one per device, private; computed on demand.
      noise_of: draws the noise of every cell, int64 ``[U]``, before a contribution is made.
      bound: the cells that a contribution fills, each once, and whole numbers within the bound to add to them.
      finish: release from the noisy sums.
    """
    noise_U = noise_of()
    unnoised_U = np.zeros(len(noise_U), dtype=np.int64)
    for contribution in contributions:
        filled, units = bound(contribution)
        unnoised_U[filled] += units
    return finish(unnoised_U + noise_U)


def drawn(key: bytes, stream: str, size: int, noise_multiplier: float) -> np.ndarray:
    """Noise as whole numbers in units of ``clip_norm / 2^44``, int64 ``[size]``."""
    noise_U = noise_multiplier * noise.gaussian(key, stream, 0, size)
    if not np.all(np.abs(noise_U) < _MOST_NOISE):
        raise ArithmeticError("noise: not finite, or 2^18 clip norms and more; lower noise_multiplier")
    return np.rint(noise_U * FIXED_POINT).astype(np.int64)


def bounded(filled: np.ndarray, values: np.ndarray, clip_norm: float) -> tuple[np.ndarray, np.ndarray]:
    """A device's vector, clipped and cut towards zero to whole numbers of joint L2 norm at most 2^44; private."""
    scale = grid_scale(float(np.linalg.norm(values)), clip_norm)
    return (filled, np.trunc(values * scale).astype(np.int64)) if scale else (filled[:0], np.zeros(0, np.int64))
