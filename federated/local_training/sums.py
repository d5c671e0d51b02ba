"""Train devices in chunks, clip their updates, and add them up as integers.

Shape legend: C devices of a chunk, U distinct words of a device, E embedding, V vocabulary, P parameters.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from federated.config.training import LocalTrainingConfig
from federated.local_training.clipping import Clip, grid_scale
from federated.local_training.kernel import compiled
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.kernel.weights import Weights, pack, unpack
from federated.local_training.rows import DeviceRows
from federated.noise import FIXED_POINT
from pretrain.model import KeyboardLM, parameter_count

# Sums of weights are whole numbers too, in these units.
_WEIGHT_UNIT = 2**30

# Devices whose updates are turned to integers at once, where that is done in torch: each is a float64 copy.
_STACK = 16


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


@dataclass(frozen=True)
class Sums:
    """A running sum, changed in place; integers, so that the order of adding changes nothing. Private.

    Attributes:
      inputs_VE: int64 in units of ``clip.norm / 2^44``; None if tied.
      shared: the other tensors in the order of ``Weights.shared``.
      counts: int64: twice the sum of the bits (1/2 for an update of norm ``clip.below`` at most, else
        -1/2), and the devices' weights in units of 2^-30, each rounded up.
    """

    inputs_VE: Tensor | None
    shared: tuple[Tensor, ...]
    counts: np.ndarray

    @property
    def below(self) -> float:
        """Half of how many more updates lay below ``clip.below`` than above it."""
        return float(self.counts[0]) / 2

    @property
    def weight(self) -> float:
        """Sum of the devices' weights, each rounded up to a multiple of 2^-30."""
        return float(self.counts[1]) / _WEIGHT_UNIT

    @staticmethod
    def zeros(start: Weights) -> "Sums":
        """An empty sum."""
        shared = tuple(torch.zeros_like(part, dtype=torch.int64) for part in start.shared())
        inputs_VE = None if start.inputs is None else torch.zeros_like(start.inputs, dtype=torch.int64)
        return Sums(inputs_VE, shared, np.zeros(2, dtype=np.int64))

    def add(
        self,
        updates: Weights,
        ids: Sequence[Tensor],
        weights: Sequence[float],
        clip: Clip,
        *,
        fuse: bool | None = None,
    ) -> None:
        """Clip the updates of one chunk of devices and add them; changes ``updates`` if clipped by layer.

        Guarantee: exchanging one device for none changes the sum by a vector of joint L2 norm at most ``clip.norm``,
        whatever the device holds: its update is scaled as ``grid_scale`` says, by the norm of all parameters
        together, and cut towards zero. One that is not finite adds exact zeros, and nothing raises. Twice the sum
        of the bits changes by at most 2 and, taken as "no device at all", by 1. This is the one place where
        anything is clipped: devices of a round in the open, each device's own update under secure aggregation, and
        the audit's direction canaries.

        Args:
          updates, ids: as ``train_chunk`` returns them.
          weights: of each device, in [0, 1].
          fuse: compiled passes (only on a CPU), or torch's own. None: what the place calls for.
        """
        fuse = updates.bias.device.type == "cpu" if fuse is None else fuse
        norms_C = joint_norms(updates, fuse=fuse)
        if clip.below is not None:
            # A norm that is not finite is not below anything.
            self.counts[0] += sum(1 if norm <= clip.below else -1 for norm in norms_C)
        self.counts[1] += sum(math.ceil(weight * _WEIGHT_UNIT) for weight in weights)
        if clip.per_layer:
            shrink_layers(updates, clip.norm)
            norms_C = joint_norms(updates, fuse=fuse)
        scale_C = np.array([grid_scale(norm, clip.norm, weight) for norm, weight in zip(norms_C, weights, strict=True)])
        add_whole = _add_compiled if fuse else _add_stacked
        for total, part in zip(self.shared, updates.shared(), strict=True):
            add_whole(total, part, scale_C)
        if self.inputs_VE is not None and updates.inputs is not None:
            add_rows = _add_rows_compiled if fuse else _add_rows_stacked
            add_rows(self.inputs_VE, ids, updates.inputs, scale_C)

    def merge(self, other: "Sums") -> None:
        """Add another running sum."""
        for total, part in zip(self.shared, other.shared, strict=True):
            total.add_(part)
        if self.inputs_VE is not None and other.inputs_VE is not None:
            self.inputs_VE.add_(other.inputs_VE)
        np.add(self.counts, other.counts, out=self.counts)

    def flat(self, model: KeyboardLM) -> Tensor:
        """int64 ``[P]`` on the CPU, in the order of ``model.parameters()``."""
        named = unpack(Weights(self.inputs_VE, *self.shared))
        return torch.cat([named[name].flatten() for name, _ in model.named_parameters()]).cpu()


def most_steps_first(devices: Sequence[DeviceRows], local: LocalTrainingConfig) -> list[DeviceRows]:
    """Devices that have rows, in the order in which they are cut into chunks."""
    return sorted(
        (rows for rows in devices if len(rows.targets_RT)),
        key=lambda rows: (rows.steps(local.batch_sentences, local.epochs), rows.targets_RT.astype(bool).sum()),
        reverse=True,
    )


