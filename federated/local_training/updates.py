"""The updates of a round's devices before clipping, one by one: what an audit clips and adds up by itself.

Shape legend: P parameters, V vocabulary, E embedding.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from federated.config.training import LocalTrainingConfig
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import most_steps_first, products_in_float32
from pretrain.kernel.weights import Weights, pack, unpack
from pretrain.model import KeyboardLM


def updates(
    model: KeyboardLM, devices: Sequence[DeviceRows], local: LocalTrainingConfig, chunk_devices: int
) -> Iterator[tuple[DeviceRows, np.ndarray]]:
    """Rows and update, float32 ``[P]`` in the order of ``model.parameters()``, of each device that has rows.

    Args:
      chunk_devices: devices trained side by side; that of the run gives its low bits on the same kind of processor.
    """
    start, ordered = pack(model), most_steps_first(devices, local)
    names = [name for name, _ in model.named_parameters()]
    with products_in_float32():
        for first in range(0, len(ordered), chunk_devices):
            rows = ordered[first : first + chunk_devices]
            made, ids = train_chunk(start, rows, local, width=chunk_devices)
            for place, device in enumerate(rows):
                alone = Weights(made.cell, None, *(part[place] for part in made.shared()))
                if made.inputs is not None and start.inputs is not None:
                    inputs_VE = torch.zeros_like(start.inputs)
                    inputs_VE[ids[place]] = made.inputs[place][: len(ids[place])]
                    alone = Weights(made.cell, inputs_VE, *alone.shared())
                named = unpack(alone)
                yield device, torch.cat([named[name].flatten() for name in names]).cpu().numpy()
