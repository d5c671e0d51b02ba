"""Many devices' local SGD on ``KeyboardLM`` at once, with hand-written gradients.

Shape legend: C devices of a chunk, U distinct words of a device, E embedding, H hidden, G = 3H gates,
K = 2E + 1 inputs of the gates, V vocabulary.

Every device has its own copy of the weights, and of the input embedding only the rows of the words
it holds. One step of SGD is in ``batched_step``, its data's layout in ``batched_layout``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import torch
from torch import Tensor

from federated.batched_layout import Chunk
from federated.batched_step import sgd_step, thread_space
from federated.config import LocalTrainingConfig
from federated.rows import DeviceRows
from pretrain.model import KeyboardLM
from pretrain.vocabulary import PAD


@dataclass(frozen=True)
class Weights:
    """``KeyboardLM`` in the layout of this kernel; a leading axis C where there is one per device.

    Attributes:
      inputs: ``[V, E]``, or ``[C, U, E]`` with only the words a device holds; None if tied.
      gates: ``[K, G]``: rows of the word, one of the bias, rows of the recurrent output.
      projection: ``[H, E]``.
      outputs: ``[V, E]``, also the input embedding if tied.
      bias: ``[V]``, of the output layer.
    """

    inputs: Tensor | None
    gates: Tensor
    projection: Tensor
    outputs: Tensor
    bias: Tensor

    def shared(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tensors that have the same shape for every device."""
        return self.gates, self.projection, self.outputs, self.bias


def pack(model: KeyboardLM) -> Weights:
    """The model's weights in this layout."""
    with torch.no_grad():
        return Weights(
            inputs=None if model.tied else model.embedding.detach(),
            gates=torch.cat([model.gates_x, model.gates_b[None], model.gates_r]),
            projection=model.projection.detach(),
            outputs=model.output_VE.detach(),
            bias=model.output_bias.detach(),
        )


def unpack(weights: Weights) -> dict[str, Tensor]:
    """By parameter name, as ``KeyboardLM`` has them."""
    embedding = weights.projection.shape[-1]
    named = {
        "gates_x": weights.gates[:embedding],
        "gates_b": weights.gates[embedding],
        "gates_r": weights.gates[embedding + 1 :],
        "projection": weights.projection,
        "embedding": weights.outputs if weights.inputs is None else weights.inputs,
        "output_bias": weights.bias,
    }
    if weights.inputs is not None:
        named["output"] = weights.outputs
    return named


def train_chunk(
    start: Weights, devices: Sequence[DeviceRows], local: LocalTrainingConfig, *, fuse: bool | None = None
) -> tuple[Weights, list[Tensor]]:
    """Local SGD of every device from the same start.

    Args:
      devices: most steps first, so that those still training are always a prefix.
      fuse: compiled passes between the products, one device's output layer at a time (only on a
        CPU), or torch's own and all devices side by side. None: what the place calls for.

    Returns:
      Final minus start weights, one per device, and for each device the vocabulary ids of the
      rows of ``inputs`` (empty list if tied). Rows of ``inputs`` beyond those ids are zero.
      The tensors are this thread's workspace: good until it trains another chunk.
    """
    place = start.gates.device
    space = thread_space(place, start.gates.dtype, fuse=place.type == "cpu" if fuse is None else fuse)
    ids = [] if start.inputs is None else [np.unique(device.inputs_RT) for device in devices]
    tokens = [device.inputs_RT for device in devices]
    if start.inputs is not None:
        tokens = [np.searchsorted(known, own_RT) for known, own_RT in zip(ids, tokens, strict=True)]
    inputs = None if start.inputs is None else start.inputs[_padded(ids, place)]
    # A real copy per device: writing through an expanded view would mix the devices.
    weights = Weights(
        inputs,
        *(space(f"weight{number}", len(devices), *own.shape).copy_(own) for number, own in enumerate(start.shared())),
    )
    steps = [device.steps(local.batch_sentences, local.epochs) for device in devices]
    chunk = Chunk.join(devices, tokens) if devices else None
    for step in range(steps[0] if chunk else 0):
        active = len(list(takewhile(lambda count, step=step: count > step, steps)))
        batch = chunk.batch([device.batch(step, local.batch_sentences) for device in devices[:active]])
        sgd_step(weights, batch, local.learning_rate, space)
    for after, before in zip(weights.shared(), start.shared(), strict=True):
        after.sub_(before)
    if inputs is not None and start.inputs is not None:
        inputs.sub_(start.inputs[_padded(ids, place)])
    return weights, [torch.from_numpy(known).long().to(place) for known in ids]


def _padded(ids: list[np.ndarray], place: torch.device) -> Tensor:
    padded_CU = np.full((len(ids), max(map(len, ids), default=0)), PAD)
    for row, known in zip(padded_CU, ids, strict=True):
        row[: len(known)] = known
    return torch.from_numpy(padded_CU).long().to(place)
