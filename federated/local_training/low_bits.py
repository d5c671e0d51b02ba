"""Low bits of the training kernel on this processor, on synthetic weights and devices in the model's own shapes.

Vector units, BLAS and compiler determine the order of additions, so another kind of processor gives every update other
low bits. A run stays on one kind: rounds repeated on another would be other sums under the same noise, and the
difference of both releases would have no noise. Processors with different names may give the same bits, so bits are
compared, not names.

Shape legend: R rows, T steps of a row.
"""

import hashlib
from pathlib import Path

import numpy as np
import torch

from federated.config.training import LocalTrainingConfig
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.rows import DeviceRows
from federated.workers.worker import Worker
from pretrain.files import PRIVATE, write_text
from pretrain.kernel.processor import processor_name
from pretrain.kernel.threads import one_torch_thread
from pretrain.kernel.weights import Weights, pack
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.vocabulary import EOS, PAD

FILE = "processor"
_DEVICES, _BATCHES, _HEX = 2, 2, 14


def require_one_kind(low_bits: str, process: Worker) -> None:
    """Raise ValueError unless all workers of a round have the same low bits, before any text is read.

    Otherwise the bits of a round would depend on the assignment of chunks to workers.
    """
    lowest, highest = process.span(int(low_bits, 16))
    if lowest != highest:
        raise ValueError(
            f"runtime.workers, runtime.hosts: the workers' processors are of different kinds (this one is "
            f"{processor_name()}), whose products have other low bits; let TACIT_GANG choose hosts of one kind"
        )


def require_kind_of_run(low_bits: str, directory: Path) -> None:
    """Store the kind of processor of a run beside its checkpoints; refuse to resume on another.

    Guarantee: no round is released twice under one noise with sums that differ.

    Raises:
      OSError: the run began on another kind; a worker of that kind can resume it.
    """
    path = directory / FILE
    if not path.exists():
        write_text(path, f"{low_bits} {processor_name()}\n", PRIVATE)
    began, _, named = path.read_text(encoding="utf-8").strip().partition(" ")
    if began != low_bits:
        raise OSError(
            f"{directory.name}/{FILE}: the rounds began on another kind of processor ({named}; this is "
            f"{processor_name()}), and done again here they would be other releases under the same noise; run the "
            "stage on a worker of that kind"
        )


def low_bits_of(model: KeyboardLM, local: LocalTrainingConfig) -> str:
    """A digest that differs where updates would; 14 digits in base 16.

    It is the same on all processors of one kind. Two kinds with the same digest may still differ elsewhere, as it
    covers one chunk.
    """
    draw = np.random.Generator(np.random.Philox(0x6C6F77))
    shapes = pack(model)
    inputs_VE = None if shapes.inputs is None else _like(shapes.inputs, draw)
    start = Weights(model.cell, inputs_VE, *(_like(part, draw) for part in shapes.shared()))
    with one_torch_thread():
        updates, ids = train_chunk(start, _devices(model.vocabulary_size, local, draw), local)
    total = hashlib.sha256()
    for part in [*updates.shared(), *([] if updates.inputs is None else [updates.inputs]), *ids]:
        total.update(part.cpu().contiguous().numpy().data)
    return total.hexdigest()[:_HEX]


def _like(part: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
    """Weights from -1/8 to 1/8, by a platform-independent generator."""
    uniform = draw.random(tuple(part.shape), dtype=np.float32) / 4 - np.float32(0.125)
    return torch.from_numpy(uniform).to(part)


def _devices(vocabulary_size: int, local: LocalTrainingConfig, draw: np.random.Generator) -> list[DeviceRows]:
    """Devices with rows of many lengths."""
    shape = _BATCHES * local.batch_sentences, local.sequence_words
    made = []
    for _ in range(_DEVICES):
        words_RT = draw.integers(EOS + 1, vocabulary_size, size=shape, dtype=np.int32)
        lengths_R1 = draw.integers(1, local.sequence_words + 1, size=(len(words_RT), 1))
        words_RT[np.arange(local.sequence_words) >= lengths_R1] = PAD
        made.append(DeviceRows(words_RT, words_RT))
    return made
