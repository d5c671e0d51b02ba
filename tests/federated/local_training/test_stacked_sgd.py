import numpy as np
import pytest
import torch
from torch import Tensor, nn

from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.kernel.weights import Weights, pack, unpack
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import most_steps_first
from tests.federated.reference_sgd import reference_update
from tests.federated.stacked_sgd import train_stacked
from tests.helpers.typed_devices import WORDS, difference, keyboard, local, rows_of


class Bag(nn.Module):
    """Predicts the next word from the mean of the words so far: a module without a kernel of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(WORDS, 6))
        self.out = nn.Linear(6, WORDS)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        words_BTE = nn.functional.embedding(tokens_BT, self.embedding)
        count_T = torch.arange(1, tokens_BT.shape[1] + 1).to(words_BTE)
        return self.out(torch.tanh(words_BTE.cumsum(1) / count_T[:, None]))


def one_at_a_time(model: nn.Module, rows: DeviceRows, config) -> dict[str, Tensor]:
    """Plain autograd by the book."""
    own = {name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()}
    for step in range(rows.steps(config.batch_sentences, config.epochs)):
        batch = rows.batch(step, config.batch_sentences)
        logits = torch.func.functional_call(model, own, (torch.from_numpy(rows.inputs_RT[batch]),))
        targets = torch.from_numpy(rows.targets_RT[batch]).long().flatten()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets, ignore_index=0)
        slopes = torch.autograd.grad(loss, list(own.values()))
        own = {
            name: (value - config.learning_rate * slope).detach().requires_grad_()
            for (name, value), slope in zip(own.items(), slopes, strict=True)
        }
    return {name: (own[name] - start).detach() for name, start in model.named_parameters()}


def nobody(width: int) -> DeviceRows:
    return DeviceRows(np.zeros((0, width), np.int32), np.zeros((0, width), np.int32))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("unroll", [1, 6, 15])
def test_all_kernels_agree_device_by_device(tied, dtype, tolerance, unroll):
    config, model = local(epochs=2, sequence_words=unroll), keyboard(tied, dtype)
    devices = most_steps_first(rows_of(9, config), config)
    # Last batches with fewer rows than others, and a device without text at the end.
    assert any(len(rows.targets_RT) % config.batch_sentences for rows in devices)
    devices = [*devices, nobody(unroll)]
    names = [name for name, _ in model.named_parameters()]
    generic = train_stacked(model, devices, config)
    for fuse in (True, False):
        updates, ids = train_chunk(pack(model), devices, config, fuse=fuse)
        for number, rows in enumerate(devices):
            expected = reference_update(model, rows, config)
            parts = [part[number] for part in updates.shared()]
            inputs = None
            if updates.inputs is not None:
                inputs = torch.zeros_like(model.embedding, requires_grad=False)
                inputs[ids[number]] = updates.inputs[number, : len(ids[number])]
            found = unpack(Weights(inputs, *parts))
            for name in names:
                if not expected[name].any():
                    # The last device; and recurrent weights where a row is one word.
                    assert rows is devices[-1] or (unroll == 1 and name == "gates_r")
                    assert not found[name].any()
                    assert not generic[name][number].any()
                    continue
                assert difference(found[name], expected[name]) < tolerance, (name, fuse)
                assert difference(generic[name][number], expected[name]) < tolerance, name


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_any_module(dtype, tolerance):
    torch.manual_seed(1)
    config, model = local(), Bag().to(dtype)
    devices = [rows for rows in rows_of(7, config) if len(rows.targets_RT)]
    found = train_stacked(model, devices, config)
    for number, rows in enumerate(devices):
        for name, expected in one_at_a_time(model, rows, config).items():
            assert difference(found[name][number], expected) < tolerance


def test_padding_changes_nothing_exactly():
    config, model = local(), keyboard(True)
    devices = [rows for rows in rows_of(5, config) if len(rows.targets_RT)]
    found = train_stacked(model, [*devices, nobody(6)], config)
    assert all(torch.count_nonzero(own[-1]) == 0 for own in found.values())
    assert all(torch.count_nonzero(own[0]) > 0 for own in found.values())
    assert train_stacked(model, [], config)["projection"].shape[0] == 0


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
