"""Train devices in chunks, clip their updates, and add them up as integers.

Shape legend: C devices of a chunk, U distinct words of a device, E embedding, V vocabulary, P parameters.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import numba
import numpy as np
import torch
from torch import Tensor

from federated.config.training import LocalTrainingConfig
from federated.local_training.clipping import Clip, grid_scale
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.rows import DeviceRows, rows_digest
from federated.local_training.whole_numbers import STACK, add_compiled, add_rows_compiled, add_rows_stacked, add_stacked
from pretrain.cells.functions import ANY_ORDER
from pretrain.kernel.weights import Weights, pack, pack_flat, unpack
from pretrain.model.keyboard_lm import KeyboardLM, parameter_count
from pretrain.randomness.noise import FIXED_POINT

# Units of the sums of weights, which are whole numbers too.
_WEIGHT_UNIT = 2**30

# An update longer than this many clip norms was not clipped; the margin covers rounding of its sum of squares.
_LONGEST = 1.0 + 1e-9
# Indices in ``Sums.counts``.
_BELOW, _WEIGHT, _UPDATES, _LONGER, _ADDED, _ROWS = range(6)


@dataclass(frozen=True)
class Tally:
    """Counts of the updates of a round, made when they are added. Private.

    Attributes:
      updates: number of updates.
      longer: updates longer than one clip norm, by their own whole numbers.
      added: sum of all whole numbers, modulo 2^64.
      rows: digest of the rows trained on (``rows.rows_digest``).
    """

    updates: int = 0
    longer: int = 0
    added: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Aggregate:
    """Sum of a round's devices, before noise. Private.

    Attributes:
      sum_P: int64 ``[P]``, weighted clipped updates in units of ``clip.norm / 2^44``.
      below: sum over the devices that contribute of 1/2 if the update's norm is at most ``clip.below``, else -1/2.
      weight: sum of the weights of the devices that contribute.
      tally: of the devices.
      planted_P: the same sum of the audit's updates, which the other fields exclude; None if there are none.
      exact: True if ``sum_P`` is the added sum, to the last bit; False if secure aggregation decoded it.
    """

    sum_P: Tensor
    below: float
    weight: float
    tally: Tally = field(default_factory=Tally)
    planted_P: Tensor | None = None
    exact: bool = True


@dataclass(frozen=True)
class CanaryUpdates:
    """Updates of an audit's canaries, which take the same path as devices' updates, side by side with them.

    Attributes:
      numbers: indices of the canaries that send an update.
      update: float32 ``[P]`` of an index; computed when needed, as each has the size of the model.
    """

    numbers: Sequence[int]
    update: Callable[[int], np.ndarray]


@dataclass(frozen=True)
class Sums:
    """A running sum, changed in place; integers, so that the order of adding changes nothing. Private.

    Attributes:
      inputs_VE: int64 in units of ``clip.norm / 2^44``; None if tied.
      shared: the other tensors in the order of ``Weights.shared``.
      counts: int64: twice the sum of the bits (1/2 for an update of norm ``clip.below`` at most, else
        -1/2), the weights in units of 2^-30, each rounded up, of devices that contribute, and those of a ``Tally``.
      planted: separate sum of the canaries; None if there are none.
    """

    inputs_VE: Tensor | None
    shared: tuple[Tensor, ...]
    counts: np.ndarray
    planted: "Sums | None" = None

    @property
    def below(self) -> float:
        """Half of the difference between the numbers of updates below and above ``clip.below``."""
        return float(self.counts[_BELOW]) / 2

    @property
    def weight(self) -> float:
        """Sum of the devices' weights, each rounded up to a multiple of 2^-30."""
        return float(self.counts[_WEIGHT]) / _WEIGHT_UNIT

    @property
    def tally(self) -> Tally:
        """Counts of the updates added."""
        updates, longer, added, rows = (int(self.counts[place]) for place in (_UPDATES, _LONGER, _ADDED, _ROWS))
        return Tally(updates, longer, added, rows)

    @staticmethod
    def zeros(start: Weights, *, planted: bool = False) -> "Sums":
        """An empty sum; with ``planted`` another one for canaries."""
        shared = tuple(torch.zeros_like(part, dtype=torch.int64) for part in start.shared())
        inputs_VE = None if start.inputs is None else torch.zeros_like(start.inputs, dtype=torch.int64)
        return Sums(inputs_VE, shared, no_counts(), Sums.zeros(start) if planted else None)

    def add(
        self,
        updates: Weights,
        ids: Sequence[Tensor],
        weights: Sequence[float],
        clip: Clip,
        *,
        canaries: int = 0,
        fuse: bool | None = None,
    ) -> None:
        """Clip the updates of one chunk of devices and add them; changes ``updates`` if clipped by layer.

        Guarantee: leaving out one of ``updates`` changes the sum by a vector of joint L2 norm at most ``clip.norm``,
        that of the bits by 1/2 and that of the weights by 1, whatever the device holds: its update is scaled as
        ``grid_scale`` says, by the norm of all parameters together, and cut towards zero. One that is not finite adds
        exact zeros to every sum, and nothing raises. This is the one place where anything is clipped: devices in the
        open, each device's own update under secure aggregation, and the audit's direction canaries.

        Args:
          updates, ids: as ``train_chunk`` returns them.
          weights: of each device, in [0, 1].
          canaries: number of updates at the end that are added to ``planted`` instead.
          fuse: compiled passes (only on a CPU), or torch's own. None: what the place calls for.
        """
        fuse = updates.bias.device.type == "cpu" if fuse is None else fuse
        norms_C = joint_norms(updates, fuse=fuse)
        free_C = norms_C
        if clip.per_layer:
            shrink_layers(updates, clip.norm)
            norms_C = joint_norms(updates, fuse=fuse)
        scale_C = np.array([grid_scale(norm, clip.norm, weight) for norm, weight in zip(norms_C, weights, strict=True)])
        devices = len(scale_C) - canaries
        for total, span in ((self, slice(0, devices)), (self.planted, slice(devices, None))):
            if total is not None and len(scale_C[span]):
                total._put(updates, ids, scale_C, span, fuse)
                sent_C = zip(free_C[span], weights[span], scale_C[span], strict=True)
                total._count([(norm, weight) for norm, weight, scale in sent_C if scale > 0], clip)

    def _put(self, updates: Weights, ids: Sequence[Tensor], scale_C: np.ndarray, span: slice, fuse: bool) -> None:
        """Add some of a chunk's updates, and measure the length of each and their sum as added."""
        squares_C = np.zeros(len(scale_C[span]))
        add_whole = add_compiled if fuse else add_stacked
        for total, part in zip(self.shared, updates.shared(), strict=True):
            self.counts[_ADDED : _ADDED + 1] += add_whole(total, part[span], scale_C[span], squares_C)
        if self.inputs_VE is not None and updates.inputs is not None:
            add_rows = add_rows_compiled if fuse else add_rows_stacked
            added_1 = add_rows(self.inputs_VE, ids[span], updates.inputs[span], scale_C[span], squares_C)
            self.counts[_ADDED : _ADDED + 1] += added_1
        self.counts[_UPDATES] += len(squares_C)
        self.counts[_LONGER] += int(np.sum(~(squares_C <= (FIXED_POINT * _LONGEST) ** 2)))

    def _count(self, sent: Sequence[tuple[float, float]], clip: Clip) -> None:
        """Add bit and weight of the devices that contribute: norm and weight of each."""
        if clip.below is not None:
            self.counts[_BELOW] += sum(1 if norm <= clip.below else -1 for norm, _ in sent)
        self.counts[_WEIGHT] += sum(math.ceil(weight * _WEIGHT_UNIT) for _, weight in sent)

    def trained(self, devices: Sequence[DeviceRows]) -> None:
        """Record the rows of the trained devices."""
        self.counts[_ROWS : _ROWS + 1] += rows_digest(devices)

    def merge(self, other: "Sums") -> None:
        """Add another running sum."""
        for total, part in zip(self.shared, other.shared, strict=True):
            total.add_(part)
        if self.inputs_VE is not None and other.inputs_VE is not None:
            self.inputs_VE.add_(other.inputs_VE)
        np.add(self.counts, other.counts, out=self.counts)
        if self.planted is not None and other.planted is not None:
            self.planted.merge(other.planted)

    def flat(self, model: KeyboardLM) -> Tensor:
        """int64 ``[P]`` on the CPU, in the order of ``model.parameters()``."""
        named = unpack(Weights(model.cell, self.inputs_VE, *self.shared))
        return torch.cat([named[name].flatten() for name, _ in model.named_parameters()]).cpu()