def chunked_sum(
    model: KeyboardLM,
    ordered: Sequence[DeviceRows],
    local: LocalTrainingConfig,
    clip: Clip,
    chunk_devices: int,
    threads: int = 1,
    part: int = 0,
    parts: int = 1,
) -> Sums:
    """Train devices in chunks and add up their clipped updates.

    Each device starts from the model's weights and runs ``local.epochs`` epochs of plain SGD over its rows (mean loss
    over the targets of each batch). Its update is the change of all weights together; ``Sums.add`` clips it.
    Low bits may change with ``chunk_devices``, the BLAS and torch's own threads (see ``one_torch_thread``). They do not
    change with ``threads`` and ``parts``: chunks are the same, and their sum is one of integers.

    Args:
      ordered: by ``most_steps_first``.
      part, parts: of all chunks take every ``parts``-th, from number ``part``; the sum of all parts is the whole.
      threads: chunks at work at the same time.
    """
    chunks = [ordered[first : first + chunk_devices] for first in range(0, len(ordered), chunk_devices)]
    # Any thread takes the next chunk; a list's iterator may be shared.
    waiting = iter(chunks[part::parts])
    start = pack(model)

    def one_thread(_number: int) -> Sums:
        total = Sums.zeros(start)
        for rows in waiting:
            updates, ids = train_chunk(start, rows, local, width=chunk_devices)
            total.add(updates, ids, [clip.weight(device) for device in rows], clip)
        return total

    with _products_in_float32():
        if threads == 1:
            # The caller's own thread keeps its workspace, and a GPU's recorded steps, for the next round.
            return one_thread(0)
        alike = torch.get_num_threads()
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(alike,)) as pool:
            total, *others = pool.map(one_thread, range(threads))
    for other in others:
        total.merge(other)
    return total


@contextmanager
def _products_in_float32() -> Iterator[None]:
    """Matrix products of a GPU in float32 itself, not in TF32; put back afterwards.

    The setting is one of the whole process, and may have been changed by anybody before.
    """
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = "ieee"
    try:
        assert settings.fp32_precision == "ieee", settings.fp32_precision
        yield
    finally:
        settings.fp32_precision = before


def clipped_updates(
    model: KeyboardLM, devices: Sequence[DeviceRows], local: LocalTrainingConfig, clip: Clip
) -> Iterator[np.ndarray]:
    """Each device's clipped update in turn, float64 ``[P]`` in clip norms: what secure aggregation encodes.

    A device without rows yields zeros, as it takes part all the same.
    """
    size = parameter_count(model)
    ordered = most_steps_first(devices, local)
    yield from (np.zeros(size) for _ in range(len(devices) - len(ordered)))
    for rows in ordered:
        yield chunked_sum(model, [rows], local, clip, 1).flat(model).numpy() / FIXED_POINT


def joint_norms(updates: Weights, *, fuse: bool) -> list[float]:
    """L2 norm of all tensors of each device together, summed in float64; may be infinite or NaN."""
    parts = [*updates.shared(), *([] if updates.inputs is None else [updates.inputs])]
    if fuse:
        squares_C = sum(compiled.sum_of_squares(part.flatten(1).numpy()) for part in parts)
        return np.sqrt(squares_C).tolist()
    # The one time that the host waits for the device.
    return torch.stack([_squares(part.flatten(1)) for part in parts]).sum(0).sqrt().tolist()


def _squares(part_CP: Tensor) -> Tensor:
    """Sums of squares, float64 ``[C]``; few devices at a time, as each is a float64 copy."""
    return torch.cat([few_CP.double().square().sum(1) for few_CP in part_CP.split(_STACK)])


def shrink_layers(updates: Weights, clip_norm: float) -> None:
    """Scale each layer of every device, in place, to norm ``clip_norm / sqrt(layers)`` at most.

    Rounding may leave a layer a hair above; the guarantee rests on ``grid_scale``, which follows.
    """
    layers = unpack(updates)
    bound = clip_norm / math.sqrt(len(layers))
    for layer in layers.values():
        # A norm that is not finite makes the layer so, and the device drops out.
        factor_C = bound / _squares(layer.flatten(1)).sqrt().clamp(min=bound)
        layer.mul_(factor_C.to(layer.dtype).view(-1, *[1] * (layer.dim() - 1)))


def _add_compiled(total: Tensor, part: Tensor, scale_C: np.ndarray) -> None:
    compiled.add_whole(total.view(-1).numpy(), part.flatten(1).numpy(), scale_C)


def _add_rows_compiled(total_VE: Tensor, ids: Sequence[Tensor], part_CUE: Tensor, scale_C: np.ndarray) -> None:
    total, parts = total_VE.numpy(), part_CUE.numpy()
    for words_U, part_UE, scale in zip(ids, parts, scale_C.tolist(), strict=True):
        if scale:
            compiled.add_whole_rows(total, words_U.numpy(), part_UE, scale)


def _add_stacked(total: Tensor, part: Tensor, scale_C: np.ndarray) -> None:
    for first in range(0, len(part), _STACK):
        # Whole numbers up to 2^44, a few at a time: their float64 sum is exact.
        total += _whole(part[first : first + _STACK], scale_C[first : first + _STACK]).sum(0).long()


def _add_rows_stacked(total_VE: Tensor, ids: Sequence[Tensor], part_CUE: Tensor, scale_C: np.ndarray) -> None:
    for first in range(0, len(part_CUE), _STACK):
        span = slice(first, first + _STACK)
        whole_CUE = _whole(part_CUE[span], scale_C[span]).long()
        for words_U, whole_UE in zip(ids[span], whole_CUE, strict=True):
            total_VE.index_add_(0, words_U, whole_UE[: len(words_U)])


def _whole(part: Tensor, scale_C: np.ndarray) -> Tensor:
    """Float64 that holds whole numbers; exact zeros where the scale is 0, whatever was there."""
    scale = torch.from_numpy(scale_C).to(part.device).view(-1, *[1] * (part.dim() - 1))
    return (part.double() * scale).trunc_().nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
