"""The weights of ``KeyboardLM`` in the training kernel's layout.

Shape legend: C models side by side (devices of a chunk; 1 in pretraining), U distinct words of a device, E embedding,
H hidden, G gates, K = 2E + 1 inputs of the gates, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.cells.cell import Cell
from pretrain.model.keyboard_lm import KeyboardLM


@dataclass(frozen=True)
class Weights:
    """``KeyboardLM`` in the layout of this kernel; a leading axis C where there is one per device.

    Attributes:
      cell: the functions between the gates and the projection.
      inputs: ``[V, E]``, or ``[C, U, E]`` with only the words a device holds; None if tied.
      gates: ``[K, G]``: rows of the word, one of the bias, rows of the recurrent output.
      projection: ``[H, E]``.
      outputs: ``[V, E]``, also the input embedding if tied.
      bias: ``[V]``, of the output layer.
    """

    cell: Cell
    inputs: Tensor | None
    gates: Tensor
    projection: Tensor
    outputs: Tensor
    bias: Tensor

    def shared(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tensors that have the same shape for every device."""
        return self.gates, self.projection, self.outputs, self.bias

    def zeros_like(self) -> "Weights":
        """Zeros of the same shapes."""
        inputs = None if self.inputs is None else torch.zeros_like(self.inputs)
        return Weights(self.cell, inputs, *(torch.zeros_like(part) for part in self.shared()))


def pack(model: KeyboardLM) -> Weights:
    """The model's weights in this layout."""
    return _packed(model.cell, {name: parameter.detach() for name, parameter in model.named_parameters()})


def pack_alone(model: KeyboardLM) -> Weights:
    """The model's weights with a leading axis of 1."""
    return _packed(model.cell, {name: parameter.detach()[None] for name, parameter in model.named_parameters()})


def pack_flat(update_P: Tensor, model: KeyboardLM) -> Weights:
    """A vector in the order of ``model.parameters()`` in this layout, with a leading axis of 1."""
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    parts = update_P.split([shape.numel() for shape in shapes.values()])
    return _packed(model.cell, {name: part.view(1, *shapes[name]) for name, part in zip(shapes, parts, strict=True)})


def _packed(cell: Cell, named: Mapping[str, Tensor]) -> Weights:
    """The inverse of ``unpack``."""
    tied = "output" not in named
    return Weights(
        cell=cell,
        inputs=None if tied else named["embedding"],
        gates=torch.cat([named["gates_x"], named["gates_b"].unsqueeze(-2), named["gates_r"]], dim=-2),
        projection=named["projection"],
        outputs=named["embedding" if tied else "output"],
        bias=named["output_bias"],
    )


def unpack(weights: Weights) -> dict[str, Tensor]:
    """The tensors by parameter name, as ``KeyboardLM`` has them; with a leading axis where there was one."""
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
