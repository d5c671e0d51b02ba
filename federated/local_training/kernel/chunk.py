"""Many devices' local SGD on ``KeyboardLM`` at once, with hand-written gradients.

Shape legend: C devices of a chunk, N positions (step by step), U distinct words of a device, V vocabulary.

Every device has its own copy of the weights, and of the input embedding only the rows of the words
it holds. One step is in ``pretrain.kernel.step``, its output layer in ``outputs``, its data's layout in ``layout``.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from federated.config.training import LocalTrainingConfig
from federated.local_training.kernel.fixed_shapes import fixed_shapes
from federated.local_training.kernel.layout import Chunk, padded
from federated.local_training.kernel.outputs import one_at_a_time
from federated.local_training.rows import DeviceRows
from pretrain.kernel.step import add_gradient
from pretrain.kernel.weights import Weights
from pretrain.kernel.workspace import Space, thread_space


def train_chunk(
    start: Weights,
    devices: Sequence[DeviceRows],
    local: LocalTrainingConfig,
    *,
    width: int | None = None,
    fuse: bool | None = None,
) -> tuple[Weights, list[Tensor]]:
    """Local SGD of every device from the same start.

    On processors of one kind the same devices in the same order give the same bits. With others a device may have other
    low bits than by itself: products are of the shape of the longest rows.

    Args:
      devices: most steps first, so that those still training are always a prefix.
      width: number of devices in fixed shapes; None for the actual number.
      fuse: compiled passes between the products, one device's output layer at a time, in shapes that
        shrink (only on a CPU), or torch's own and all devices side by side in fixed shapes, which a
        GPU records as graphs. None: by the device type.

    Returns:
      Final minus start weights, one per device, and for each device the vocabulary ids of the
      rows of ``inputs`` (empty list if tied). Rows of ``inputs`` beyond those ids are zero.
      The tensors are this thread's workspace: valid until it trains another chunk.

    Raises:
      ValueError: weights in 16 bits.
    """
    place, dtype = start.gates.device, start.gates.dtype
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"model: weights are {str(dtype).removeprefix('torch.')}; 16 bits lose several percent of an update to "
            "rounding: keep the weights in float32"
        )
    fuse = place.type == "cpu" if fuse is None else fuse
    ids = [] if start.inputs is None else [np.unique(device.inputs_RT) for device in devices]
    tokens = [device.inputs_RT for device in devices]
    if start.inputs is not None:
        tokens = [np.searchsorted(words_U, tokens_RT) for words_U, tokens_RT in zip(ids, tokens, strict=True)]
    if fuse or not devices:
        weights = _in_shrinking_shapes(start, devices, tokens, ids, local, thread_space(place, dtype))
    else:
        weights = fixed_shapes(start, devices, tokens, ids, local, width or len(devices))
    for after, before in zip(weights.shared(), start.shared(), strict=True):
        after.sub_(before)
    if weights.inputs is not None and start.inputs is not None:
        weights.inputs.sub_(start.inputs[padded(ids, weights.inputs.shape[1], place)])
    return weights, [torch.from_numpy(words_U).long().to(place) for words_U in ids]


def _in_shrinking_shapes(
    start: Weights,
    devices: Sequence[DeviceRows],
    tokens: Sequence[np.ndarray],
    ids: Sequence[np.ndarray],
    local: LocalTrainingConfig,
    space: Space,
) -> Weights:
    """Train without computation for finished devices, ended rows, or outputs without a target."""
    longest = max(map(len, ids), default=0)
    # A real copy per device: writing through an expanded view would mix the devices.
    weights = Weights(
        start.cell,
        None if start.inputs is None else start.inputs[padded(ids, longest, space.place)],
        *(
            space(f"weight{number}", len(devices), *part.shape).copy_(part)
            for number, part in enumerate(start.shared())
        ),
    )
    steps = [device.steps(local.batch_sentences, local.epochs) for device in devices]
    if not devices:
        return weights
    chunk = Chunk.join(devices, tokens, local)
    for step in range(steps[0]):
        active = sum(count > step for count in steps)
        batch = chunk.batch([device.batch(step, local.batch_sentences) for device in devices[:active]])
        table = weights.outputs if weights.inputs is None else weights.inputs
        rows_CN = torch.from_numpy(batch.tokens_CN + np.arange(active)[:, None] * table.shape[1])
        train_outputs = partial(one_at_a_time, weights, batch, local, space)
        add_gradient(weights, -local.learning_rate, weights, rows_CN, batch.sizes_T.tolist(), train_outputs, space)
    return weights
