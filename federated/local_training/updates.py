"""Updates of a round's devices before clipping, one by one, which an audit clips and adds up independently.

Shape legend: P parameters, V vocabulary, E embedding.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from federated.config.training import LocalTrainingConfig
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import most_steps_first, products_in_float32
from pretrain.kernel.threads import one_torch_thread
from pretrain.kernel.weights import Weights, pack, unpack
from pretrain.model.keyboard_lm import KeyboardLM

Update = tuple[DeviceRows, np.ndarray]


def updates(
    model: KeyboardLM, devices: Sequence[DeviceRows], local: LocalTrainingConfig, chunk_devices: int, threads: int = 1
) -> Iterator[Update]:
    """Rows and update, float32 ``[P]`` in the order of ``model.parameters()``, of each device that has rows.

    Args:
      chunk_devices: devices trained side by side; that of the run gives its low bits on the same kind of processor.
      threads: number of chunks in parallel, and largest number in memory.
    """
    start, ordered = pack(model), most_steps_first(devices, local)
    names = [name for name, _ in model.named_parameters()]
    chunks = [ordered[first : first + chunk_devices] for first in range(0, len(ordered), chunk_devices)]

    def trained(rows: Sequence[DeviceRows]) -> list[Update]:
        made, ids = train_chunk(start, rows, local, width=chunk_devices)
        return [(device, _flat(made, ids, place, start, names)) for place, device in enumerate(rows)]

    with one_torch_thread(), threadpool_limits(1, user_api="blas"), products_in_float32():
        alike = torch.get_num_threads()
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(alike,)) as pool:
            for first in range(0, len(chunks), threads):
                for part in pool.map(trained, chunks[first : first + threads]):
                    yield from part


def _flat(made: Weights, ids: Sequence[torch.Tensor], place: int, start: Weights, names: Sequence[str]) -> np.ndarray:
    """The update of one device of a chunk."""
    inputs_VE = None
    if made.inputs is not None and start.inputs is not None:
        inputs_VE = torch.zeros_like(start.inputs)
        inputs_VE[ids[place]] = made.inputs[place][: len(ids[place])]
    named = unpack(Weights(made.cell, inputs_VE, *(part[place] for part in made.shared())))
    return torch.cat([named[name].flatten() for name in names]).cpu().numpy()
