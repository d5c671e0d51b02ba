"""One Gaussian release of the counts of all devices.

Shape legend: U cells, D devices.

Every device adds one vector, its weighted counts of words and of pairs together, clipped as one. A public
list of cells says what is counted (``cells``), so that no cell tells by being there.
"""

from collections.abc import Iterator

import numpy as np

from federated.counts.bounded_sum import released_sum, require_few_enough
from federated.counts.cells import Cells
from pretrain import progress
from pretrain.text.vocabulary import TokenStream

STREAM = "counts"
# In weighted occurrences: about fifty words of a device, which nearly all devices reach. Three times as much gained
# nothing of 3,000 people, and nothing of 40,000.
CLIP_NORM = 5.0


def released_counts(
    devices: TokenStream, cells: Cells, noise_multiplier: float, key: bytes, clip_norm: float = CLIP_NORM
) -> np.ndarray:
    """Noisy sums of weighted counts, float64 ``[U]``.

    Guarantee: that of ``released_sum``, for the vectors of weighted counts, words and pairs bounded together: zCDP
    with ``rho = 1 / (2 noise_multiplier^2)``. It holds for whatever a device typed, and whatever the weights are, as it
    is the weighted vector that is clipped. Which cells there are, and their weights, depend on public text and the
    vocabulary alone.

    Args:
      devices: everything that each device of the population's train split typed, in the vocabulary's ids.
      noise_multiplier: z, in clip norms.
      key: 32 secret bytes.

    Raises:
      ValueError: more devices than a fixed-point sum holds, or ids outside the vocabulary; before noise.
      ArithmeticError: noise beyond the grid; a property of the noise alone.
    """
    require_few_enough(len(devices))
    if len(devices.tokens_N) and not 0 <= devices.tokens_N.min() <= devices.tokens_N.max() < cells.vocabulary_size:
        raise ValueError(
            f"devices: token ids must lie below {cells.vocabulary_size}; encode them with the cells' vocabulary"
        )
    vectors = _with_progress(weighted(devices, cells), len(devices))
    return released_sum(vectors, len(cells), noise_multiplier, key, STREAM, clip_norm)


def _with_progress(
    vectors: Iterator[tuple[np.ndarray, np.ndarray]], devices: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same vectors; reports progress as they are consumed."""
    advance = progress.along("counting words and pairs", devices)
    for vector in vectors:
        yield vector
        advance(1.0)


def weighted(devices: TokenStream, cells: Cells) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The cells that each device fills, and its weighted counts, before they are clipped; private."""
    for device in range(len(devices)):
        filled, times = cells.counts(devices.owner(device))
        yield filled, times * cells.weight_U[filled]