def no_counts() -> np.ndarray:
    """The counts of an empty sum."""
    return np.zeros(6, dtype=np.int64)


def most_steps_first(devices: Sequence[DeviceRows], local: LocalTrainingConfig) -> list[DeviceRows]:
    """Devices with rows, in the order of chunking."""
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
    planted: CanaryUpdates | None = None,
) -> Sums:
    """Train devices in chunks and add up their clipped updates.

    Each device starts from the model's weights and runs ``local.epochs`` epochs of plain SGD over its rows (mean loss
    over the targets of each batch). Its update is the change of all weights together; ``Sums.add`` clips it.

    Guarantee: with ``chunk_devices`` 1 on a CPU a device's update is a function of the model and its own rows, so
    leaving a device out changes the sum by what it added, of norm at most ``clip.norm``, and by nothing else. With
    more, a chunk's products are of the shape of its longest rows, and leaving a device out moves those after it to
    other places: the last bits of their float32 updates may change (measured: by 4e-7 of their norm at most). No
    sensitivity covers that.

    The same chunks give the same bits on processors of one kind (``low_bits``), whatever ``threads`` and ``parts``
    are, as their sum is one of integers; torch's own threads are the caller's (``one_torch_thread``).

    Args:
      ordered: by ``most_steps_first``.
      part, parts: use every ``parts``-th chunk, from index ``part``; the sum over all parts is the whole.
      threads: number of chunks in parallel.
      planted: canaries, distributed over the chunks; their sum is separate.
    """
    chunks = _chunks(ordered, planted, chunk_devices)
    # Any thread takes the next chunk; threads may share a list's iterator.
    waiting = iter(chunks[part::parts])
    start = pack(model)

    def one_thread(_number: int) -> Sums:
        total = Sums.zeros(start, planted=planted is not None)
        for rows, canaries in waiting:
            updates, ids = train_chunk(start, rows, local, width=chunk_devices)
            weights = [clip.weight(device) for device in rows] + [1.0] * len(canaries)
            if planted is not None and canaries:
                updates, ids = _beside(updates, ids, [planted.update(number) for number in canaries], model)
            total.add(updates, ids, weights, clip, canaries=len(canaries))
            total.trained(rows)
        return total

    with products_in_float32():
        if threads == 1:
            # The caller's own thread keeps its workspace, and a GPU's recorded steps, for the next round.
            return one_thread(0)
        alike = torch.get_num_threads()
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(alike,)) as pool:
            total, *others = pool.map(one_thread, range(threads))
    for other in others:
        total.merge(other)
    return total


