"""Scaled updates of a chunk as whole numbers, added to a sum: in compiled passes, or in torch.

Each device's own sum of squares and the sum of all whole numbers are taken from the very numbers that are added, so
that a round can tell that nobody's update was longer than a clip norm, and that nothing else is in its sum.

Shape legend: C devices of a chunk, P numbers of a part, U distinct words of a device, E embedding, V vocabulary.
"""

from collections.abc import Sequence

import numba
import numpy as np
import torch
from torch import Tensor

from pretrain.cells.functions import ANY_ORDER

# Devices converted to integers at once in torch, where each is a float64 copy.
STACK = 16


def add_compiled(total: Tensor, part: Tensor, scale_C: np.ndarray, squares_C: np.ndarray) -> np.ndarray:
    """Return the added sum as int64 ``[1]``, modulo 2^64; add each device's sum of squares to ``squares_C``."""
    added = _add_whole(total.view(-1).numpy(), part.flatten(1).numpy(), scale_C, squares_C)
    return np.array([added], dtype=np.int64)


def add_rows_compiled(
    total_VE: Tensor, ids: Sequence[Tensor], part_CUE: Tensor, scale_C: np.ndarray, squares_C: np.ndarray
) -> np.ndarray:
    total, parts, added_1 = total_VE.numpy(), part_CUE.numpy(), np.zeros(1, dtype=np.int64)
    for device, (words_U, part_UE, scale) in enumerate(zip(ids, parts, scale_C.tolist(), strict=True)):
        if scale:
            square, added = _add_whole_rows(total, words_U.numpy(), part_UE, scale)
            squares_C[device] += square
            added_1 += np.array([added], dtype=np.int64)
    return added_1


def add_stacked(total: Tensor, part: Tensor, scale_C: np.ndarray, squares_C: np.ndarray) -> np.ndarray:
    added_1 = np.zeros(1, dtype=np.int64)
    for first in range(0, len(part), STACK):
        span = slice(first, first + STACK)
        # Whole numbers up to 2^44, a few at a time: their float64 sum is exact.
        whole = _whole(part[span], scale_C[span])
        squares_C[span] += whole.flatten(1).square().sum(1).cpu().numpy()
        summed = whole.sum(0).long()
        added_1 += int(summed.sum())
        total += summed
    return added_1


def add_rows_stacked(
    total_VE: Tensor, ids: Sequence[Tensor], part_CUE: Tensor, scale_C: np.ndarray, squares_C: np.ndarray
) -> np.ndarray:
    added_1 = np.zeros(1, dtype=np.int64)
    for first in range(0, len(part_CUE), STACK):
        span = slice(first, first + STACK)
        whole_CUE = _whole(part_CUE[span], scale_C[span]).long()
        for device, (words_U, whole_UE) in enumerate(zip(ids[span], whole_CUE, strict=True), start=first):
            rows_UE = whole_UE[: len(words_U)]
            squares_C[device] += float(rows_UE.double().square().sum())
            added_1 += int(rows_UE.sum())
            total_VE.index_add_(0, words_U, rows_UE)
    return added_1


def _whole(part: Tensor, scale_C: np.ndarray) -> Tensor:
    """Float64 that holds whole numbers; exact zeros where the scale is 0, whatever was there."""
    scale = torch.from_numpy(scale_C).to(part.device).view(-1, *[1] * (part.dim() - 1))
    return (part.double() * scale).trunc_().nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _add_whole(total_P: np.ndarray, part_CP: np.ndarray, scale_C: np.ndarray, squares_C: np.ndarray) -> int:
    """Add every ``part * scale``, cut to whole numbers towards zero, to an int64 ``total``; none at scale 0.

    Returns:
      The sum of all whole numbers that were added, modulo 2^64; ``squares_C`` grows by each device's sum of squares.
    """
    added = 0
    for device in range(len(part_CP)):
        if scale_C[device] != 0.0:
            square, summed = _add_part(total_P, part_CP[device], scale_C[device])
            squares_C[device] += square
            added += summed
    return added


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _add_whole_rows(total_VE: np.ndarray, ids_U: np.ndarray, part_UE: np.ndarray, scale: float) -> tuple[float, int]:
    """Add one device's rows of a matrix in the same way; what lies in ``part`` beyond them does not count.

    Returns:
      Sum of squares of what was added, and its sum modulo 2^64.
    """
    squares, added = 0.0, 0
    for row in range(len(ids_U)):
        square, summed = _add_part(total_VE[ids_U[row]], part_UE[row], scale)
        squares += square
        added += summed
    return squares, added


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=ANY_ORDER)
def _add_part(total_P: np.ndarray, part_P: np.ndarray, scale: float) -> tuple[float, int]:
    square, added = 0.0, 0
    for i in range(len(total_P)):
        whole = np.int64(np.float64(part_P[i]) * scale)
        total_P[i] += whole
        square += np.float64(whole) * np.float64(whole)
        added += int(whole)
    return square, added
