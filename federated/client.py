"""What the devices of one round send: each its clipped update, added up as integers.

Shape legend: C devices of a chunk, P parameters (in the order of ``model.parameters()``).
"""

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from federated import batched
from federated.clipping import clip_to_grid
from federated.config import LocalTrainingConfig
from federated.rows import DeviceRows
from pretrain.model import KeyboardLM, next_word_loss

# Whole numbers up to 2^44 add up exactly in a float64 for this many devices.
_MOST_IN_A_CHUNK = 256


def clipped_sum(
    model: KeyboardLM,
    devices: Sequence[DeviceRows],
    local: LocalTrainingConfig,
    clip_norm: float,
    chunk_devices: int,
    threads: int = 1,
    kernel: Literal["batched", "reference"] = "batched",
) -> Tensor:
    """Sum over the devices of their clipped updates. Private until noise is added.

    Each device starts from the model's weights and runs ``local.epochs`` epochs of plain SGD over its
    rows (mean loss over the targets of each batch). Its update is the change of all weights together.

    Guarantee: exchanging one device's text for none changes the result by a vector of L2 norm at
    most C: the update is clipped over all parameters jointly, and truncated (towards zero) to the grid.
    A device without rows, or whose update is not finite, contributes exact zeros.
    Nothing here raises on what a device holds.

    ``batched`` and ``reference`` do the same arithmetic in another order, so low bits differ; those
    of ``batched`` may also change with ``chunk_devices``, the BLAS and torch's own threads (see
    ``one_torch_thread``). They do not change with ``threads``: chunks are the same for any number
    of workers, and the sum over them is in int64, exact in any order.

    Args:
      chunk_devices: devices trained side by side in one batch of products.
      threads: chunks at work at the same time.

    Returns:
      int64 ``[P]`` in units of ``clip_norm / 2^44``.
    """
    ordered = sorted(
        (rows for rows in devices if len(rows.targets_RT)),
        key=lambda rows: (rows.steps(local.batch_sentences, local.epochs), rows.targets_RT.astype(bool).sum()),
        reverse=True,
    )
    total_P = torch.zeros(sum(parameter.numel() for parameter in model.parameters()), dtype=torch.int64)
    if kernel == "reference":
        for rows in ordered:
            (update_P,) = clip_to_grid([_reference_update(model, rows, local)], clip_norm)
            total_P += update_P.long().cpu()
        return total_P
    start = batched.pack(model)
    size = min(chunk_devices, _MOST_IN_A_CHUNK)

    def one_chunk(first: int) -> Tensor:
        updates, ids = batched.train_chunk(start, ordered[first : first + size], local)
        return _chunk_sum(model, updates, ids, clip_norm)

    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)) as pool:
        for chunk_P in pool.map(one_chunk, range(0, len(ordered), size)):
            total_P += chunk_P
    return total_P


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


def _chunk_sum(model: KeyboardLM, updates: batched.Weights, ids: list[Tensor], clip_norm: float) -> Tensor:
    sums = [torch.zeros_like(part[0], dtype=torch.float64) for part in updates.shared()]
    inputs_VE = None if model.tied else torch.zeros_like(model.embedding, dtype=torch.float64, requires_grad=False)
    for device in range(len(updates.gates)):
        parts = [part[device] for part in updates.shared()]
        if inputs_VE is not None and updates.inputs is not None:
            parts.append(updates.inputs[device, : len(ids[device])])
        clipped = clip_to_grid(parts, clip_norm)
        for total, part in zip(sums, clipped, strict=False):
            total += part
        if inputs_VE is not None:
            inputs_VE.index_add_(0, ids[device], clipped[-1])
    named = batched.unpack(batched.Weights(inputs_VE, *sums))
    return torch.cat([named[name].flatten() for name, _ in model.named_parameters()]).long().cpu()


def _reference_update(model: KeyboardLM, rows: DeviceRows, local: LocalTrainingConfig) -> Tensor:
    """Plain autograd and ``torch.optim.SGD`` on a copy of the model, ``[P]``: what ``batched`` is tested against."""
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
        changes = [after - before for after, before in zip(own.parameters(), model.parameters(), strict=True)]
        return torch.cat([change.flatten() for change in changes])
