"""Many devices' local SGD on ``KeyboardLM`` at once, with hand-written gradients.

Shape legend: C devices of a chunk, R rows, B rows of a batch, T steps, N positions (step by step),
L labelled positions of one device's batch, U distinct words of a device, E embedding, F = E + 1,
H hidden, G = 3H gates, K = 2E + 1 inputs of the gates, V vocabulary.

Every device has its own copy of the weights. Biases ride along as one more row or column, so a
product applies them and an update trains them. Weight updates are accumulated into the weights
by the matrix product itself; no gradient of a weight is ever stored. The output layer runs one
device at a time over its labelled positions only, which keeps the logits in cache and wastes
nothing on padding; the recurrent part runs over the chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

import numpy as np
import torch
from torch import Tensor

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
      outputs: ``[V, F]``, last column the bias; without it also the input embedding if tied.
    """

    inputs: Tensor | None
    gates: Tensor
    projection: Tensor
    outputs: Tensor

    def shared(self) -> tuple[Tensor, Tensor, Tensor]:
        """The tensors that have the same shape for every device."""
        return self.gates, self.projection, self.outputs


def pack(model: KeyboardLM) -> Weights:
    """The model's weights in this layout."""
    with torch.no_grad():
        return Weights(
            inputs=None if model.tied else model.embedding.detach(),
            gates=torch.cat([model.gates_x, model.gates_b[None], model.gates_r]),
            projection=model.projection.detach(),
            outputs=torch.cat([model.output_VE, model.output_bias[:, None]], dim=1),
        )


def unpack(weights: Weights) -> dict[str, Tensor]:
    """By parameter name, as ``KeyboardLM`` has them."""
    embedding = weights.projection.shape[-1]
    named = {
        "gates_x": weights.gates[:embedding],
        "gates_b": weights.gates[embedding],
        "gates_r": weights.gates[embedding + 1 :],
        "projection": weights.projection,
        "embedding": weights.outputs[:, :-1] if weights.inputs is None else weights.inputs,
        "output_bias": weights.outputs[:, -1],
    }
    if weights.inputs is not None:
        named["output"] = weights.outputs[:, :-1]
    return named


def train_chunk(
    start: Weights, devices: Sequence[DeviceRows], local: LocalTrainingConfig
) -> tuple[Weights, list[Tensor]]:
    """Local SGD of every device from the same start.

    Args:
      devices: most steps first, so that those still training are always a prefix.

    Returns:
      Final minus start weights, one per device, and for each device the vocabulary ids of the
      rows of ``inputs`` (empty list if tied). Rows of ``inputs`` beyond those ids are zero.
    """
    ids = [] if start.inputs is None else [np.unique(device.inputs_RT) for device in devices]
    tokens_of = [device.inputs_RT for device in devices]
    if start.inputs is not None:
        tokens_of = [np.searchsorted(known, tokens) for known, tokens in zip(ids, tokens_of, strict=True)]
    # A real copy per device: writing through an expanded view would mix the devices.
    copies = [tensor.expand(len(devices), *tensor.shape).clone() for tensor in start.shared()]
    weights = Weights(_own_inputs(start.inputs, ids), *copies)
    steps = [device.steps(local.batch_sentences, local.epochs) for device in devices]
    for step in range(steps[0] if devices else 0):
        active = len(list(takewhile(lambda count, step=step: count > step, steps)))
        batches = [device.batch(step, local.batch_sentences) for device in devices[:active]]
        batch = _Batch.gather(batches, tokens_of, [device.targets_RT for device in devices], start.gates.device)
        _sgd_step(weights, batch, local.learning_rate)
    for after, before in zip(weights.shared(), start.shared(), strict=True):
        after.sub_(before)
    if weights.inputs is not None:
        weights.inputs.sub_(_own_inputs(start.inputs, ids))
    return weights, [torch.from_numpy(known).long().to(start.gates.device) for known in ids]


def _own_inputs(inputs_VE: Tensor | None, ids: list[np.ndarray]) -> Tensor | None:
    if inputs_VE is None:
        return None
    padded_CU = np.full((len(ids), max(map(len, ids), default=0)), PAD)
    for row, known in zip(padded_CU, ids, strict=True):
        row[: len(known)] = known
    return inputs_VE[torch.from_numpy(padded_CU).long().to(inputs_VE.device)]


