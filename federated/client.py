"""What the devices of one round send: each its clipped update, added up as integers.

Shape legend: C devices of a chunk, P parameters (in the order of ``model.parameters()``).
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from federated.config.mechanism import LocalTrainingConfig
from federated.local_training.clipping import FIXED_POINT, Clip, clip_to_grid, norm_of, shrink_layers
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import chunked_sum, most_steps_first
from federated.runtime_config import Precision
from pretrain.model import KeyboardLM, next_word_loss, parameter_count
from pretrain.vocabulary import EOS, PAD


@dataclass(frozen=True)
class Aggregate:
    """What a round's devices add up to, before noise. Private.

    Attributes:
      sum_P: int64 ``[P]``, weighted clipped updates in units of ``clip.norm / 2^44``.
      below: sum over the devices of 1/2 if the update's norm is at most ``clip.below``, else -1/2.
      weight: sum of the devices' weights.
    """

    sum_P: Tensor
    below: float
    weight: float


def aggregate(
    model: KeyboardLM,
    devices: Sequence[DeviceRows],
    local: LocalTrainingConfig,
    clip: Clip,
    chunk_devices: int,
    threads: int = 1,
    kernel: Literal["batched", "reference"] = "batched",
    precision: Precision = "float32",
) -> Aggregate:
    """Sum over the devices of their clipped updates.

    Each device starts from the model's weights and runs ``local.epochs`` epochs of plain SGD over its
    rows (mean loss over the targets of each batch). Its update is the change of all weights together.

    Guarantee: exchanging one device's text for none changes ``sum_P`` by a vector of L2 norm at
    most ``clip.norm``: the update is clipped over all parameters jointly, and truncated (towards zero)
    to the grid. It changes ``below`` by at most 1 and, taken as "no device at all", by 1/2.
    A device without rows, or whose update is not finite, contributes exact zeros to the sum.
    Nothing here raises on what a device holds.

    ``batched`` and ``reference`` do the same arithmetic in another order, so low bits differ; those
    of ``batched`` may also change with ``chunk_devices``, the BLAS and torch's own threads (see
    ``one_torch_thread``). They do not change with ``threads``: chunks are the same for any number
    of workers, and the sum over them is in int64, exact in any order.

    Args:
      chunk_devices: devices trained side by side in one batch of products.
      threads: chunks at work at the same time.
      precision: of the factors of ``batched``'s products; weights and updates are the model's type always.
    """
    ordered = most_steps_first(devices, local)
    # A device without rows has an update of norm 0, which is below any threshold.
    below = 0.5 * (len(devices) - len(ordered))
    if kernel == "batched":
        summed = chunked_sum(model, ordered, local, clip, chunk_devices, threads, precision=precision)
        return Aggregate(summed.flat(model), below + summed.below, summed.weight)
    total_P = torch.zeros(parameter_count(model), dtype=torch.int64)
    weight = 0.0
    for rows in ordered:
        bit, share, (part_P,) = _contribution(_reference_update(model, rows, local), rows, clip)
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
    kernel: Literal["batched", "reference"] = "batched",
) -> Tensor:
    """``aggregate`` with flat clipping and equal weights: its sum alone."""
    return aggregate(model, devices, local, Clip(clip_norm), chunk_devices, threads, kernel).sum_P


def clipped_updates(
    model: KeyboardLM,
    devices: Sequence[DeviceRows],
    local: LocalTrainingConfig,
    clip: Clip,
    precision: Precision = "float32",
) -> Iterator[np.ndarray]:
    """Each device's own clipped update in turn, float64 ``[P]`` in clip norms: what secure aggregation encodes.

    A device without rows yields zeros, as it takes part all the same.
    """
    size = parameter_count(model)
    ordered = most_steps_first(devices, local)
    yield from (np.zeros(size) for _ in range(len(devices) - len(ordered)))
    for rows in ordered:
        summed = chunked_sum(model, [rows], local, clip, 1, precision=precision)
        yield summed.flat(model).numpy() / FIXED_POINT


def single_batch(rows: DeviceRows, batch_sentences: int, offset: float) -> DeviceRows:
    """The rows of FedSGD's one step: a batch from ``offset`` of the way through the device's rows."""
    order_R = np.roll(np.arange(len(rows.targets_RT)), -int(offset * len(rows.targets_RT)))[:batch_sentences]
    return DeviceRows(rows.inputs_RT[order_R], rows.targets_RT[order_R])


def _contribution(update: Mapping[str, Tensor], rows: DeviceRows, clip: Clip) -> tuple[float, float, list[Tensor]]:
    """One device's bit, weight and clipped update."""
    parts, bit = list(update.values()), 0.0
    if clip.below is not None:
        # A norm that is not finite is not below anything, and its device contributes nothing.
        bit = 0.5 if norm_of(parts) <= clip.below else -0.5
    if clip.per_layer:
        shrink_layers(update, clip.norm)
    weight = clip.weight(int(np.sum((rows.targets_RT != PAD) & (rows.targets_RT != EOS))))
    return bit, weight, clip_to_grid([torch.cat([part.flatten() for part in parts])], clip.norm, weight)


def _reference_update(model: KeyboardLM, rows: DeviceRows, local: LocalTrainingConfig) -> dict[str, Tensor]:
    """Plain autograd and ``torch.optim.SGD`` on a copy of the model: what ``batched`` is tested against."""
    own = copy.deepcopy(model)
    place = own.embedding.device
    optimiser = torch.optim.SGD(own.parameters(), lr=local.learning_rate)
    for step in range(rows.steps(local.batch_sentences, local.epochs)):
        batch = rows.batch(step, local.batch_sentences)
        logits_BTV, _ = own(torch.from_numpy(rows.inputs_RT[batch]).to(place))
        optimiser.zero_grad()
        next_word_loss(logits_BTV, torch.from_numpy(rows.targets_RT[batch]).long().to(place)).backward()
        optimiser.step()
    with torch.no_grad():
        return {name: after - model.get_parameter(name) for name, after in own.named_parameters()}
