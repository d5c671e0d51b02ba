"""One Gaussian release of a sum over devices, each of which adds one bounded vector.

Shape legend: U cells of a vector.

Counts before training and the evaluation of held-out devices are such sums.
"""

from collections.abc import Iterable

import numpy as np

from federated.local_training.clipping import MAX_DEVICES, grid_scale, release
from pretrain.randomness import noise

# Half of what a 64-bit sum holds: the other half is for the noise.
MOST_DEVICES = MAX_DEVICES // 2


def require_few_enough(devices: int) -> None:
    """ValueError if a fixed-point sum does not hold so many devices."""
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
      stream: what the noise is for.

    Raises:
      ArithmeticError: noise beyond the grid; a property of the noise alone.
    """
    noise_U = noise_multiplier * noise.gaussian(key, stream, 0, size)
    return release(_unnoised_sum(vectors, size, clip_norm), noise_U, clip_norm, noise_multiplier)


def _unnoised_sum(vectors: Iterable[tuple[np.ndarray, np.ndarray]], size: int, clip_norm: float) -> np.ndarray:
    """Int64 ``[U]`` in units of ``clip_norm / 2^44``; private."""
    total_U = np.zeros(size, dtype=np.int64)
    for filled, values in vectors:
        if scale := grid_scale(float(np.linalg.norm(values)), clip_norm):
            total_U[filled] += np.trunc(values * scale).astype(np.int64)
    return total_U
