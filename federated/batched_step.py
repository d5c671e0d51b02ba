"""One step of SGD of a chunk of devices, forward and backward, in place.

Shape legend: C devices still training, N positions (step by step), L labelled positions of one
device, B rows of the first time step, E embedding, H hidden, G = 3H gates, K = 2E + 1 inputs of the
gates (word, 1 for the bias, recurrent output of the step before), V vocabulary.

Updates are accumulated into the weights by the matrix product itself; no gradient of a weight is
ever stored. Positions without a word have gradient zero, and change nothing, exactly.
"""

import math
from dataclasses import dataclass, field
from threading import local as local_storage
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from federated import fused, unfused
from federated.batched_layout import Batch


class DeviceWeights(Protocol):
    """``batched.Weights`` with a leading axis C."""

    inputs: Tensor | None
    gates: Tensor
    projection: Tensor
    outputs: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Space:
    """Memory of one thread, used again from step to step and from chunk to chunk.

    Fresh memory costs more here than the arithmetic in it: the system clears every page first.
    """

    place: torch.device
    dtype: torch.dtype
    fuse: bool
    _flat: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, *shape: int) -> Tensor:
        """A tensor with whatever the memory of this name holds; the last one of the name is gone."""
        size = math.prod(shape)
        if name not in self._flat or self._flat[name].numel() < size:
            self._flat[name] = torch.empty(size, dtype=self.dtype, device=self.place)
        return self._flat[name][:size].view(shape)


_spaces = local_storage()


def thread_space(place: torch.device, dtype: torch.dtype, *, fuse: bool) -> Space:
    """The space of this thread."""
    known = _spaces.__dict__
    key = f"{place} {dtype} {fuse}"
    if key not in known:
        known[key] = Space(place, dtype, fuse)
    return known[key]


def sgd_step(weights: DeviceWeights, batch: Batch, learning_rate: float, space: Space) -> None:
    """One step of SGD on the mean loss over each device's labelled positions, in place."""
    devices, positions = batch.tokens_CN.shape
    hidden, embedding = weights.projection.shape[-2:]
    bottom = embedding + 1
    sizes, starts = batch.sizes_T.tolist(), (np.cumsum(batch.sizes_T) - batch.sizes_T).tolist()
    gates_CKG, projection_CHE = weights.gates[:devices], weights.projection[:devices]
    # One flat input table for all devices.
    table = weights.outputs if weights.inputs is None else weights.inputs
    flat_table = table.view(-1, embedding)
    rows_CN = torch.from_numpy(batch.tokens_CN + np.arange(devices)[:, None] * table.shape[1]).to(space.place)

    seen_CNK = space("seen", devices, positions, 2 * embedding + 1)
    seen_CNK[..., :embedding] = flat_table[rows_CN]
    seen_CNK[..., embedding] = 1.0
    seen_CNK[:, : sizes[0], bottom:] = 0.0
    gates_CNG = torch.bmm(
        seen_CNK[..., :bottom], gates_CKG[:, :bottom], out=space("gates", devices, positions, 3 * hidden)
    )
    outs_CNE = space("outs", devices, positions, embedding)
    tape = _Tape(gates_CNG, *(space(name, devices, positions, hidden) for name in ("cell", "tanh", "mixed")), space)
    for step, (first, size) in enumerate(zip(starts, sizes, strict=True)):
        span = slice(first, first + size)
        if step:
            before = starts[step - 1]
            seen_CNK[:, span, bottom:] = outs_CNE[:, before : before + size]
            gates_CNG[:, span].baddbmm_(seen_CNK[:, span, bottom:], gates_CKG[:, bottom:])
        tape.forward(first, starts[step - 1] if step else -1, size)
        outs_CNE[:, span].baddbmm_(tape.mixed_CNH[:, span], projection_CHE, beta=0)

    d_outs_CNE = space("d_outs", devices, positions, embedding)
    output_layer = _one_at_a_time if space.fuse else _side_by_side
    output_layer(weights, outs_CNE, d_outs_CNE, batch, learning_rate, space)

    # A few rows times a transposed matrix run at a third of the speed: transposed once for all steps.
    recurrent_CGE = space("recurrent", devices, 3 * hidden, embedding).copy_(gates_CKG[:, bottom:].mT)
    d_cell_CBH = space("d_cell", devices, sizes[0], hidden).zero_()
    for step in reversed(range(len(sizes))):
        first, size = starts[step], sizes[step]
        span = slice(first, first + size)
        d_mixed_CBH = space("d_mixed", devices, size, hidden)
        torch.bmm(d_outs_CNE[:, span], projection_CHE.mT, out=d_mixed_CBH)
        tape.backward(d_mixed_CBH, d_cell_CBH, first, starts[step - 1] if step else -1, size)
        if step:
            before = starts[step - 1]
            # Rows that ended before get nothing back.
            d_outs_CNE[:, before : before + size].baddbmm_(gates_CNG[:, span], recurrent_CGE)
    d_words_CNE = torch.bmm(gates_CNG, gates_CKG[:, :embedding].mT, out=space("d_words", devices, positions, embedding))
    gates_CKG.baddbmm_(seen_CNK.mT, gates_CNG, alpha=-learning_rate)
    projection_CHE.baddbmm_(tape.mixed_CNH.mT, d_outs_CNE, alpha=-learning_rate)
    flat_table.index_add_(0, rows_CN.flatten(), d_words_CNE.flatten(0, 1), alpha=-learning_rate)


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