@dataclass(frozen=True)
class _Batch:
    """One step of the devices still training.

    Rows of a device are put in order of length, longest first (their order within a batch means
    nothing), so that the rows still going on at step t are the first ``sizes_T[t]`` ones.
    Position ``sum(sizes_T[:t]) + row`` is step t of a row.

    Attributes:
      tokens_CN: rows of the device's input table.
      sizes_T: rows at each step, the most of any device.
      labelled: per device, the positions with a target, int64 ``[L]``.
      targets: per device, the vocabulary ids there, int64 ``[L]``.
    """

    tokens_CN: Tensor
    sizes_T: list[int]
    labelled: list[Tensor]
    targets: list[Tensor]

    @staticmethod
    def gather(
        batches: list[slice], tokens: list[np.ndarray], targets: list[np.ndarray], place: torch.device
    ) -> "_Batch":
        targets_BT = [targets_RT[rows] for rows, targets_RT in zip(batches, targets, strict=False)]
        lengths = [np.count_nonzero(own_BT, axis=1) for own_BT in targets_BT]
        orders = [np.argsort(-own_B, kind="stable") for own_B in lengths]
        steps_T = np.arange(max(1, *(int(own_B.max(initial=0)) for own_B in lengths)))
        sizes_T = np.max([np.sum(own_B[:, None] > steps_T, axis=0) for own_B in lengths], axis=0).clip(1)
        starts_T = np.cumsum(sizes_T) - sizes_T
        tokens_CN = np.zeros((len(batches), int(sizes_T.sum())), dtype=np.int64)
        labelled, wanted = [], []
        for device, (rows, own_BT, order) in enumerate(zip(batches, targets_BT, orders, strict=True)):
            ranked_BT = own_BT[order]
            row_L, time_L = np.nonzero(ranked_BT)
            position_L = starts_T[time_L] + row_L
            tokens_CN[device, position_L] = tokens[device][rows][order][row_L, time_L]
            labelled.append(torch.from_numpy(position_L).to(place))
            wanted.append(torch.from_numpy(ranked_BT[row_L, time_L].astype(np.int64)).to(place))
        return _Batch(torch.from_numpy(tokens_CN).to(place), sizes_T.tolist(), labelled, wanted)

    def spans(self) -> list[slice]:
        """Positions of each step."""
        ends = list(accumulate(self.sizes_T))
        return [slice(end - size, end) for end, size in zip(ends, self.sizes_T, strict=True)]


def _sgd_step(weights: Weights, batch: _Batch, learning_rate: float) -> None:
    """One step of SGD on the mean loss over each device's labelled positions, in place."""
    devices, positions = batch.tokens_CN.shape
    hidden, embedding = weights.projection.shape[-2:]
    gates_CKG, projection_CHE = weights.gates[:devices], weights.projection[:devices]
    # One flat input table for all devices; the last column of a tied table is the output bias.
    table = weights.outputs if weights.inputs is None else weights.inputs
    flat_table = table.view(-1, table.shape[-1])[:, :embedding]
    rows_CN = batch.tokens_CN + torch.arange(devices, device=table.device)[:, None] * table.shape[1]

    # What the gates see: the word, 1 for the bias, the recurrent output of the step before.
    seen_CNK = table.new_zeros(devices, positions, 2 * embedding + 1)
    seen_CNK[..., :embedding] = flat_table[rows_CN]
    seen_CNK[..., embedding] = 1.0
    bottom = embedding + 1
    words_CNG = torch.bmm(seen_CNK[..., :bottom], gates_CKG[:, :bottom])
    outs_CNF = table.new_ones(devices, positions, embedding + 1)
    mixed_CNH = table.new_empty(devices, positions, hidden)
    tape: list[_Step] = []
    for span, size in zip(batch.spans(), batch.sizes_T, strict=True):
        gates = words_CNG[:, span]
        before = table.new_zeros(devices, size, hidden)
        if tape:
            seen_CNK[:, span, bottom:] = out[:, :size]  # noqa: F821  (set by the step before)
            gates = torch.baddbmm(gates, out[:, :size], gates_CKG[:, bottom:])  # noqa: F821
            before = tape[-1].cell[:, :size]
        forget, candidate, output = gates.split(hidden, dim=-1)
        forget, candidate, output = torch.sigmoid(forget), torch.tanh(candidate), torch.sigmoid(output)
        cell = torch.lerp(candidate, before, forget)
        tape.append(_Step(forget, candidate, output, cell, torch.tanh(cell), before))
        mixed = output * tape[-1].tanh_cell
        out = torch.bmm(mixed, projection_CHE)
        mixed_CNH[:, span] = mixed
        outs_CNF[:, span, :embedding] = out

    d_outs_CNE = _output_layer(weights.outputs, outs_CNF, batch, learning_rate)
    d_gates_CNG = _backward_through_time(tape, batch.spans(), d_outs_CNE, gates_CKG[:, bottom:], projection_CHE)
    d_words_CNE = torch.bmm(d_gates_CNG, gates_CKG[:, :embedding].mT)
    gates_CKG.baddbmm_(seen_CNK.mT, d_gates_CNG, alpha=-learning_rate)
    projection_CHE.baddbmm_(mixed_CNH.mT, d_outs_CNE, alpha=-learning_rate)
    for device, labelled in enumerate(batch.labelled):
        d_words_LE = d_words_CNE[device].index_select(0, labelled)
        flat_table.index_add_(0, rows_CN[device, labelled], d_words_LE, alpha=-learning_rate)


