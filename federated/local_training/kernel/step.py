"""One step of SGD of a chunk of devices, forward and backward, in place.

Shape legend: C devices still training, N positions (step by step), B rows of the first time step, L labelled
positions of one device, E embedding, H hidden, G = 3H gates (forget, candidate, output), K = 2E + 1 inputs of
the gates (word, 1 for the bias, recurrent output of the step before), V vocabulary.

Updates are accumulated into the weights by the matrix product itself; no gradient of a weight is
ever stored. Positions without a word have gradient zero, and change nothing, exactly.

Between the products there are two ways to the same numbers: compiled passes for a CPU, and torch's own for a GPU
(and to test ``compiled`` against).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from federated.local_training.kernel import compiled
from federated.local_training.kernel.layout import Batch
from federated.local_training.kernel.weights import Weights
from federated.local_training.kernel.workspace import Space
from pretrain.kernel.compiled import cell_backward, cell_forward


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
        the recurrent outputs, its first. ``one_at_a_time`` or ``side_by_side``.
    """
    devices, positions = rows_CN.shape
    hidden, embedding = weights.projection.shape[-2:]
    bottom = embedding + 1
    starts = (np.cumsum(sizes) - sizes).tolist()
    gates_CKG, projection_CHE = weights.gates[:devices], weights.projection[:devices]
    # One flat input table for all devices.
    flat_table = (weights.outputs if weights.inputs is None else weights.inputs).view(-1, embedding)

    seen_CNK = space("seen", devices, positions, 2 * embedding + 1)
    seen_CNK[..., :embedding] = flat_table[rows_CN]
    seen_CNK[..., embedding] = 1.0
    seen_CNK[:, : sizes[0], bottom:] = 0.0
    gates_CNG = space("gates", devices, positions, 3 * hidden)
    gates_CNG.baddbmm_(seen_CNK[..., :bottom], gates_CKG[:, :bottom], beta=0)
    outs_CNE = space("outs", devices, positions, embedding)
    tape = Tape(gates_CNG, *(space(name, devices, positions, hidden) for name in ("cell", "tanh", "mixed")))
    recurrent_CEG = gates_CKG[:, bottom:]
    for step, (first, size) in enumerate(zip(starts, sizes, strict=True)):
        span = slice(first, first + size)
        if step:
            before = starts[step - 1]
            seen_CNK[:, span, bottom:] = outs_CNE[:, before : before + size]
            gates_CNG[:, span].baddbmm_(seen_CNK[:, span, bottom:], recurrent_CEG)
        tape.forward(first, starts[step - 1] if step else -1, size, fuse=space.fuse)
        outs_CNE[:, span].baddbmm_(tape.mixed_CNH[:, span], projection_CHE, beta=0)

    d_outs_CNE = space("d_outs", devices, positions, embedding)
    train_outputs(outs_CNE, d_outs_CNE)

    # A few rows times a transposed matrix run at a third of the speed: transposed once for all steps.
    recurrent_CGE = space("recurrent", devices, 3 * hidden, embedding).copy_(gates_CKG[:, bottom:].mT)
    d_cell_CBH = space("d_cell", devices, sizes[0], hidden).zero_()
    for step in reversed(range(len(sizes))):
        first, size = starts[step], sizes[step]
        span = slice(first, first + size)
        d_mixed_CBH = space("d_mixed", devices, size, hidden)
        d_mixed_CBH.baddbmm_(d_outs_CNE[:, span], projection_CHE.mT, beta=0)
        tape.backward(d_mixed_CBH, d_cell_CBH, first, starts[step - 1] if step else -1, size, fuse=space.fuse)
        if step:
            before = starts[step - 1]
            # Rows that ended before get nothing back.
            d_outs_CNE[:, before : before + size].baddbmm_(gates_CNG[:, span], recurrent_CGE)
    d_words_CNE = space("d_words", devices, positions, embedding)
    d_words_CNE.baddbmm_(gates_CNG, gates_CKG[:, :embedding].mT, beta=0)
    gates_CKG.baddbmm_(seen_CNK.mT, gates_CNG, alpha=-learning_rate)
    projection_CHE.baddbmm_(tape.mixed_CNH.mT, d_outs_CNE, alpha=-learning_rate)
    if not space.fuse:
        d_words_CNE = at_first_use(rows_CN, d_words_CNE)
    flat_table.index_add_(0, rows_CN.flatten(), d_words_CNE.flatten(0, 1), alpha=-learning_rate)


def at_first_use(rows_CN: Tensor, d_words_CNE: Tensor) -> Tensor:
    """Each row's gradient summed at the first position that uses it, exact zeros at its others.

    A GPU adds in any order where positions share a row; with one number that is not zero, and zeros, the order
    changes nothing, and a round done again is the same round.
    """
    same_CNN = rows_CN[:, :, None] == rows_CN[:, None, :]
    first_CN1 = ~same_CNN.tril(-1).any(-1, keepdim=True)
    return torch.bmm((same_CNN & first_CN1).to(d_words_CNE.dtype), d_words_CNE)