def _chunks(
    ordered: Sequence[DeviceRows], planted: CanaryUpdates | None, chunk_devices: int
) -> list[tuple[Sequence[DeviceRows], list[int]]]:
    """Devices and canaries of each chunk; the devices' share does not depend on the canaries."""
    numbers = [] if planted is None else list(planted.numbers)
    hands = math.ceil(max(len(ordered), len(numbers)) / chunk_devices)
    return [(ordered[hand * chunk_devices : (hand + 1) * chunk_devices], numbers[hand::hands]) for hand in range(hands)]


def _beside(
    updates: Weights, ids: Sequence[Tensor], canaries: Sequence[np.ndarray], model: KeyboardLM
) -> tuple[Weights, list[Tensor]]:
    """A chunk's updates followed by those of canaries, in the same tensors."""
    place = model.embedding.device
    parts = [pack_flat(torch.from_numpy(update_P).to(place), model) for update_P in canaries]
    shared = (torch.cat(tensors) for tensors in zip(updates.shared(), *(part.shared() for part in parts), strict=True))
    if updates.inputs is None:
        return Weights(updates.cell, None, *shared), []
    # A canary's update has a row for every word.
    words = torch.arange(model.vocabulary_size, device=place)
    padding = (0, 0, 0, len(words) - updates.inputs.shape[1])
    planted = [part.inputs for part in parts if part.inputs is not None]
    inputs = torch.cat([torch.nn.functional.pad(updates.inputs, padding), *planted])
    return Weights(updates.cell, inputs, *shared), [*ids, *[words] * len(parts)]


