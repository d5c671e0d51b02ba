"""One step of training a recurrent model, forward and backward: of one model, or of many side by side.

Shape legend: C models side by side (devices of a chunk; 1 in pretraining), N positions (step by step), B rows of the
first time step, E embedding, H hidden, G gates, K = 2E + 1 inputs of the gates (word, 1 for the bias, recurrent output
of the step before), V vocabulary.

The gradient is accumulated by the matrix products themselves, into the weights (plain SGD) or beside them; no gradient
of a device's weight is ever stored. Positions without a word have gradient zero, and change nothing, exactly.

Between the products stands the cell: its compiled functions on a CPU, its definition and torch's derivative of that on
a GPU (and to test the compiled ones against).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pretrain.cells.cell import Cell
from pretrain.kernel.weights import Weights
from pretrain.kernel.workspace import Space

Loss = TypeVar("Loss")


def add_gradient(
    into: Weights,
    rate: float,
    weights: Weights,
    rows_CN: Tensor,
    sizes: Sequence[int],
    output_layer: Callable[[Tensor, Tensor], Loss],
    space: Space,
) -> Loss:
    """Add ``rate`` times the gradient of a loss to ``into``; the output layer's own part is added by itself.

    Nothing here looks at a number on the device, so that a GPU can record it as a graph.

    Args:
      into: gradients in the shape of ``weights``; or ``weights``, which are trained in place.
      rows_CN: of the input tables of all models, one after the other, by position.
      sizes: rows still going on at each time step; position ``sum(sizes[:t]) + row`` is step t of a row.
      output_layer: fills its second argument with the loss's gradient by the recurrent outputs, its first.

    Returns:
      What ``output_layer`` returns.
    """
    models, positions = rows_CN.shape
    hidden, embedding = weights.projection.shape[-2:]
    bottom = embedding + 1
    starts = (np.cumsum(sizes) - sizes).tolist()
    gates_CKG, projection_CHE = weights.gates[:models], weights.projection[:models]

    seen_CNK = space("seen", models, positions, 2 * embedding + 1)
    seen_CNK[..., :embedding] = _flat_table(weights)[rows_CN]
    seen_CNK[..., embedding] = 1.0
    seen_CNK[:, : sizes[0], bottom:] = 0.0
    gates_CNG = space("gates", models, positions, gates_CKG.shape[-1])
    gates_CNG.baddbmm_(seen_CNK[..., :bottom], gates_CKG[:, :bottom], beta=0)
    outs_CNE = space("outs", models, positions, embedding)
    state_CNH, saved_CNH, gated_CNH = (space(name, models, positions, hidden) for name in ("state", "saved", "gated"))
    tape = Tape(weights.cell, space.fuse, gates_CNG, state_CNH, saved_CNH, gated_CNH)
    # Views of each time step.
    gates, gated, outs = (part.split(sizes, dim=1) for part in (gates_CNG, gated_CNH, outs_CNE))
    recurrent, recurrent_CEG = seen_CNK[..., bottom:].split(sizes, dim=1), gates_CKG[:, bottom:]
    for step, (first, size) in enumerate(zip(starts, sizes, strict=True)):
        if step:
            recurrent[step].copy_(outs[step - 1][:, :size])
            gates[step].baddbmm_(recurrent[step], recurrent_CEG)
        tape.forward(first, starts[step - 1] if step else -1, size)
        outs[step].baddbmm_(gated[step], projection_CHE, beta=0)

    d_outs_CNE = space("d_outs", models, positions, embedding)
    loss = output_layer(outs_CNE, d_outs_CNE)

    d_outs, projection_CEH = d_outs_CNE.split(sizes, dim=1), projection_CHE.mT
    # A few rows times a transposed matrix run at a third of the speed: transposed once for all steps.
    recurrent_CGE = space("recurrent", models, gates_CKG.shape[-1], embedding).copy_(recurrent_CEG.mT)
    d_state_CBH = space("d_state", models, sizes[0], hidden).zero_()
    for step in reversed(range(len(sizes))):
        size = sizes[step]
        d_gated_CBH = space("d_gated", models, size, hidden).baddbmm_(d_outs[step], projection_CEH, beta=0)
        tape.backward(d_gated_CBH, d_state_CBH, starts[step], starts[step - 1] if step else -1, size)
        if step:
            # Rows that ended before get nothing back.
            d_outs[step - 1][:, :size].baddbmm_(gates[step], recurrent_CGE)
    d_words_CNE = space("d_words", models, positions, embedding)
    d_words_CNE.baddbmm_(gates_CNG, gates_CKG[:, :embedding].mT, beta=0)
    into.gates[:models].baddbmm_(seen_CNK.mT, gates_CNG, alpha=rate)
    into.projection[:models].baddbmm_(gated_CNH.mT, d_outs_CNE, alpha=rate)
    if not space.fuse:
        d_words_CNE = at_first_use(rows_CN, d_words_CNE)
    _flat_table(into).index_add_(0, rows_CN.flatten(), d_words_CNE.flatten(0, 1), alpha=rate)
    return loss


def _flat_table(weights: Weights) -> Tensor:
    """Input tables of all models as one."""
    table = weights.outputs if weights.inputs is None else weights.inputs
    return table.view(-1, table.shape[-1])


def at_first_use(rows_CN: Tensor, d_words_CNE: Tensor) -> Tensor:
    """Each row's gradient summed at the first position that uses it, exact zeros at its others.

    A GPU adds in any order where positions share a row; with one number that is not zero, and zeros, the order
    changes nothing, and a round done again is the same round.
    """
    same_CNN = rows_CN[:, :, None] == rows_CN[:, None, :]
    first_CN1 = ~same_CNN.tril(-1).any(-1, keepdim=True)
    return torch.bmm((same_CNN & first_CN1).to(d_words_CNE.dtype), d_words_CNE)


class Tape:
    """The forward pass as the backward pass needs it (see ``Cell``), by compiled functions if ``fuse``."""

    def __init__(
        self, cell: Cell, fuse: bool, gates_CNG: Tensor, state_CNH: Tensor, saved_CNH: Tensor, gated_CNH: Tensor
    ) -> None:
        self._cell, self._gates_CNG, self._state_CNH, self._gated_CNH = cell, gates_CNG, state_CNH, gated_CNH
        parts = (gates_CNG, state_CNH, saved_CNH, gated_CNH)
        self._arrays = tuple(part.numpy() for part in parts) if fuse else None

    def forward(self, start: int, before: int, rows: int) -> None:
        """One time step from the gates' inputs.

        Args:
          start, before: first position of this step and of the one before; -1 if there is none.
          rows: of this step.
        """
        if self._arrays is not None:
            gates, state, saved, gated = self._arrays
            self._cell.forward(gates, state, saved, gated, start, before, rows)
            return
        span = slice(start, start + rows)
        self._gated_CNH[:, span], self._state_CNH[:, span] = self._cell.step(
            self._gates_CNG[:, span], self._state(before, rows)
        )

    def backward(self, d_gated_CBH: Tensor, d_state_CBH: Tensor, start: int, before: int, rows: int) -> None:
        """One time step backward: the gates become the gradient by the gates' inputs, in place.

        Args:
          d_state_CBH: gradient by this step's state from the steps after it; becomes that by the state before.
        """
        if self._arrays is not None:
            gates, state, saved, _ = self._arrays
            self._cell.backward(gates, state, saved, d_gated_CBH.numpy(), d_state_CBH.numpy(), start, before, rows)
            return
        gates_CBG, later_CBH = self._gates_CNG[:, start : start + rows], d_state_CBH[:, :rows]
        inputs = [part.detach().requires_grad_() for part in (gates_CBG, self._state(before, rows))]
        with torch.enable_grad():
            outputs = self._cell.step(*inputs)
        by_gates_CBG, by_before_CBH = torch.autograd.grad(outputs, inputs, (d_gated_CBH, later_CBH))
        gates_CBG.copy_(by_gates_CBG)
        later_CBH.copy_(by_before_CBH)

    def _state(self, before: int, rows: int) -> Tensor:
        """State of the rows before a step; zero before the first."""
        if before < 0:
            return torch.zeros_like(self._state_CNH[:, :rows])
        return self._state_CNH[:, before : before + rows]
