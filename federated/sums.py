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

from federated import fused
from federated.batched import train_chunk
from federated.batched_weights import Weights, pack, unpack
from federated.clipping import FIXED_POINT, Clip, shrink_layers
from federated.config import LocalTrainingConfig
from federated.products import products
from federated.rows import DeviceRows
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
        stacked: bool | None = None,
    ) -> None:
        """One chunk of devices as ``train_chunk`` returns it; changes ``updates`` if clipped by layer.

        Guarantee: a device adds a vector of joint L2 norm at most 1 clip norm: its update is scaled as
        ``grid_scale`` says and cut towards zero. One that is not finite adds nothing.

        Args:
          stacked: many devices at a time in torch, or one at a time in compiled passes (only on a CPU). None:
            what the place calls for.
        """
        if updates.bias.device.type != "cpu" if stacked is None else stacked:
            self._add_stacked(updates, ids, rows, clip)
            return
        for device, own_rows in enumerate(rows):
            parts = [part[device] for part in updates.shared()]
            own = Weights(None, *parts)
            if updates.inputs is not None:
                own = Weights(updates.inputs[device, : len(ids[device])], *parts)
            layers = unpack(own)
            norm = joint_norm(list(layers.values()))
            if clip.per_layer:
                shrink_layers(layers, clip.norm)
            scale = self._count(norm, joint_norm(list(layers.values())) if clip.per_layer else norm, own_rows, clip)
            if not scale:
                continue
            for total, part in zip(self.shared, parts, strict=True):
                _add_whole(total, part, scale)
            if self.inputs_VE is not None and own.inputs is not None:
                _add_whole_rows(self.inputs_VE, ids[device], own.inputs, scale)

    def _add_stacked(self, updates: Weights, ids: Sequence[Tensor], rows: Sequence[DeviceRows], clip: Clip) -> None:
        """``add`` with one wait for the device: nothing else is read back."""
        layers = unpack(updates)
        squares_C = torch.stack([_squares(layer) for layer in layers.values()])
        before_C = after_C = squares_C.sum(0).sqrt()
        if clip.per_layer:
            bound = clip.norm / math.sqrt(len(layers))
            for layer, square_C in zip(layers.values(), squares_C, strict=True):
                factor_C = (bound / square_C.sqrt().clamp(min=bound)).to(layer.dtype)
                layer.mul_(factor_C.view(-1, *[1] * (layer.dim() - 1)))
            after_C = torch.stack([_squares(layer) for layer in layers.values()]).sum(0).sqrt()
        both = torch.stack([before_C, after_C]).tolist()
        scales = [self._count(before, after, own, clip) for before, after, own in zip(*both, rows, strict=True)]
        for first in range(0, len(rows), _STACK):
            span = slice(first, first + _STACK)
            scale_C = torch.tensor(scales[span], dtype=torch.float64, device=before_C.device)
            for total, part in zip(self.shared, updates.shared(), strict=True):
                # Whole numbers up to 2^44, a few at a time: their float64 sum is exact.
                total += _whole(part[span], scale_C).sum(0).long()
            if self.inputs_VE is not None and updates.inputs is not None:
                whole_CUE = _whole(updates.inputs[span], scale_C).long()
                for known, whole_UE in zip(ids[span], whole_CUE, strict=True):
                    self.inputs_VE.index_add_(0, known, whole_UE[: len(known)])

    def _count(self, before: float, norm: float, rows: DeviceRows, clip: Clip) -> float:
        """Counts one device, and returns the factor that puts its update on the grid.

        Args:
          before, norm: of the update, as trained and as it is now.
        """
        if clip.below is not None:
            # A norm that is not finite is not below anything.
            self.counts[0] += 1 if before <= clip.below else -1
        weight = clip.weight(int(np.sum((rows.targets_RT != PAD) & (rows.targets_RT != EOS))))
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


def joint_norm(parts: Sequence[Tensor]) -> float:
    """L2 norm of all tensors on the CPU together, summed in float64; may be infinite or NaN."""
    squares = sum(float(fused.sum_of_squares(part.reshape(-1).numpy())) for part in parts)
    return math.sqrt(squares) if squares >= 0 else math.nan


def _add_whole(total: Tensor, part: Tensor, scale: float) -> None:
    fused.add_whole(total.view(-1).numpy(), part.reshape(-1).numpy(), scale)


def _add_whole_rows(total_VE: Tensor, ids_U: Tensor, part_UE: Tensor, scale: float) -> None:
    fused.add_whole_rows(total_VE.numpy(), ids_U.numpy(), part_UE.numpy(), scale)


def _squares(layer: Tensor) -> Tensor:
    """Sum of squares of each device, float64."""
    flat_CP = layer.flatten(1)
    parts = [flat_CP[first : first + _STACK].double().square().sum(1) for first in range(0, len(flat_CP), _STACK)]
    return torch.cat(parts)


def _whole(part: Tensor, scale_C: Tensor) -> Tensor:
    """Float64 that holds whole numbers; exact zeros where the scale is 0, whatever was there."""
    scaled = part.double().mul_(scale_C.view(-1, *[1] * (part.dim() - 1))).trunc_()
    return scaled.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