@dataclass(frozen=True)
class _Step:
    """What the backward pass needs of one step, ``[C, rows, H]`` each."""

    forget: Tensor
    candidate: Tensor
    output: Tensor
    cell: Tensor
    tanh_cell: Tensor
    before: Tensor


def _output_layer(outputs_CVF: Tensor, outs_CNF: Tensor, batch: _Batch, learning_rate: float) -> Tensor:
    """Train the output layer in place; returns the loss's gradient by recurrent output ``[C, N, E]``."""
    d_outs_CNE = torch.zeros_like(outs_CNF[..., :-1])
    for device, (labelled, targets) in enumerate(zip(batch.labelled, batch.targets, strict=True)):
        if not len(targets):
            continue
        outputs_VF = outputs_CVF[device]
        features_LF = outs_CNF[device].index_select(0, labelled)
        logits_LV = features_LF @ outputs_VF.T
        torch.softmax(logits_LV, dim=-1, out=logits_LV)
        # From here on: gradient by logit, but for the factor 1 / L, which the small matrices carry.
        logits_LV[torch.arange(len(targets), device=targets.device), targets] -= 1.0
        d_outs_CNE[device].index_copy_(0, labelled, (logits_LV @ outputs_VF[:, :-1]) / len(targets))
        outputs_VF.addmm_(logits_LV.T, features_LF, alpha=-learning_rate / len(targets))
    return d_outs_CNE


def _backward_through_time(
    tape: list[_Step], spans: list[slice], d_outs_CNE: Tensor, recurrent_CEG: Tensor, projection_CHE: Tensor
) -> Tensor:
    """Gradient by gate ``[C, N, G]``; adds what comes back through time to ``d_outs_CNE`` in place."""
    hidden = projection_CHE.shape[1]
    d_gates_CNG = d_outs_CNE.new_empty(*d_outs_CNE.shape[:2], 3 * hidden)
    sigmoid_slope, tanh_slope = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
    d_cell_later, d_out_later = None, None
    for step, span in zip(reversed(tape), reversed(spans), strict=True):
        d_out, d_gates = d_outs_CNE[:, span], d_gates_CNG[:, span]
        if d_out_later is not None:
            # Fewer rows go on later: the others get nothing back.
            d_out[:, : d_out_later.shape[1]] += d_out_later
        d_mixed = torch.bmm(d_out, projection_CHE.mT)
        d_cell = tanh_slope(d_mixed * step.output, step.tanh_cell)
        if d_cell_later is not None:
            d_cell[:, : d_cell_later.shape[1]] += d_cell_later
        d_cell_later = d_cell * step.forget
        d_gates[..., :hidden] = sigmoid_slope(d_cell * (step.before - step.candidate), step.forget)
        d_gates[..., hidden : 2 * hidden] = tanh_slope(d_cell - d_cell_later, step.candidate)
        d_gates[..., 2 * hidden :] = sigmoid_slope(d_mixed * step.tanh_cell, step.output)
        d_out_later = torch.bmm(d_gates, recurrent_CEG.mT)
    return d_gates_CNG
