"""What the kernel does between two matrix products, compiled for the CPU: one pass over memory each.

Shape legend: C devices of a chunk, L labelled positions, V vocabulary.

``step.Tape`` and ``sums`` say the same in torch; the cell stands in ``pretrain.kernel.compiled``.
"""

import numba
import numpy as np

from pretrain.kernel.compiled import ANY_ORDER, exp, largest


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=ANY_ORDER)
def train_bias(
    logits_LV: np.ndarray, bias_V: np.ndarray, targets_L: np.ndarray, slope_V: np.ndarray, rate: np.floating
) -> None:
    """Logits (still without bias) become the loss's gradient by logit, times L; the bias is trained.

    Args:
      slope_V: scratch.
      rate: learning rate over L.
    """
    one = logits_LV.dtype.type(1)
    slope_V[:] = 0
    for position in range(len(logits_LV)):
        row_V = logits_LV[position]
        top = largest(row_V, bias_V)
        total = row_V.dtype.type(0)
        for v in range(len(row_V)):
            row_V[v] = exp(row_V[v] + bias_V[v] - top)
            total += row_V[v]
        scale = row_V.dtype.type(one / total)
        for v in range(len(row_V)):
            row_V[v] *= scale
            slope_V[v] += row_V[v]
        row_V[targets_L[position]] -= one
        slope_V[targets_L[position]] -= one
    for v in range(len(bias_V)):
        bias_V[v] -= rate * slope_V[v]


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=ANY_ORDER)
def sum_of_squares(part_CP: np.ndarray) -> np.ndarray:
    """Sum of squares of each device in float64."""
    total_C = np.empty(len(part_CP))
    for device in range(len(part_CP)):
        part_P = part_CP[device]
        total = 0.0
        for i in range(len(part_P)):
            total += np.float64(part_P[i]) * np.float64(part_P[i])
        total_C[device] = total
    return total_C


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_whole(total_P: np.ndarray, part_CP: np.ndarray, scale_C: np.ndarray, squares_C: np.ndarray) -> int:
    """Add every ``part * scale``, cut to whole numbers towards zero, to an int64 ``total``; none at scale 0.

    Returns:
      The sum of all whole numbers that were added, modulo 2^64; ``squares_C`` grows by each device's sum of squares.
    """
    added = 0
    for device in range(len(part_CP)):
        if scale_C[device] != 0.0:
            square, summed = _add_whole(total_P, part_CP[device], scale_C[device])
            squares_C[device] += square
            added += summed
    return added


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_whole_rows(total_VE: np.ndarray, ids_U: np.ndarray, part_UE: np.ndarray, scale: float) -> tuple[float, int]:
    """Add one device's rows of a matrix in the same way; what lies in ``part`` beyond them does not count.

    Returns:
      Sum of squares of what was added, and its sum modulo 2^64.
    """
    squares, added = 0.0, 0
    for row in range(len(ids_U)):
        square, summed = _add_whole(total_VE[ids_U[row]], part_UE[row], scale)
        squares += square
        added += summed
    return squares, added


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=ANY_ORDER)
def _add_whole(total_P: np.ndarray, part_P: np.ndarray, scale: float) -> tuple[float, int]:
    square, added = 0.0, 0
    for i in range(len(total_P)):
        whole = np.int64(np.float64(part_P[i]) * scale)
        total_P[i] += whole
        square += np.float64(whole) * np.float64(whole)
        added += int(whole)
    return square, added