def one_at_a_time(
    weights: Weights, batch: Batch, learning_rate: float, space: Space, outs_CNE: Tensor, d_outs_CNE: Tensor
) -> None:
    """Train the output layer device by device; ``d_outs_CNE`` becomes the loss's gradient by recurrent output.

    For a CPU, and only over labelled positions: the logits stay in cache, and nothing is computed for padding.
    """
    slope_V = space("slope", weights.bias.shape[-1]).numpy()
    for device, count in enumerate(batch.labelled_C.tolist()):
        outputs_VE, outs_NE, d_outs_NE = weights.outputs[device], outs_CNE[device], d_outs_CNE[device]
        targets_N = batch.targets_CN[device]
        if count < len(targets_N):
            d_outs_NE.zero_()
        if not count:
            continue
        labelled = None
        if count < len(targets_N):
            labelled = torch.from_numpy(np.flatnonzero(targets_N))
            targets_N = targets_N[targets_N != 0]
            outs_NE = torch.index_select(outs_NE, 0, labelled, out=space("labelled", count, outs_NE.shape[1]))
        logits_LV = space("logits", count, len(outputs_VE))
        logits_LV.addmm_(outs_NE, outputs_VE.T, beta=0)
        rate = learning_rate / count
        bias_V = weights.bias[device].numpy()
        compiled.train_bias(logits_LV.numpy(), bias_V, targets_N, slope_V, bias_V.dtype.type(rate))
        if labelled is None:
            d_outs_NE.addmm_(logits_LV, outputs_VE, beta=0, alpha=1 / count)
        else:
            d_labelled_LE = space("d_labelled", *outs_NE.shape)
            d_labelled_LE.addmm_(logits_LV, outputs_VE, beta=0, alpha=1 / count)
            d_outs_NE.index_copy_(0, labelled, d_labelled_LE)
        outputs_VE.addmm_(logits_LV.T, outs_NE, alpha=-rate)


def side_by_side(
    weights: Weights,
    targets_CN: Tensor,
    learning_rate: float,
    space: Space,
    outs_CNE: Tensor,
    d_outs_CNE: Tensor,
) -> None:
    """Train the output layer of all devices in one product each, positions without a target at weight exactly zero."""
    devices, positions = targets_CN.shape
    outputs_CVE, bias_CV = weights.outputs[:devices], weights.bias[:devices]
    labelled_CN1 = (targets_CN != 0).to(space.dtype)[..., None]
    share_CN1 = labelled_CN1 / labelled_CN1.sum(1, keepdim=True).clamp(min=1)
    logits_CNV = space("logits", devices, positions, outputs_CVE.shape[1])
    logits_CNV.baddbmm_(outs_CNE, outputs_CVE.mT, beta=0)
    logits_CNV += bias_CV[:, None]
    torch.softmax(logits_CNV, dim=-1, out=logits_CNV)
    logits_CNV.scatter_add_(2, targets_CN[..., None], -torch.ones_like(labelled_CN1))
    logits_CNV *= share_CN1
    d_outs_CNE.baddbmm_(logits_CNV, outputs_CVE, beta=0)
    bias_CV.sub_(logits_CNV.sum(1), alpha=learning_rate)
    outputs_CVE.baddbmm_(logits_CNV.mT, outs_CNE, alpha=-learning_rate)


class Tape(NamedTuple):
    """What the backward pass needs of the forward pass: outputs of the gates, cell, its tanh, and that gated."""

    gates_CNG: Tensor
    cell_CNH: Tensor
    tanh_CNH: Tensor
    mixed_CNH: Tensor

    def forward(self, start: int, before: int, rows: int, *, fuse: bool) -> None:
        """One time step from the gates' inputs, which become their outputs in place.

        Args:
          start, before: first position of this step and of the one before; -1 if there is none.
          rows: of this step.
        """
        if fuse:
            gates_CNG, cell_CNH, tanh_CNH, mixed_CNH = (part.numpy() for part in self)
            cell_forward(gates_CNG, cell_CNH, tanh_CNH, mixed_CNH, start, before, rows)
            return
        span = slice(start, start + rows)
        forget, candidate, output = self.gates_CNG[:, span].chunk(3, dim=-1)
        forget.sigmoid_()
        candidate.tanh_()
        output.sigmoid_()
        if before < 0:
            self.cell_CNH[:, span] = candidate - forget * candidate
        else:
            self.cell_CNH[:, span] = torch.lerp(candidate, self.cell_CNH[:, before : before + rows], forget)
        self.tanh_CNH[:, span] = torch.tanh(self.cell_CNH[:, span])
        self.mixed_CNH[:, span] = output * self.tanh_CNH[:, span]

    def backward(
        self, d_mixed_CBH: Tensor, d_cell_CBH: Tensor, start: int, before: int, rows: int, *, fuse: bool
    ) -> None:
        """One time step backward: the gates' outputs become gradients by the gates' inputs in place.

        Args:
          d_cell_CBH: gradient by this step's cell from the steps after it; becomes that by the cell before.
        """
        if fuse:
            gates_CNG, cell_CNH, tanh_CNH, _ = (part.numpy() for part in self)
            by_mixed_CBH, by_cell_CBH = d_mixed_CBH.numpy(), d_cell_CBH.numpy()
            cell_backward(gates_CNG, cell_CNH, tanh_CNH, by_mixed_CBH, by_cell_CBH, start, before, rows)
            return
        span = slice(start, start + rows)
        forget, candidate, output = self.gates_CNG[:, span].chunk(3, dim=-1)
        tanh, d_mixed, later = self.tanh_CNH[:, span], d_mixed_CBH[:, :rows], d_cell_CBH[:, :rows]
        earlier = torch.zeros_like(tanh) if before < 0 else self.cell_CNH[:, before : before + rows]
        d_cell = d_mixed * output * (1 - tanh * tanh) + later
        later.copy_(d_cell * forget)
        forget.copy_(d_cell * (earlier - candidate) * forget * (1 - forget))
        candidate.copy_((d_cell - later) * (1 - candidate * candidate))
        output.copy_(d_mixed * tanh * output * (1 - output))
