"""Many devices' local SGD on ``KeyboardLM`` at once, with hand-written gradients.

Shape legend: C devices of a chunk, B rows, T steps, N = T x B positions (step-major), L labelled
positions of one device's batch, U distinct words of a device, E embedding, F = E + 1, H hidden,
G = 3H gates, V vocabulary.

Every device has its own copy of the weights. Biases ride along as one more row or column, so a
product applies them and an update trains them. Weight updates are accumulated into the weights
by the matrix product itself; no gradient of a weight is ever stored. The output layer runs one
device at a time over its labelled positions only, which keeps the logits in cache and wastes
nothing on padding; the recurrent part runs over the chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

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
      gates: ``[F, G]``, last row the bias.
      recurrent: ``[E, G]``.
      projection: ``[H, E]``.
      outputs: ``[V, F]``, last column the bias; without it also the input embedding if tied.
    """

    inputs: Tensor | None
    gates: Tensor
    recurrent: Tensor
    projection: Tensor
    outputs: Tensor


def pack(model: KeyboardLM) -> Weights:
    """The model's weights in this layout."""
    with torch.no_grad():
        return Weights(
            inputs=None if model.tied else model.embedding.detach(),
            gates=torch.cat([model.gates_x, model.gates_b[None]]),
            recurrent=model.gates_r.detach(),
            projection=model.projection.detach(),
            outputs=torch.cat([model.output_VE, model.output_bias[:, None]], dim=1),
        )


