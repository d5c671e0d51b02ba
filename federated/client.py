"""What the devices of one round send: each its clipped update, added up as integers.

Shape legend: C devices of a chunk, P parameters (in the order of ``model.parameters()``).
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from federated import batched
from federated.clipping import FIXED_POINT, Clip, clip_to_grid, norm_of, shrink_layers
from federated.config import LocalTrainingConfig
from federated.rows import DeviceRows
from pretrain.model import KeyboardLM, next_word_loss
from pretrain.vocabulary import EOS, PAD

# Whole numbers up to 2^44 add up exactly in a float64 for this many devices.
_MOST_IN_A_CHUNK = 256


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
    """
    total_P = torch.zeros(sum(parameter.numel() for parameter in model.parameters()), dtype=torch.int64)
    # A device without rows has an update of norm 0, which is below any threshold.
    below = 0.5 * sum(1 for rows in devices if not len(rows.targets_RT))
    weight = 0.0
    for chunk in _chunks(model, devices, local, clip, chunk_devices, threads, kernel):
        total_P += chunk.sum_P
        below += chunk.below
        weight += chunk.weight
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
    model: KeyboardLM, devices: Sequence[DeviceRows], local: LocalTrainingConfig, clip: Clip
) -> Iterator[np.ndarray]:
    """Each device's own clipped update in turn, float64 ``[P]`` in clip norms: what secure aggregation encodes.

    A device without rows yields zeros, as it takes part all the same.
    """
    size = sum(parameter.numel() for parameter in model.parameters())
    yield from (np.zeros(size) for rows in devices if not len(rows.targets_RT))
    for alone in _chunks(model, devices, local, clip, 1, 1, "batched"):
        yield alone.sum_P.numpy() / FIXED_POINT


def single_batch(rows: DeviceRows, batch_sentences: int, offset: float) -> DeviceRows:
    """The rows of FedSGD's one step: a batch from ``offset`` of the way through the device's rows."""
    order_R = np.roll(np.arange(len(rows.targets_RT)), -int(offset * len(rows.targets_RT)))[:batch_sentences]
    return DeviceRows(rows.inputs_RT[order_R], rows.targets_RT[order_R])


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Each product on one thread, put back afterwards.

    The products here are too small to split (two threads on a busy machine ran eight times slower),
    and how they are split changes low bits.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _chunks(
    model: KeyboardLM,
    devices: Sequence[DeviceRows],
    local: LocalTrainingConfig,
    clip: Clip,
    chunk_devices: int,
    threads: int,
    kernel: str,
) -> Iterator[Aggregate]:
    """Sums of chunks of devices, most steps first."""
    ordered = sorted(
        (rows for rows in devices if len(rows.targets_RT)),
        key=lambda rows: (rows.steps(local.batch_sentences, local.epochs), rows.targets_RT.astype(bool).sum()),
        reverse=True,
    )
    if kernel == "reference":
        names = [name for name, _ in model.named_parameters()]
        for rows in ordered:
            update = dict(zip(names, _reference_update(model, rows, local), strict=True))
            below, weight, parts = _contribution(update, list(update.values()), rows, clip)
            yield Aggregate(torch.cat([part.flatten() for part in parts]).long().cpu(), below, weight)
        return
    start = batched.pack(model)
    size = min(chunk_devices, _MOST_IN_A_CHUNK)

    def one_chunk(first: int) -> Aggregate:
        rows = ordered[first : first + size]
        return _chunk_sum(model, *batched.train_chunk(start, rows, local), rows, clip)

    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)) as pool:
        yield from pool.map(one_chunk, range(0, len(ordered), size))


def _chunk_sum(
    model: KeyboardLM, updates: batched.Weights, ids: list[Tensor], rows: Sequence[DeviceRows], clip: Clip
) -> Aggregate:
    sums = [torch.zeros_like(part[0], dtype=torch.float64) for part in updates.shared()]
    inputs_VE = None if model.tied else torch.zeros_like(model.embedding, dtype=torch.float64, requires_grad=False)
    below = weight = 0.0
    for device, own_rows in enumerate(rows):
        parts = [part[device] for part in updates.shared()]
        own = batched.Weights(None, *parts)
        if inputs_VE is not None and updates.inputs is not None:
            own = batched.Weights(updates.inputs[device, : len(ids[device])], *parts)
            parts.append(own.inputs)
        bit, share, clipped = _contribution(batched.unpack(own), parts, own_rows, clip)
        below, weight = below + bit, weight + share
        for total, part in zip(sums, clipped, strict=False):
            total += part
        if inputs_VE is not None:
            inputs_VE.index_add_(0, ids[device], clipped[-1])
    named = batched.unpack(batched.Weights(inputs_VE, *sums))
    flat_P = torch.cat([named[name].flatten() for name, _ in model.named_parameters()])
    return Aggregate(flat_P.long().cpu(), below, weight)


def _contribution(
    layers: Mapping[str, Tensor], parts: Sequence[Tensor], rows: DeviceRows, clip: Clip
) -> tuple[float, float, list[Tensor]]:
    """One device's bit, weight and clipped update; ``layers`` are the model's parameters as views of ``parts``."""
    bit = 0.0
    if clip.below is not None:
        # A norm that is not finite is not below anything, and its device contributes nothing.
        bit = 0.5 if norm_of(parts) <= clip.below else -0.5
    if clip.per_layer:
        shrink_layers(layers, clip.norm)
    weight = clip.weight(int(np.sum((rows.targets_RT != PAD) & (rows.targets_RT != EOS))))
    return bit, weight, clip_to_grid(parts, clip.norm, weight)


def _reference_update(model: KeyboardLM, rows: DeviceRows, local: LocalTrainingConfig) -> list[Tensor]:
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
        return [after - before for after, before in zip(own.parameters(), model.parameters(), strict=True)]
