"""One Gaussian release of what all devices count.

Shape legend: U cells, D devices.

Every device adds one vector, its weighted counts of words and of pairs together, clipped as one. A public
list of cells says what is counted (``cells``), so that no cell tells by being there.
"""

import numpy as np

from federated.counts.cells import Cells
from federated.local_training.clipping import MAX_DEVICES, grid_scale, release
from pretrain.randomness import noise
from pretrain.vocabulary import TokenStream

STREAM = "counts"
# In weighted occurrences: about what fifty words of a device come to, so nearly all devices are as long.
CLIP_NORM = 5.0
# Half of what a 64-bit sum holds: the other half is for the noise.
MOST_DEVICES = MAX_DEVICES // 2


def released_counts(
    devices: TokenStream, cells: Cells, noise_multiplier: float, key: bytes, clip_norm: float = CLIP_NORM
) -> np.ndarray:
    """Noisy sums of weighted counts, float64 ``[U]``.

    Guarantee: the sum of the vectors of all devices, each of joint L2 norm at most ``clip_norm`` over all cells,
    plus Gaussian noise of standard deviation ``noise_multiplier * clip_norm`` in every cell: zCDP with
    ``rho = 1 / (2 noise_multiplier^2)``, unit one device, zero-out adjacency, one participation. It holds for
    whatever a device typed. Which cells there are depends on public text and the vocabulary alone. Noise is
    drawn before any text is read and is a function of the key, so that a retry is the same release.

    Args:
      devices: everything that each device of the population's train split typed, in the vocabulary's ids.
      noise_multiplier: z, in clip norms.
      key: 32 secret bytes.

    Raises:
      ValueError: more devices than a fixed-point sum holds, or ids outside the vocabulary; before noise.
      ArithmeticError: noise beyond the grid; a property of the noise alone.
    """
    if len(devices) > MOST_DEVICES:
        raise ValueError(f"devices: {len(devices)} overflow a 64-bit fixed-point sum; count at most {MOST_DEVICES}")
    if len(devices.tokens_N) and not 0 <= devices.tokens_N.min() <= devices.tokens_N.max() < cells.vocabulary_size:
        raise ValueError(
            f"devices: token ids must lie below {cells.vocabulary_size}; encode them with the cells' vocabulary"
        )
    noise_U = noise_multiplier * noise.gaussian(key, STREAM, 0, len(cells))
    return release(_unnoised_sum(devices, cells, clip_norm), noise_U, clip_norm)


def _unnoised_sum(devices: TokenStream, cells: Cells, clip_norm: float) -> np.ndarray:
    """Int64 ``[U]`` in units of ``clip_norm / 2^44``; private."""
    total_U = np.zeros(len(cells), dtype=np.int64)
    for device in range(len(devices)):
        filled, times = cells.counts(devices.owner(device))
        weighted = times * cells.weight_U[filled]
        scale = grid_scale(float(np.linalg.norm(weighted)), clip_norm)
        total_U[filled] += np.trunc(weighted * scale).astype(np.int64)
    return total_U
