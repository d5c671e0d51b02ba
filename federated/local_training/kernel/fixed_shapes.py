"""The training kernel in fixed shapes, which a GPU records once and replays.

Shape legend: C device slots, B rows of a batch, T steps of a row, N = T B positions, U rows of a
device's input table, V vocabulary, K steps of SGD.

One step of SGD consists of about two hundred small kernels, and launching each costs a GPU more than running it. A CUDA
graph launches them all at once, if memory and shapes are the same every time. So missing devices, steps, rows and words
are padded with weight zero: their gradient is exactly zero, and they change nothing. Finished devices come last in a
chunk; a step runs on the narrowest recorded prefix that holds the others.

On a CPU the same functions run without recording, which is how tests cover them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import local as local_storage

import numpy as np
import torch
from torch import Tensor

from federated.config.training import LocalTrainingConfig
from federated.local_training.kernel.layout import Steps, padded
from federated.local_training.kernel.outputs import side_by_side
from federated.local_training.rows import DeviceRows
from pretrain.cells.cell import Cell
from pretrain.kernel.step import add_gradient
from pretrain.kernel.weights import Weights
from pretrain.kernel.workspace import Space

_LEAST_ROWS = 64
_LEAST_WIDTH = 8


@dataclass(frozen=True)
class Shape:
    """Parameters of a recorded step."""

    cell: Cell
    place: torch.device
    dtype: torch.dtype
    width: int
    table: int | None
    time_steps: int
    batch_sentences: int
    learning_rate: float
    loss: float
    shared: tuple[torch.Size, ...]


@dataclass(frozen=True)
class Machine:
    """Memory of one chunk at work, and one step of SGD on it for each width.

    Attributes:
      rows_CN: by position, the row in the input tables of all devices, one after the other.
      targets_CN: vocabulary ids; 0 where the loss counts nothing.
      steps: from the widest to the narrowest.
    """

    shape: Shape
    weights: Weights
    rows_CN: Tensor
    targets_CN: Tensor
    steps: dict[int, Callable[[], None]]

    def train(self, chunk: Steps) -> None:
        """Run all steps of a chunk, from the present weights."""
        place, count = self.shape.place, chunk.tokens_KCN.shape[1]
        table = len(self.weights.outputs[0]) if self.weights.inputs is None else self.weights.inputs.shape[1]
        # Copy everything at once, so that no step waits for the host.
        rows_KCN = torch.from_numpy(chunk.tokens_KCN + np.arange(count)[:, None] * table).to(place)
        targets_KCN = torch.from_numpy(chunk.targets_KCN).to(place)
        self.targets_CN.zero_()
        for number, active in enumerate(chunk.active_K.tolist()):
            self.rows_CN[:count] = rows_KCN[number]
            self.targets_CN[:count] = targets_KCN[number]
            self.steps[narrowest(active, self.steps)]()


def fixed_shapes(
    start: Weights,
    devices: Sequence[DeviceRows],
    tokens: Sequence[np.ndarray],
    ids: Sequence[np.ndarray],
    local: LocalTrainingConfig,
    width: int,
) -> Weights:
    """Final weights of each device, in memory that the next chunk reuses.

    Args:
      tokens: each device's words as rows of its own table (of the vocabulary if tied).
      ids: vocabulary ids of those rows.
      width: number of device slots.
    """
    shape = Shape(
        cell=start.cell,
        place=start.gates.device,
        dtype=start.gates.dtype,
        width=max(width, len(devices)),
        table=None if start.inputs is None else _room_for(max(map(len, ids)), len(start.outputs)),
        time_steps=max(device.targets_RT.shape[1] for device in devices),
        batch_sentences=local.batch_sentences,
        learning_rate=local.learning_rate,
        loss=local.loss,
        shared=tuple(part.shape for part in start.shared()),
    )
    machine, count = _machine(shape), len(devices)
    weights = machine.weights
    # Empty slots too: their values must be finite.
    for every, before in zip(weights.shared(), start.shared(), strict=True):
        every.copy_(before)
    if weights.inputs is not None and start.inputs is not None:
        weights.inputs[:count] = start.inputs[padded(ids, weights.inputs.shape[1], shape.place)]
    machine.train(Steps.lay_out(devices, tokens, local, shape.time_steps))
    shared = (part[:count] for part in weights.shared())
    return Weights(start.cell, None if weights.inputs is None else weights.inputs[:count], *shared)


def widths(most: int) -> list[int]:
    """Widths of recorded steps: each about half of the previous one."""
    halves = [most]
    while halves[-1] > _LEAST_WIDTH:
        halves.append(-(-halves[-1] // 2))
    return halves


def narrowest(active: int, choices: Iterable[int]) -> int:
    """The least width that holds ``active`` devices."""
    return min(width for width in choices if width >= active)


def _room_for(words: int, vocabulary: int) -> int:
    """Rows of an input table, rounded to few different numbers, so that few steps are recorded again."""
    return min(max(_LEAST_ROWS, 1 << (words - 1).bit_length()), vocabulary)


machines = local_storage()


def _machine(shape: Shape) -> Machine:
    """This thread's machine, replaced for another shape unless only the table is smaller."""
    latest: Machine | None = getattr(machines, "latest", None)
    if latest is not None and latest.shape.table is not None and shape.table is not None:
        larger = replace(shape, table=max(shape.table, latest.shape.table))
        shape = larger if larger == latest.shape else shape
    if latest is None or latest.shape != shape:
        machines.latest = latest = None  # its memory is needed
        machines.latest = latest = _build(shape)
    return latest


def _build(shape: Shape) -> Machine:
    space = Space(shape.place, shape.dtype, fuse=False)
    shared = [space(f"weight{number}", shape.width, *size).zero_() for number, size in enumerate(shape.shared)]
    inputs = None
    if shape.table is not None:
        inputs = space("inputs", shape.width, shape.table, shape.shared[1][-1]).zero_()
    positions = shape.time_steps * shape.batch_sentences
    rows_CN = torch.zeros(shape.width, positions, dtype=torch.int64, device=shape.place)
    targets_CN = torch.zeros_like(rows_CN)
    weights, rate = Weights(shape.cell, inputs, *shared), shape.learning_rate
    recorded, steps = _recorder(shape.place), {}
    # The widest first: the others use parts of its memory.
    for width in widths(shape.width):
        train_outputs = partial(side_by_side, weights, targets_CN[:width], rate, shape.loss, space)
        sizes = [shape.batch_sentences] * shape.time_steps
        step = partial(add_gradient, weights, -rate, weights, rows_CN[:width], sizes, train_outputs, space)
        steps[width] = recorded(step)
    return Machine(shape, weights, rows_CN, targets_CN, steps)


def _recorder(place: torch.device) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Wrapper that records a step as a CUDA graph; the step itself on a CPU.

    A step runs once before the recording, on another stream as CUDA requires, so that libraries have allocated their
    own memory. All graphs share a memory pool: nothing in it outlives a step.
    """
    if place.type != "cuda":
        return lambda step: step
    pool = torch.cuda.graph_pool_handle()

    def recorded(step: Callable[[], None]) -> Callable[[], None]:
        aside, main = torch.cuda.Stream(place), torch.cuda.current_stream(place)
        aside.wait_stream(main)
        with torch.cuda.stream(aside):
            step()
        main.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as NCCL's, may call the device meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            step()
        return graph.replay

    return recorded
