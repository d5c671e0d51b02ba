"""What devices add up to, as integers.

Shape legend: U distinct words of a device, E embedding, V vocabulary, P parameters.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from federated.config.mechanism import LocalTrainingConfig
from federated.local_training.clipping import FIXED_POINT, Clip
from federated.local_training.kernel import compiled as fused
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.kernel.precision import products
from federated.local_training.kernel.weights import Weights, pack, unpack
from federated.local_training.rows import DeviceRows
from federated.runtime_config import Precision
from pretrain.model import KeyboardLM
from pretrain.vocabulary import EOS, PAD

# Sums of weights are whole numbers too, in these units.
_WEIGHT_UNIT = 2**30

# Devices whose updates are turned to integers at once, where that is done in torch: each is a float64 copy.
_STACK = 16

# Strictly inside the ball: rounding must not lift a norm above the clip norm.
_SAFETY = 1.0 - 2.0**-20


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
        """Sum of the bits."""
        return float(self.counts[0]) / 2

    @property
    def weight(self) -> float:
        """Sum of the weights, at least."""
        return float(self.counts[1]) / _WEIGHT_UNIT

    @staticmethod
    def zeros(start: Weights) -> "Sums":
        """Of nobody."""
        shared = tuple(torch.zeros_like(part, dtype=torch.int64) for part in start.shared())
        inputs_VE = None if start.inputs is None else torch.zeros_like(start.inputs, dtype=torch.int64)
        return Sums(inputs_VE, shared, np.zeros(2, dtype=np.int64))

    def add(
        self,
        updates: Weights,
        ids: Sequence[Tensor],
        rows: Sequence[DeviceRows],
        clip: Clip,
        *,
        fuse: bool | None = None,
    ) -> None:
        """One chunk of devices as ``train_chunk`` returns it; changes ``updates`` if clipped by layer.

        Guarantee: a device adds a vector of joint L2 norm at most 1 clip norm: its update is scaled as
        ``grid_scale`` says and cut towards zero. One that is not finite adds nothing.

        Args:
          fuse: compiled passes (only on a CPU), or torch's own. None: what the place calls for.
        """
        fuse = updates.bias.device.type == "cpu" if fuse is None else fuse
        norms_C = before_C = joint_norms(updates, fuse=fuse)
        if clip.per_layer:
            _shrink_layers(updates, clip.norm)
            norms_C = joint_norms(updates, fuse=fuse)
        scale_C = np.array([self._count(*own, clip) for own in zip(before_C, norms_C, rows, strict=True)])
        add_whole = _add_compiled if fuse else _add_stacked
        for total, part in zip(self.shared, updates.shared(), strict=True):
            add_whole(total, part, scale_C)
        if self.inputs_VE is not None and updates.inputs is not None:
            add_rows = _add_rows_compiled if fuse else _add_rows_stacked
            add_rows(self.inputs_VE, ids, updates.inputs, scale_C)

    def _count(self, before: float, norm: float, rows: DeviceRows, clip: Clip) -> float:
        """Counts one device, and returns the factor that puts its update on the grid.

        Args:
          before, norm: of the update, as trained and as it is now.
        """
        if clip.below is not None:
            # A norm that is not finite is not below anything.
            self.counts[0] += 1 if before <= clip.below else -1
        words = 0 if clip.weight_words is None else np.sum((rows.targets_RT != PAD) & (rows.targets_RT != EOS))
        weight = clip.weight(int(words))
        self.counts[1] += math.ceil(weight * _WEIGHT_UNIT)
        return grid_scale(norm, clip.norm, weight)

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
    precision: Precision = "float32",
) -> Sums:
    """Train devices in chunks and add them up.

    Chunks are the same for any ``threads`` and ``parts``, and the sum is one of integers: so are its bits.

    Args:
      ordered: by ``most_steps_first``.
      part, parts: of all chunks take every ``parts``-th, from number ``part``; the sum of all parts is the whole.
      threads: chunks at work at the same time.
      precision: of the factors of matrix products.
    """
    chunks = [ordered[first : first + chunk_devices] for first in range(0, len(ordered), chunk_devices)]
    # Any thread takes the next chunk; a list's iterator may be shared.
    waiting = iter(chunks[part::parts])
    start = pack(model)

    def one_thread(_number: int) -> Sums:
        own = Sums.zeros(start)
        for rows in waiting:
            own.add(*train_chunk(start, rows, local, precision=precision, width=chunk_devices), rows, clip)
        return own

    with products(precision):
        if threads == 1:
            # The caller's own thread keeps its workspace, and a GPU's recorded steps, for the next round.
            return one_thread(0)
        initial = {"initializer": torch.set_num_threads, "initargs": (torch.get_num_threads(),)}
        with ThreadPoolExecutor(threads, **initial) as pool:
            total, *others = pool.map(one_thread, range(threads))
    for other in others:
        total.merge(other)
    return total


def grid_scale(norm: float, clip_norm: float, weight: float = 1.0) -> float:
    """What an update of this joint L2 norm is multiplied by, before it is cut towards zero to integers.

    ``w * min(1, C (1 - 2^-20) / norm) * 2^44 / C``; 0 if the norm is not finite.

    Guarantee: the integers, times ``C / 2^44``, have joint L2 norm at most C.

    Args:
      weight: in [0, 1], applied after clipping.
    """
    if not math.isfinite(norm):
        return 0.0
    factor = min(1.0, clip_norm * _SAFETY / norm) if norm else 1.0
    return factor * weight * (FIXED_POINT / clip_norm)


def joint_norms(updates: Weights, *, fuse: bool) -> list[float]:
    """L2 norm of all tensors of each device together, summed in float64; may be infinite or NaN."""
    parts = [*updates.shared(), *([] if updates.inputs is None else [updates.inputs])]
    if fuse:
        squares_C = sum(fused.sum_of_squares(part.flatten(1).numpy()) for part in parts)
        return np.sqrt(squares_C).tolist()
    # The one time that the host waits for the device.
    return torch.stack([_squares(part.flatten(1)) for part in parts]).sum(0).sqrt().tolist()


def _squares(part_CP: Tensor) -> Tensor:
    """Sums of squares, float64 ``[C]``; few devices at a time, as each is a float64 copy."""
    return torch.cat([own.double().square().sum(1) for own in part_CP.split(_STACK)])


def _shrink_layers(updates: Weights, clip_norm: float) -> None:
    """``clipping.shrink_layers`` for every device."""
    layers = unpack(updates)
    bound = clip_norm / math.sqrt(len(layers))
    for layer in layers.values():
        # A norm that is not finite makes the layer so, and the device drops out.
        factor_C = bound / _squares(layer.flatten(1)).sqrt().clamp(min=bound)
        layer.mul_(factor_C.to(layer.dtype).view(-1, *[1] * (layer.dim() - 1)))


def _add_compiled(total: Tensor, part: Tensor, scale_C: np.ndarray) -> None:
    fused.add_whole(total.view(-1).numpy(), part.flatten(1).numpy(), scale_C)


def _add_rows_compiled(total_VE: Tensor, ids: Sequence[Tensor], part_CUE: Tensor, scale_C: np.ndarray) -> None:
    total, parts = total_VE.numpy(), part_CUE.numpy()
    for known, part_UE, scale in zip(ids, parts, scale_C.tolist(), strict=True):
        if scale:
            fused.add_whole_rows(total, known.numpy(), part_UE, scale)


def _add_stacked(total: Tensor, part: Tensor, scale_C: np.ndarray) -> None:
    for first in range(0, len(part), _STACK):
        # Whole numbers up to 2^44, a few at a time: their float64 sum is exact.
        total += _whole(part[first : first + _STACK], scale_C[first : first + _STACK]).sum(0).long()


def _add_rows_stacked(total_VE: Tensor, ids: Sequence[Tensor], part_CUE: Tensor, scale_C: np.ndarray) -> None:
    for first in range(0, len(part_CUE), _STACK):
        span = slice(first, first + _STACK)
        whole_CUE = _whole(part_CUE[span], scale_C[span]).long()
        for known, whole_UE in zip(ids[span], whole_CUE, strict=True):
            total_VE.index_add_(0, known, whole_UE[: len(known)])


def _whole(part: Tensor, scale_C: np.ndarray) -> Tensor:
    """Float64 that holds whole numbers; exact zeros where the scale is 0, whatever was there."""
    scale = torch.from_numpy(scale_C).to(part.device).view(-1, *[1] * (part.dim() - 1))
    return (part.double() * scale).trunc_().nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
