"""The weights of ``KeyboardLM`` in the training kernel's layout.

Shape legend: C devices of a chunk, U distinct words of a device, E embedding, H hidden, G = 3H gates,
K = 2E + 1 inputs of the gates, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.model import KeyboardLM


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
    """By parameter name, as ``KeyboardLM`` has them; with a leading axis where there was one."""
    embedding = weights.projection.shape[-1]
    named = {
        "gates_x": weights.gates[..., :embedding, :],
        "gates_b": weights.gates[..., embedding, :],
        "gates_r": weights.gates[..., embedding + 1 :, :],
        "projection": weights.projection,
        "embedding": weights.outputs if weights.inputs is None else weights.inputs,
        "output_bias": weights.bias,
    }
    if weights.inputs is not None:
        named["output"] = weights.outputs
    return named
