"""Devices vote for groups of public sentences that are like what they type; one Gaussian release of the sum.

The histogram of nearest neighbours of Private Evolution (Lin et al. 2023; for text Xie et al. 2024; of federated
clients Hou et al. 2024), over groups in place of single sentences: what is resampled by is how many more devices
type like a group than public text holds of it.

Shape legend: K groups, S sentences, D devices.
"""

from collections.abc import Iterator

import numpy as np

from federated.counts.bounded_sum import released_sum, require_few_enough
from federated.votes.clusters import Groups
from pretrain.selection import MOST_WEIGHT
from pretrain.vocabulary import TokenStream

STREAM = "votes"
CLIP_NORM = 1.0
# Votes of so many standard deviations of the noise are told from none.
THRESHOLD = 2.0


def released_votes(devices: TokenStream, groups: Groups, noise_multiplier: float, key: bytes) -> np.ndarray:
    """Noisy sums of votes, float64 ``[K]``.

    Guarantee: that of ``released_sum`` for vectors of length 1, one of each device: zCDP with
    ``rho = 1 / (2 noise_multiplier^2)``, unit one device, zero-out adjacency. Groups are public, and each has noise.

    Args:
      devices: what each device of the train split typed, in the ids of the vocabulary that groups were made in.
      noise_multiplier: z, in votes.
      key: 32 secret bytes.

    Raises:
      ValueError: more devices than a fixed-point sum holds, or ids outside the vocabulary; before noise.
      ArithmeticError: noise beyond the grid; a property of the noise alone.
    """
    require_few_enough(len(devices))
    size = len(groups.vector_VE)
    if len(devices.tokens_N) and not 0 <= devices.tokens_N.min() <= devices.tokens_N.max() < size:
        raise ValueError(f"devices: token ids must lie below {size}; encode them with the groups' vocabulary")
    votes = ballots(devices, groups)
    return released_sum(votes, len(groups.centre_KE), noise_multiplier, key, STREAM, CLIP_NORM)


def ballots(devices: TokenStream, groups: Groups) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The groups that each device's sentences are nearest to, and how much it votes for each; private.

    A device that types much has no more to say than another: its votes are the direction of its histogram.
    """
    for device in range(len(devices)):
        group_S = groups.nearest(devices.owner(device))
        voted, times = np.unique(group_S[group_S >= 0], return_counts=True)
        yield voted, times / max(float(np.linalg.norm(times)), 1.0)


def importance(released_K: np.ndarray, group_S: np.ndarray, noise_multiplier: float) -> np.ndarray:
    """Weights of public sentences, ``[S]``: how much likelier devices are to type like a group than public text is.

    Guarantee: post-processing of ``released_K``.

    Args:
      group_S: of each public sentence; -1 for none, which keeps the weight 1.
    """
    votes_K = np.where(released_K >= THRESHOLD * noise_multiplier * CLIP_NORM, released_K, 0.0)
    public_K = np.bincount(group_S[group_S >= 0], minlength=len(votes_K)).astype(np.float64)
    if not votes_K.sum():
        return np.ones(len(group_S))
    ratio_K = (votes_K / votes_K.sum()) / (np.maximum(public_K, 1.0) / public_K.sum())
    weight_K = np.clip(ratio_K, 1 / MOST_WEIGHT, MOST_WEIGHT)
    return np.where(group_S >= 0, weight_K[group_S], 1.0)