def unpack(weights: Weights) -> dict[str, Tensor]:
    """By parameter name, as ``KeyboardLM`` has them."""
    named = {
        "gates_x": weights.gates[:-1],
        "gates_b": weights.gates[-1],
        "gates_r": weights.recurrent,
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
    first = [_own_inputs(start.inputs, ids), start.gates, start.recurrent, start.projection, start.outputs]
    weights = Weights(first[0], *(tensor.expand(len(devices), *tensor.shape).clone() for tensor in first[1:]))
    steps = [device.steps(local.batch_sentences, local.epochs) for device in devices]
    for step in range(steps[0] if devices else 0):
        active = len(list(takewhile(lambda count, step=step: count > step, steps)))
        batches = [device.batch(step, local.batch_sentences) for device in devices[:active]]
        batch = _Batch.gather(batches, tokens_of, [device.targets_RT for device in devices])
        _sgd_step(weights, batch, local.learning_rate)
    weights.gates.sub_(start.gates)
    weights.recurrent.sub_(start.recurrent)
    weights.projection.sub_(start.projection)
    weights.outputs.sub_(start.outputs)
    if weights.inputs is not None:
        weights.inputs.sub_(_own_inputs(start.inputs, ids))
    return weights, [torch.from_numpy(known).long() for known in ids]


def _own_inputs(inputs_VE: Tensor | None, ids: list[np.ndarray]) -> Tensor | None:
    if inputs_VE is None:
        return None
    padded_CU = np.full((len(ids), max(map(len, ids), default=0)), PAD)
    for row, known in zip(padded_CU, ids, strict=True):
        row[: len(known)] = known
    return inputs_VE[torch.from_numpy(padded_CU).long()]


@dataclass(frozen=True)
class _Batch:
    """One step of the devices still training.

    Attributes:
      tokens_CN: rows of the device's input table; position ``t * rows + b``.
      rows: B.
      labelled: per device, the positions with a target, int64 ``[L]``.
      targets: per device, the vocabulary ids there, int64 ``[L]``.
    """

    tokens_CN: Tensor
    rows: int
    labelled: list[Tensor]
    targets: list[Tensor]

    @staticmethod
    def gather(batches: list[slice], tokens: list[np.ndarray], targets: list[np.ndarray]) -> "_Batch":
        chosen_BT = [targets_RT[rows] for rows, targets_RT in zip(batches, targets, strict=False)]
        width = max(1, *(int(np.flatnonzero((rows_BT != PAD).any(0)).max(initial=0)) + 1 for rows_BT in chosen_BT))
        height = max(len(rows_BT) for rows_BT in chosen_BT)
        tokens_CTB = np.zeros((len(batches), width, height), dtype=np.int64)
        labelled, wanted = [], []
        for device, (rows, rows_BT) in enumerate(zip(batches, chosen_BT, strict=True)):
            tokens_CTB[device, :, : len(rows_BT)] = tokens[device][rows, :width].T
            row_L, time_L = np.nonzero(rows_BT)
            labelled.append(torch.from_numpy(time_L * height + row_L))
            wanted.append(torch.from_numpy(rows_BT[row_L, time_L].astype(np.int64)))
        return _Batch(torch.from_numpy(tokens_CTB.reshape(len(batches), -1)), height, labelled, wanted)


def _sgd_step(weights: Weights, batch: _Batch, learning_rate: float) -> None:
    """One step of SGD on the mean loss over each device's labelled positions, in place."""
    devices, positions = batch.tokens_CN.shape
    hidden, embedding = weights.projection.shape[-2:]
    gates_CFG, recurrent_CEG = weights.gates[:devices], weights.recurrent[:devices]
    projection_CHE = weights.projection[:devices]
    # One flat table for all devices; the last column of a tied table is the output bias.
    table_CUE = weights.outputs[..., :embedding] if weights.inputs is None else weights.inputs
    rows_CN = batch.tokens_CN + torch.arange(devices)[:, None] * table_CUE.shape[1]
    table = weights.outputs if weights.inputs is None else weights.inputs
    flat_table = table.view(-1, table.shape[-1])[:, :embedding]

    inputs_CNF = gates_CFG.new_ones(devices, positions, embedding + 1)
    inputs_CNF[..., :embedding] = flat_table[rows_CN]
    shape = (devices, positions // batch.rows, batch.rows)
    gates_CTBG = torch.bmm(inputs_CNF, gates_CFG).view(*shape, -1)
    cells_CTBH = gates_CFG.new_empty(*shape, hidden)
    tanh_CTBH, mixed_CTBH = torch.empty_like(cells_CTBH), torch.empty_like(cells_CTBH)
    outs_CTBF = gates_CFG.new_ones(*shape, embedding + 1)
    for time in range(shape[1]):
        now = gates_CTBG[:, time]
        if time:
            now.baddbmm_(out_CBE, recurrent_CEG)  # noqa: F821  (bound by the step before)
        forget, candidate, output = now[..., :hidden], now[..., hidden : 2 * hidden], now[..., 2 * hidden :]
        forget.sigmoid_()
        candidate.tanh_()
        output.sigmoid_()
        before = cells_CTBH[:, time - 1] if time else torch.zeros_like(candidate)
        torch.lerp(candidate, before, forget, out=cells_CTBH[:, time])
        torch.tanh(cells_CTBH[:, time], out=tanh_CTBH[:, time])
        torch.mul(output, tanh_CTBH[:, time], out=mixed_CTBH[:, time])
        out_CBE = torch.bmm(mixed_CTBH[:, time], projection_CHE)
        outs_CTBF[:, time, :, :embedding] = out_CBE

    d_outs_CTBE = _output_layer(weights.outputs, outs_CTBF, batch, learning_rate)
    d_gates_CTBG = _backward_through_time(gates_CTBG, cells_CTBH, tanh_CTBH, d_outs_CTBE, recurrent_CEG, projection_CHE)
    d_gates_CNG = d_gates_CTBG.view(devices, positions, -1)
    d_inputs_CNE = torch.bmm(d_gates_CNG, gates_CFG[:, :embedding].mT)
    gates_CFG.baddbmm_(inputs_CNF.mT, d_gates_CNG, alpha=-learning_rate)
    past = outs_CTBF[:, :-1, :, :embedding].reshape(devices, -1, embedding)
    recurrent_CEG.baddbmm_(past.mT, d_gates_CNG[:, batch.rows :], alpha=-learning_rate)
    projection_CHE.baddbmm_(
        mixed_CTBH.view(devices, positions, -1).mT, d_outs_CTBE.view(devices, positions, -1), alpha=-learning_rate
    )
    for device, labelled in enumerate(batch.labelled):
        flat_table.index_add_(
            0, rows_CN[device, labelled], d_inputs_CNE[device].index_select(0, labelled), alpha=-learning_rate
        )


def _output_layer(outputs_CVF: Tensor, outs_CTBF: Tensor, batch: _Batch, learning_rate: float) -> Tensor:
    """Train the output layer in place; returns the loss's gradient by recurrent output ``[C, T, B, E]``."""
    devices, steps, rows, width = outs_CTBF.shape
    d_outs_CNE = outs_CTBF.new_zeros(devices, steps * rows, width - 1)
    for device, (labelled, targets) in enumerate(zip(batch.labelled, batch.targets, strict=True)):
        if not len(targets):
            continue
        outputs_VF = outputs_CVF[device]
        features_LF = outs_CTBF[device].view(-1, width).index_select(0, labelled)
        logits_LV = features_LF @ outputs_VF.T
        torch.softmax(logits_LV, dim=-1, out=logits_LV)
        # From here on: gradient by logit, but for the factor 1 / L, which the small matrices carry.
        logits_LV[torch.arange(len(targets)), targets] -= 1.0
        d_features_LE = (logits_LV @ outputs_VF[:, :-1]) / len(targets)
        d_outs_CNE[device].index_copy_(0, labelled, d_features_LE)
        outputs_VF.addmm_(logits_LV.T, features_LF, alpha=-learning_rate / len(targets))
    return d_outs_CNE.view(devices, steps, rows, width - 1)


def _backward_through_time(
    gates_CTBG: Tensor,
    cells_CTBH: Tensor,
    tanh_CTBH: Tensor,
    d_outs_CTBE: Tensor,
    recurrent_CEG: Tensor,
    projection_CHE: Tensor,
) -> Tensor:
    """Gradient by gate ``[C, T, B, G]``; adds what comes back through time to ``d_outs_CTBE`` in place."""
    hidden = cells_CTBH.shape[-1]
    forget, candidate, output = gates_CTBG.split(hidden, dim=-1)
    before = torch.zeros_like(cells_CTBH)
    before[:, 1:] = cells_CTBH[:, :-1]
    slope_cell = output * (1 - tanh_CTBH * tanh_CTBH)
    slope_output = tanh_CTBH * output * (1 - output)
    slope_forget = (before - candidate) * forget * (1 - forget)
    slope_candidate = (1 - forget) * (1 - candidate * candidate)
    d_gates_CTBG = torch.empty_like(gates_CTBG)
    d_cell = torch.zeros_like(cells_CTBH[:, 0])
    for time in reversed(range(cells_CTBH.shape[1])):
        d_now = d_gates_CTBG[:, time]
        d_mixed = torch.bmm(d_outs_CTBE[:, time], projection_CHE.mT)
        d_cell.addcmul_(d_mixed, slope_cell[:, time])
        torch.mul(d_cell, slope_forget[:, time], out=d_now[..., :hidden])
        torch.mul(d_cell, slope_candidate[:, time], out=d_now[..., hidden : 2 * hidden])
        torch.mul(d_mixed, slope_output[:, time], out=d_now[..., 2 * hidden :])
        d_cell.mul_(forget[:, time])
        if time:
            d_outs_CTBE[:, time - 1].baddbmm_(d_now, recurrent_CEG.mT)
    return d_gates_CTBG
