"""Joint L2 norms of updates over all parameters; and layers cut to their share of the clip norm.

Shape legend: C devices of a chunk, P parameters.
"""

import math

import numba
import numpy as np
import torch
from torch import Tensor

from federated.local_training.whole_numbers import STACK
from pretrain.functions import ANY_ORDER
from pretrain.kernel.weights import Weights, unpack


def joint_norms(updates: Weights, *, fuse: bool) -> list[float]:
    """L2 norm of all tensors of each device together, summed in float64; may be infinite or NaN."""
    parts = [*updates.shared(), *([] if updates.inputs is None else [updates.inputs])]
    if fuse:
        squares_C = sum(_squares_compiled(part.flatten(1).numpy()) for part in parts)
        return np.sqrt(squares_C).tolist()
    # The one time that the host waits for the device.
    return torch.stack([_squares(part.flatten(1)) for part in parts]).sum(0).sqrt().tolist()


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=ANY_ORDER)
def _squares_compiled(part_CP: np.ndarray) -> np.ndarray:
    """Sum of squares of each device in float64."""
    total_C = np.empty(len(part_CP))
    for device in range(len(part_CP)):
        part_P = part_CP[device]
        total = 0.0
        for i in range(len(part_P)):
            total += np.float64(part_P[i]) * np.float64(part_P[i])
        total_C[device] = total
    return total_C


def _squares(part_CP: Tensor) -> Tensor:
    """Sums of squares, float64 ``[C]``; few devices at a time, as each is a float64 copy."""
    return torch.cat([few_CP.double().square().sum(1) for few_CP in part_CP.split(STACK)])


def shrink_layers(updates: Weights, clip_norm: float) -> None:
    """Scale each layer of every device, in place, to norm ``clip_norm / sqrt(layers)`` at most.

    Rounding may leave a layer a hair above; the guarantee rests on ``grid_scale``, which follows.
    """
    layers = unpack(updates)
    bound = clip_norm / math.sqrt(len(layers))
    for layer in layers.values():
        # A norm that is not finite makes the layer so, and the device drops out.
        factor_C = bound / _squares(layer.flatten(1)).sqrt().clamp(min=bound)
        layer.mul_(factor_C.to(layer.dtype).view(-1, *[1] * (layer.dim() - 1)))