@contextmanager
def products_in_float32() -> Iterator[None]:
    """Compute a GPU's matrix products in float32, not TF32, and restore the setting afterwards.

    The setting is global to the process, and other code may have changed it.
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
    model: KeyboardLM,
    devices: Sequence[DeviceRows],
    local: LocalTrainingConfig,
    clip: Clip,
    planted: CanaryUpdates | None = None,
    counts: np.ndarray | None = None,
) -> Iterator[tuple[np.ndarray, int]]:
    """Each device's clipped update, float64 ``[P]`` in clip norms, and twice its bit, for secure aggregation.

    A device without rows yields zeros, as it still takes part. Canaries follow the devices, and have no bit.

    Args:
      counts: incremented by the counts of the devices.
    """
    size = parameter_count(model)
    ordered = most_steps_first(devices, local)
    yield from ((np.zeros(size), 0) for _ in range(len(devices) - len(ordered)))
    for rows in ordered:
        one = chunked_sum(model, [rows], local, clip, 1)
        if counts is not None:
            counts += one.counts
        yield one.flat(model).numpy() / FIXED_POINT, int(one.counts[_BELOW])
    if planted is None:
        return
    for number in planted.numbers:
        sent = chunked_sum(model, [], local, clip, 1, planted=CanaryUpdates([number], planted.update)).planted
        assert sent is not None, number
        yield sent.flat(model).numpy() / FIXED_POINT, 0


def joint_norms(updates: Weights, *, fuse: bool) -> list[float]:
    """L2 norm of all tensors of each device together, summed in float64; may be infinite or NaN."""
    parts = [*updates.shared(), *([] if updates.inputs is None else [updates.inputs])]
    if fuse:
        squares_C = sum(_squares_compiled(part.flatten(1).numpy()) for part in parts)
        return np.sqrt(squares_C).tolist()
    # Synchronises with the GPU once per chunk, as grid scales are computed on the CPU.
    return torch.stack([_squares(part.flatten(1)) for part in parts]).sum(0).sqrt().tolist()


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=ANY_ORDER)
def _squares_compiled(part_CP: np.ndarray) -> np.ndarray:
    """Sum of squares of each device in float64."""
    total_C = np.empty(len(part_CP))
    for device in range(len(part_CP)):
        part_P = part_CP[device]
        total = 0.0
        for i in range(len(part_P)):
            total += np.float64(part_P[i]) * np.float64(part_P[i])
        total_C[device] = total
    return total_C


def _squares(part_CP: Tensor) -> Tensor:
    """Sums of squares, float64 ``[C]``; few devices at a time, as each is a float64 copy."""
    return torch.cat([few_CP.double().square().sum(1) for few_CP in part_CP.split(STACK)])


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