def _one_at_a_time(
    weights: DeviceWeights, outs_CNE: Tensor, d_outs_CNE: Tensor, batch: Batch, learning_rate: float, space: Space
) -> None:
    """Train the output layer; ``d_outs_CNE`` becomes the loss's gradient by recurrent output.

    One device at a time, and only over its labelled positions: the logits stay in cache, and
    nothing is computed for padding.
    """
    slope_V = space("slope", weights.bias.shape[-1]).numpy()
    for device, count in enumerate(batch.labelled_C.tolist()):
        outputs_VE, own_NE, d_own_NE = weights.outputs[device], outs_CNE[device], d_outs_CNE[device]
        targets_N = batch.targets_CN[device]
        if count < len(targets_N):
            d_own_NE.zero_()
        if not count:
            continue
        labelled = None
        if count < len(targets_N):
            labelled = torch.from_numpy(np.flatnonzero(targets_N))
            targets_N = targets_N[targets_N != 0]
            own_NE = torch.index_select(own_NE, 0, labelled, out=space("labelled", count, own_NE.shape[1]))
        logits_LV = torch.mm(own_NE, outputs_VE.T, out=space("logits", count, len(outputs_VE)))
        rate = learning_rate / count
        bias_V = weights.bias[device].numpy()
        fused.train_bias(logits_LV.numpy(), bias_V, targets_N, slope_V, bias_V.dtype.type(rate))
        if labelled is None:
            torch.mm(logits_LV, outputs_VE, out=d_own_NE).div_(count)
        else:
            found = torch.mm(logits_LV, outputs_VE, out=space("d_labelled", *own_NE.shape))
            d_own_NE.index_copy_(0, labelled, found.div_(count))
        outputs_VE.addmm_(logits_LV.T, own_NE, alpha=-rate)


def _side_by_side(
    weights: DeviceWeights, outs_CNE: Tensor, d_outs_CNE: Tensor, batch: Batch, learning_rate: float, space: Space
) -> None:
    """The same for all devices in one product each, positions without a word at weight zero."""
    devices, positions = batch.targets_CN.shape
    outputs_CVE, bias_CV = weights.outputs[:devices], weights.bias[:devices]
    targets_CN = torch.from_numpy(batch.targets_CN).to(space.place)
    counts_C1 = torch.from_numpy(np.maximum(batch.labelled_C, 1)[:, None]).to(space.place, space.dtype)
    weight_CN = (targets_CN != 0) / counts_C1
    logits_CNV = torch.bmm(outs_CNE, outputs_CVE.mT, out=space("logits", devices, positions, outputs_CVE.shape[1]))
    logits_CNV += bias_CV[:, None]
    torch.softmax(logits_CNV, dim=-1, out=logits_CNV)
    logits_CNV.scatter_add_(2, targets_CN[..., None], torch.full_like(weight_CN, -1.0)[..., None])
    logits_CNV *= weight_CN[..., None]
    torch.bmm(logits_CNV, outputs_CVE, out=d_outs_CNE)
    bias_CV.sub_(logits_CNV.sum(1), alpha=learning_rate)
    outputs_CVE.baddbmm_(logits_CNV.mT, outs_CNE, alpha=-learning_rate)
