"""The batched kernel against local SGD written down plainly."""

import numpy as np
import pytest
import torch

from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import most_steps_first
from pretrain.kernel.weights import Weights, pack, unpack
from tests.federated.reference_sgd import reference_update
from tests.helpers.text.typed_devices import difference, keyboard, local, rows_of


def nobody(width: int) -> DeviceRows:
    return DeviceRows(np.zeros((0, width), np.int32), np.zeros((0, width), np.int32))


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("unroll", [1, 6, 15])
def test_the_kernel_agrees_with_the_reference_device_by_device(tied, dtype, tolerance, unroll):
    config, model = local(epochs=2, sequence_words=unroll), keyboard(tied, dtype)
    devices = most_steps_first(rows_of(9, config), config)
    # Last batches with fewer rows than others, and a device without text at the end.
    assert any(len(rows.targets_RT) % config.batch_sentences for rows in devices)
    devices = [*devices, nobody(unroll)]
    names = [name for name, _ in model.named_parameters()]
    for fuse in (True, False):
        updates, ids = train_chunk(pack(model), devices, config, fuse=fuse)
        for number, rows in enumerate(devices):
            expected = reference_update(model, rows, config)
            parts = [part[number] for part in updates.shared()]
            inputs = None
            if updates.inputs is not None:
                inputs = torch.zeros_like(model.embedding, requires_grad=False)
                inputs[ids[number]] = updates.inputs[number, : len(ids[number])]
            found = unpack(Weights(model.cell, inputs, *parts))
            for name in names:
                if not expected[name].any():
                    # The last device; and recurrent weights where a row is one word.
                    assert rows is devices[-1] or (unroll == 1 and name == "gates_r")
                    assert not found[name].any()
                    continue
                assert difference(found[name], expected[name]) < tolerance, (name, fuse)


@pytest.mark.parametrize("number", [1e30, float("nan"), float("inf")])
def test_numbers_that_go_wrong_are_seen_and_nothing_raises(number):
    config, model = local(epochs=2), keyboard(False)
    with torch.no_grad():
        model.output[4] = number
        model.gates_r[2] = number
    devices = most_steps_first(rows_of(4, config), config)
    for fuse in (True, False):
        updates, _ = train_chunk(pack(model), devices, config, fuse=fuse)
        assert not torch.isfinite(updates.outputs).all()
