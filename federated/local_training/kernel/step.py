"""One step of SGD of a chunk of devices, forward and backward, in place.

Shape legend: C devices still training, N positions (step by step), B rows of the first time step,
E embedding, H hidden, G = 3H gates, K = 2E + 1 inputs of the gates (word, 1 for the bias, recurrent
output of the step before), V vocabulary.

Updates are accumulated into the weights by the matrix product itself; no gradient of a weight is
ever stored. Positions without a word have gradient zero, and change nothing, exactly.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from federated import unfused
from federated.local_training.kernel import compiled as fused
from federated.local_training.kernel.precision import add_product, factor
from federated.local_training.kernel.weights import Weights
from federated.local_training.kernel.workspace import Space


def sgd_step(
    weights: Weights,
    rows_CN: Tensor,
    sizes: Sequence[int],
    train_outputs: Callable[[Tensor, Tensor], None],
    learning_rate: float,
    space: Space,
) -> None:
    """One step of SGD on the mean loss over each device's labelled positions, in place.

    Nothing here looks at a number on the device, so that a GPU can record it as a graph.

    Args:
      rows_CN: of the input tables of all devices, one after the other, by position.
      sizes: rows still going on at each time step; position ``sum(sizes[:t]) + row`` is step t of a row.
      train_outputs: trains the output layer; fills its second argument with the loss's gradient by
        the recurrent outputs, its first. One of ``output_layer``.
    """
    devices, positions = rows_CN.shape
    hidden, embedding = weights.projection.shape[-2:]
    bottom, precision = embedding + 1, space.precision
    starts = (np.cumsum(sizes) - sizes).tolist()
    gates_CKG, projection_CHE = weights.gates[:devices], weights.projection[:devices]
    # One flat input table for all devices.
    flat_table = (weights.outputs if weights.inputs is None else weights.inputs).view(-1, embedding)

    seen_CNK = space("seen", devices, positions, 2 * embedding + 1)
    seen_CNK[..., :embedding] = flat_table[rows_CN]
    seen_CNK[..., embedding] = 1.0
    seen_CNK[:, : sizes[0], bottom:] = 0.0
    gates_CNG = space("gates", devices, positions, 3 * hidden)
    add_product(gates_CNG, seen_CNK[..., :bottom], gates_CKG[:, :bottom], precision, beta=0)
    outs_CNE = space("outs", devices, positions, embedding)
    tape = _Tape(gates_CNG, *(space(name, devices, positions, hidden) for name in ("cell", "tanh", "mixed")), space)
    recurrent_CEG, projected_CHE = factor(gates_CKG[:, bottom:], precision), factor(projection_CHE, precision)
    for step, (first, size) in enumerate(zip(starts, sizes, strict=True)):
        span = slice(first, first + size)
        if step:
            before = starts[step - 1]
            seen_CNK[:, span, bottom:] = outs_CNE[:, before : before + size]
            add_product(gates_CNG[:, span], seen_CNK[:, span, bottom:], recurrent_CEG, precision)
        tape.forward(first, starts[step - 1] if step else -1, size)
        add_product(outs_CNE[:, span], tape.mixed_CNH[:, span], projected_CHE, precision, beta=0)

    d_outs_CNE = space("d_outs", devices, positions, embedding)
    train_outputs(outs_CNE, d_outs_CNE)

    # A few rows times a transposed matrix run at a third of the speed: transposed once for all steps.
    recurrent_CGE = space("recurrent", devices, 3 * hidden, embedding).copy_(gates_CKG[:, bottom:].mT)
    recurrent_CGE = factor(recurrent_CGE, precision)
    d_cell_CBH = space("d_cell", devices, sizes[0], hidden).zero_()
    for step in reversed(range(len(sizes))):
        first, size = starts[step], sizes[step]
        span = slice(first, first + size)
        d_mixed_CBH = space("d_mixed", devices, size, hidden)
        add_product(d_mixed_CBH, d_outs_CNE[:, span], projected_CHE.mT, precision, beta=0)
        tape.backward(d_mixed_CBH, d_cell_CBH, first, starts[step - 1] if step else -1, size)
        if step:
            before = starts[step - 1]
            # Rows that ended before get nothing back.
            add_product(d_outs_CNE[:, before : before + size], gates_CNG[:, span], recurrent_CGE, precision)
    d_words_CNE = space("d_words", devices, positions, embedding)
    add_product(d_words_CNE, gates_CNG, gates_CKG[:, :embedding].mT, precision, beta=0)
    add_product(gates_CKG, seen_CNK.mT, gates_CNG, precision, alpha=-learning_rate)
    add_product(projection_CHE, tape.mixed_CNH.mT, d_outs_CNE, precision, alpha=-learning_rate)
    if not space.fuse:
        d_words_CNE = _at_first_use(rows_CN, d_words_CNE)
    flat_table.index_add_(0, rows_CN.flatten(), d_words_CNE.flatten(0, 1), alpha=-learning_rate)


def _at_first_use(rows_CN: Tensor, d_words_CNE: Tensor) -> Tensor:
    """Each row's gradient summed at the first position that uses it, exact zeros at its others.

    A GPU adds in any order where positions share a row; with one number that is not zero, and zeros, the order
    changes nothing, and a round done again is the same round.
    """
    same_CNN = rows_CN[:, :, None] == rows_CN[:, None, :]
    first_CN1 = ~same_CNN.tril(-1).any(-1, keepdim=True)
    return torch.bmm((same_CNN & first_CN1).to(d_words_CNE.dtype), d_words_CNE)


class _Tape:
    """What the backward pass needs of the forward pass, and the passes between the products."""

    def __init__(self, gates_CNG: Tensor, cell_CNH: Tensor, tanh_CNH: Tensor, mixed_CNH: Tensor, space: Space) -> None:
        self.mixed_CNH, self._fuse = mixed_CNH, space.fuse
        self._arrays = [self._seen(own) for own in (gates_CNG, cell_CNH, tanh_CNH, mixed_CNH)]

    def _seen(self, tensor: Tensor) -> Tensor | np.ndarray:
        return tensor.numpy() if self._fuse else tensor

    def forward(self, first: int, before: int, rows: int) -> None:
        """One time step of the cell."""
        (fused if self._fuse else unfused).cell_forward(*self._arrays, first, before, rows)

    def backward(self, d_mixed_CBH: Tensor, d_cell_CBH: Tensor, first: int, before: int, rows: int) -> None:
        """One time step of the cell; the gates become their gradient."""
        gates, cell, tanh, _ = self._arrays
        d_mixed, d_cell = self._seen(d_mixed_CBH), self._seen(d_cell_CBH)
        (fused if self._fuse else unfused).cell_backward(gates, cell, tanh, d_mixed, d_cell, first, before, rows)
