"""Local SGD and the clip written down plainly, one device at a time: what the training kernel is tested against.

Shape legend: P parameters (in the order of ``model.parameters()``).
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from federated.config.training import LocalTrainingConfig
from federated.local_training.clipping import Clip
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import Aggregate, chunked_sum, most_steps_first
from pretrain.model.keyboard_lm import KeyboardLM, parameter_count
from pretrain.randomness.noise import FIXED_POINT
from pretrain.text.vocabulary import EOS, PAD, SPECIALS
from tests.helpers.text.pretrain_streams import next_word_loss

Kernel = Literal["batched", "reference"]


def shrink_layers(layers: Mapping[str, Tensor], clip_norm: float) -> None:
    """Scale each layer of one device's update, in place, to norm ``clip_norm / sqrt(layers)`` at most."""
    bound = clip_norm / math.sqrt(len(layers))
    for layer in layers.values():
        # A norm that is not finite makes the layer so, and ``clip_to_grid`` then drops the device.
        layer.mul_((bound / layer.double().norm().clamp(min=bound)).to(layer.dtype))


def norm_of(update: Sequence[Tensor]) -> float:
    """Joint L2 norm of one device's update, summed in float64."""
    return math.sqrt(sum(float(part.double().square().sum()) for part in update))


def clip_to_grid(update: Sequence[Tensor], clip_norm: float, weight: float = 1.0) -> list[Tensor]:
    """One device's whole update, clipped and on the integer grid.

    ``trunc(x * w * min(1, C (1 - 2^-20) / norm) * 2^44 / C)`` with the norm of all tensors together; all
    zeros if the norm is not finite.

    Returns:
      The parts as float64 that holds whole numbers.
    """
    flat_P = torch.cat([part.flatten() for part in update]).double()
    norm = math.sqrt(float(torch.dot(flat_P, flat_P)))
    if math.isfinite(norm):
        factor = min(1.0, clip_norm * (1.0 - 2.0**-20) / norm) if norm else 1.0
        flat_P.mul_(factor * weight * (FIXED_POINT / clip_norm)).trunc_()
    else:
        flat_P.zero_()
    sizes = [part.numel() for part in update]
    return [piece.view_as(part) for piece, part in zip(flat_P.split(sizes), update, strict=True)]


def aggregate(
    model: KeyboardLM,
    devices: Sequence[DeviceRows],
    local: LocalTrainingConfig,
    clip: Clip,
    chunk_devices: int,
    threads: int = 1,
    kernel: Kernel = "batched",
) -> Aggregate:
    """Sum over the devices of their clipped updates, by the product's kernel or by the reference.

    Both do the same arithmetic in another order, so low bits differ.
    """
    ordered = most_steps_first(devices, local)
    if kernel == "batched":
        summed = chunked_sum(model, ordered, local, clip, chunk_devices, threads)
        return Aggregate(summed.flat(model), summed.below, summed.weight)
    total_P = torch.zeros(parameter_count(model), dtype=torch.int64)
    below = weight = 0.0
    for rows in ordered:
        bit, share, part_P = _contribution(reference_update(model, rows, local), rows, clip)
        total_P += part_P.long().cpu()
        below, weight = below + bit, weight + share
    return Aggregate(total_P, below, weight)


def clipped_sum(
    model: KeyboardLM,
    devices: Sequence[DeviceRows],
    local: LocalTrainingConfig,
    clip_norm: float,
    chunk_devices: int,
    threads: int = 1,
    kernel: Kernel = "batched",
) -> Tensor:
    """The sum of ``aggregate`` with flat clipping and equal weights."""
    return aggregate(model, devices, local, Clip(clip_norm), chunk_devices, threads, kernel).sum_P


def reference_update(model: KeyboardLM, rows: DeviceRows, local: LocalTrainingConfig) -> dict[str, Tensor]:
    """Change of a copy of the model under plain autograd and plain SGD."""
    trained = copy.deepcopy(model)
    place = trained.embedding.device
    for step in range(rows.steps(local.batch_sentences, local.epochs)):
        batch = rows.batch(step, local.batch_sentences)
        logits_BTV, _ = trained(torch.from_numpy(rows.inputs_RT[batch]).to(place))
        trained.zero_grad()
        device_loss(logits_BTV, torch.from_numpy(rows.targets_RT[batch]).long().to(place), local.loss).backward()
        with torch.no_grad():
            for weight in trained.parameters():
                weight -= local.learning_rate * weight.grad
    with torch.no_grad():
        return {name: after - model.get_parameter(name) for name, after in trained.named_parameters()}


def device_loss(logits_BTV: Tensor, targets_BT: Tensor, power: float) -> Tensor:
    """Mean over words of (1 - q) (1 - r^q) / q, r the target's share of ``p^(1 / (1 - q))`` among words; q the power.

    At power 0 the mean cross entropy of all targets.
    """
    if not power:
        return next_word_loss(logits_BTV, targets_BT)
    first, word_BT = len(SPECIALS), targets_BT >= len(SPECIALS)
    sharper_BTW = torch.softmax(torch.log_softmax(logits_BTV, -1)[..., first:] / (1 - power), -1)
    share_BT = sharper_BTW.gather(-1, (targets_BT - first).clamp(min=0)[..., None])[..., 0]
    cost_BT = (1 - power) * (1 - share_BT**power) / power
    return torch.where(word_BT, cost_BT, 0).sum() / max(int(word_BT.sum()), 1)


def _contribution(update: Mapping[str, Tensor], rows: DeviceRows, clip: Clip) -> tuple[float, float, Tensor]:
    """One device's bit, weight and clipped update; all zero if the update is not finite."""
    parts, bit = list(update.values()), 0.0
    finite = math.isfinite(norm_of(parts))
    if clip.below is not None and finite:
        bit = 0.5 if norm_of(parts) <= clip.below else -0.5
    if clip.per_layer:
        shrink_layers(update, clip.norm)
    words = int(np.sum((rows.targets_RT != PAD) & (rows.targets_RT != EOS)))
    weight = 1.0 if clip.weight_words is None else min(words / clip.weight_words, 1.0)
    weight *= finite
    return bit, weight, clip_to_grid([torch.cat([part.flatten() for part in parts])], clip.norm, weight)[0]
