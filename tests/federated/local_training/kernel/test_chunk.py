"""The batched kernel: the updates of plain local SGD, by the steps of a CPU and by the fixed shapes of a GPU."""

from itertools import product

import numpy as np
import pytest
import torch

from federated.local_training import autotune
from federated.local_training.autotune import best_chunk
from federated.local_training.clipping import Clip
from federated.local_training.kernel import chunk, fixed_shapes, outputs
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.kernel.fixed_shapes import narrowest, widths
from federated.local_training.kernel.layout import Steps
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import Sums, most_steps_first
from pretrain.cells.functions import softmax_loss
from pretrain.kernel.step import at_first_use
from pretrain.kernel.weights import Weights, pack, unpack
from pretrain.kernel.workspace import thread_space
from pretrain.text.vocabulary import EOS, PAD, UNK
from tests.federated.reference_sgd import aggregate, device_loss, reference_update
from tests.helpers.audits.close import assert_close
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
    for fuse in (True, False):
        for rows, found in zip(devices, named_updates(model, devices, config, fuse), strict=True):
            for name, expected in reference_update(model, rows, config).items():
                if not expected.any():
                    # The last device; and recurrent weights where a row is one word.
                    assert rows is devices[-1] or (unroll == 1 and name == "gates_r")
                    assert not found[name].any()
                    continue
                assert difference(found[name], expected) < tolerance, (name, fuse)


def named_updates(model, devices, config, fuse) -> list[dict[str, torch.Tensor]]:
    """Each device's update by parameter."""
    updates, ids = train_chunk(pack(model), devices, config, fuse=fuse)
    found = []
    for number in range(len(devices)):
        inputs = None
        if updates.inputs is not None:
            inputs = torch.zeros_like(model.embedding, requires_grad=False)
            inputs[ids[number]] = updates.inputs[number, : len(ids[number])]
        found.append(unpack(Weights(model.cell, inputs, *(part[number].clone() for part in updates.shared()))))
    return found


def one_row(*targets: int) -> DeviceRows:
    """A row of these targets, in the steps of ``local``."""
    targets_T = np.array([*targets, *[PAD] * (local().sequence_words - len(targets))], np.int32)
    return DeviceRows(np.where(targets_T, np.roll(targets_T, 1), PAD)[None], targets_T[None])


@pytest.mark.parametrize("power", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_words_alone_count_and_improbable_ones_less(power, dtype):
    config, model = local(loss=power), keyboard(False, dtype)
    with torch.no_grad():
        model.output_bias[7] = -8.0  # a word that the model cannot hope for
    devices = [
        *(DeviceRows(own.inputs_RT, np.where(own.targets_RT == 5, UNK, own.targets_RT)) for own in rows_of(6, config)),
        one_row(UNK, 9, UNK, UNK, EOS),  # a single word
        one_row(7, EOS),
        one_row(UNK),
        one_row(EOS),
        nobody(config.sequence_words),
    ]  # fmt: skip
    devices = most_steps_first(devices, config)
    for fuse in (True, False):
        for rows, found in zip(devices, named_updates(model, devices, config, fuse), strict=True):
            trains = rows.targets_RT.max(initial=PAD) > (UNK if power else PAD)
            assert any(part.any() for part in found.values()) == trains
            for name, expected in reference_update(model, rows, config).items():
                assert torch.isfinite(found[name]).all()
                tolerance = 1e-10 if dtype == torch.float64 else 1e-4
                assert (found[name] - expected).norm() <= tolerance * (expected.norm() + 1e-3), (name, fuse)


@pytest.mark.parametrize("power", [0.2, 0.5])
def test_no_gradient_is_left_where_the_model_says_what_is_typed(power):
    count_W = np.array([5, 1, 20, 3, 11])
    targets_BT = torch.from_numpy(np.repeat(np.arange(4, 9), count_W))[None]
    logits_V = torch.tensor([0.3, -1, 2, 1, *np.log(count_W)], dtype=torch.float64, requires_grad=True)
    (slope_V,) = torch.autograd.grad(device_loss(logits_V.expand(1, 40, 9), targets_BT, power), logits_V)
    assert slope_V.abs().max() < 1e-12
    elsewhere_V = (1.2 * logits_V).detach().requires_grad_()
    (slope_V,) = torch.autograd.grad(device_loss(elsewhere_V.expand(1, 40, 9), targets_BT, power), elsewhere_V)
    assert slope_V.abs().max() > 1e-3


def test_a_power_scales_each_row_of_the_usual_gradient():
    rng = np.random.default_rng(3)
    logits_LK, offset_K = (rng.normal(size=shape).astype(np.float32) * 4 for shape in ((50, 40), 40))
    targets_L = rng.integers(0, 40, 50)
    found, weighed = ([logits_LK.copy(), np.zeros(40, np.float32)] for _ in range(2))
    loss = softmax_loss(found[0], offset_K, offset_K, targets_L, found[1], 0.0)
    assert loss == softmax_loss(weighed[0], offset_K, offset_K, targets_L, weighed[1], 0.5)
    usual_LK = torch.softmax(torch.from_numpy((logits_LK + offset_K).astype(np.float64)), 1).numpy()
    chance_L = usual_LK[np.arange(50), targets_L].copy()
    usual_LK[np.arange(50), targets_L] -= 1
    np.testing.assert_allclose(found[0], usual_LK, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(weighed[0], usual_LK * np.sqrt(chance_L)[:, None], rtol=1e-4, atol=1e-7)


# With a power, a target 1e30 behind has no gradient, and the update is finite.
@pytest.mark.parametrize(("number", "power"), [(1e30, 0.0), *product((float("nan"), float("inf")), (0.0, 0.2))])
def test_numbers_that_go_wrong_are_seen_and_nothing_raises(number, power):
    config, model = local(epochs=2, loss=power), keyboard(False)
    with torch.no_grad():
        model.output[4] = number
        model.gates_r[2] = number
    devices = most_steps_first(rows_of(4, config), config)
    for fuse in (True, False):
        updates, _ = train_chunk(pack(model), devices, config, fuse=fuse)
        assert not torch.isfinite(updates.outputs).all()


def trained(model, devices, config, **more) -> list[torch.Tensor]:
    updates, ids = train_chunk(pack(model), devices, config, fuse=False, **more)
    parts = list(updates.shared())
    if updates.inputs is not None:
        parts.append(torch.cat([own[: len(known)] for own, known in zip(updates.inputs, ids, strict=True)]))
    return [part.clone() for part in parts]


def test_widths_are_halves():
    assert widths(256) == [256, 128, 64, 32, 16, 8]
    assert widths(13) == [13, 7]
    assert widths(1) == [1]


@pytest.mark.parametrize("tied", [True, False])
def test_a_chunk_that_is_not_full_is_trained_alike(tied):
    config, model = local(epochs=2), keyboard(tied, torch.float64)
    devices = most_steps_first(rows_of(13, config), config)
    exact = trained(model, devices, config)
    # Larger chunks before must leave nothing behind that counts.
    for width in (40, 13, 17):
        for one, other in zip(trained(model, devices, config, width=width), exact, strict=True):
            assert difference(one, other) < 1e-13


@pytest.mark.parametrize("at_once", [1, 3])
def test_blocks_of_the_output_layer_change_nothing(monkeypatch, at_once):
    config, model = local(epochs=2), keyboard(True, torch.float64)
    devices = most_steps_first(rows_of(13, config), config)
    exact = trained(model, devices, config)
    logits = config.batch_sentences * config.sequence_words * len(model.output_bias) * 8
    monkeypatch.setattr(outputs, "LOGITS_BYTES", at_once * logits)
    monkeypatch.setattr(fixed_shapes, "machines", type(fixed_shapes.machines)())
    for one, other in zip(trained(model, devices, config), exact, strict=True):
        assert difference(one, other) < 1e-13


@pytest.mark.slow
def test_devices_that_are_done_stay_as_they_are_exactly():
    config, model = local(), keyboard(False)
    devices = most_steps_first(rows_of(13, config), config)
    steps = [own.steps(config.batch_sentences, 1) for own in devices]
    assert steps[0] > steps[-1] == 1
    shorter = [
        DeviceRows(own.inputs_RT[: config.batch_sentences], own.targets_RT[: config.batch_sentences]) for own in devices
    ]
    # Those of one step, beside devices of many steps and beside devices of one.
    last = steps.index(1)
    for one, other in zip(
        train_chunk(pack(model), devices, config, fuse=False)[0].shared(),
        [part.clone() for part in train_chunk(pack(model), shorter, config, fuse=False)[0].shared()],
        strict=True,
    ):
        assert_close(one[last:], other[last:], rtol=0, atol=0)


def device_slots(monkeypatch, module, config, model, devices) -> list[int]:
    """Devices that each step of a chunk computes, padding among them."""
    ran, step = [], module.add_gradient

    def seen(into, rate, weights, rows_CN, *others):
        ran.append(len(rows_CN))
        step(into, rate, weights, rows_CN, *others)

    monkeypatch.setattr(module, "add_gradient", seen)
    train_chunk(pack(model), devices, config, fuse=module is chunk)
    return ran


def test_a_step_runs_on_the_narrowest_width_that_holds_its_devices(monkeypatch):
    config, model = local(), keyboard(True)
    devices = most_steps_first(rows_of(20, config), config)
    monkeypatch.setattr(fixed_shapes, "machines", type(fixed_shapes.machines)())
    ran = device_slots(monkeypatch, fixed_shapes, config, model, devices)
    steps = np.array([own.steps(config.batch_sentences, 1) for own in devices])
    active = [int(np.sum(steps > step)) for step in range(steps[0])]
    assert ran == [narrowest(own, widths(len(devices))) for own in active]
    assert min(ran) < len(devices)


def lognormal(devices: int) -> list[DeviceRows]:
    """People as they type: median 66 words, mean 133, 1,600 at most, in rows of 8."""
    rng = np.random.default_rng(0)
    sizes = rng.lognormal(np.log(66), np.sqrt(2 * np.log(133 / 66)), size=devices).clip(1, 1600)
    return [DeviceRows(*(np.full((int(-(-size // 8)), 1), 4, np.int32),) * 2) for size in sizes]


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 128, 256, 512])
def test_few_step_slots_of_a_real_cohort_are_executed_in_vain(size):
    config, devices = local(batch_sentences=8), lognormal(6500)

    def executed_over_needed(ordered: list[DeviceRows]) -> float:
        executed = needed = 0
        for first in range(0, len(ordered), size):
            own = sorted(ordered[first : first + size], key=lambda rows: -len(rows.targets_RT))
            active_K = Steps.lay_out(own, [rows.inputs_RT for rows in own], config, 1).active_K.tolist()
            executed += sum(narrowest(active, widths(size)) for active in active_K)
            needed += sum(active_K)
        return executed / needed

    assert 1.0 <= executed_over_needed(most_steps_first(devices, config)) <= 1.1
    # As devices come, not by their number of steps.
    assert executed_over_needed(devices) > 1.1


@pytest.mark.slow
def test_on_a_cpu_no_step_slot_is_executed_in_vain(monkeypatch):
    config, model = local(), keyboard(False)
    devices = most_steps_first(rows_of(13, config), config)
    executed = device_slots(monkeypatch, chunk, config, model, devices)
    assert sum(executed) == sum(own.steps(config.batch_sentences, 1) for own in devices)


def test_words_used_twice_are_added_once_each():
    rows_CN = torch.tensor([[3, 5, 3, 3], [7, 7, 8, 9]])
    d_words_CNE = torch.randn(2, 4, 3, dtype=torch.float64)
    one, other = torch.zeros(2, 10, 3, dtype=torch.float64).unbind()
    one.index_add_(0, rows_CN.flatten(), d_words_CNE.flatten(0, 1))
    found_CNE = at_first_use(rows_CN, d_words_CNE)
    other.index_add_(0, rows_CN.flatten(), found_CNE.flatten(0, 1))
    assert_close(one, other)
    # Each row gets one number that is not zero: the order of adding changes nothing.
    assert (found_CNE != 0).any(-1).tolist() == [[True, True, False, False], [True, False, True, True]]


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("per_layer", [True, False])
def test_sums_of_many_devices_at_a_time(tied, per_layer):
    config, model = local(), keyboard(tied, torch.float64)
    devices = most_steps_first(rows_of(23, config), config)
    clip = Clip(0.05, per_layer, below=0.3, weight_words=20)
    one, other = Sums.zeros(pack(model)), Sums.zeros(pack(model))
    for total, fuse in ((one, True), (other, False)):
        updates, ids = train_chunk(pack(model), devices, config)
        # The first device breaks; it drops out of both sums.
        updates.gates[0, 0, 0], updates.outputs[0, 1, 1] = float("inf"), float("nan")
        total.add(updates, ids, [clip.weight(rows) for rows in devices], clip, fuse=fuse)
    assert difference(one.flat(model), other.flat(model)) < 1e-12
    np.testing.assert_array_equal(one.counts, other.counts)
    assert -len(devices) < one.counts[0] < len(devices)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_a_gpu_agrees_and_repeats_itself(tied, dtype, tolerance):
    config, model = local(epochs=2), keyboard(tied, dtype)
    devices, clip = rows_of(23, config), Clip(0.05, below=0.3)
    expected = aggregate(model, devices, config, clip, 1, kernel="reference")
    place = keyboard(tied, dtype).cuda()
    found = [aggregate(place, devices, config, clip, 16) for _ in range(3)]
    assert difference(found[0].sum_P, expected.sum_P) < tolerance
    assert found[0].below == expected.below
    assert all(torch.equal(found[0].sum_P, again.sum_P) for again in found)


@pytest.mark.slow
def test_the_fastest_chunk_is_taken(monkeypatch):
    config, model = local(), keyboard(True)
    with monkeypatch.context() as few:
        few.setitem(autotune.CANDIDATES, "cpu", (1, 4))
        assert best_chunk(model, config) in (1, 4)
    now = [0.0]
    taken = {1: 10.0, 2: 9.5, 4: 8.8, 8: 9.1, 16: 12.0, 32: 30.0}

    def trained(model, devices, local, clip, size):
        now[0] += taken[size]

    monkeypatch.setattr(autotune, "chunked_sum", trained)
    monkeypatch.setattr(autotune.time, "process_time", lambda: now[0])
    assert best_chunk(model, config) == 4
    taken[4] = 9.2  # not worth it that a device's low bits depend on others
    assert best_chunk(model, config) == 1


def test_memory_of_a_thread_is_used_again_and_grows():
    space = thread_space(torch.device("cpu"), torch.float32)
    small = space("test", 2, 3)
    assert space("test", 3, 2).data_ptr() == small.data_ptr()
    assert space("test", 40, 40).shape == (40, 40)
    assert thread_space(torch.device("cpu"), torch.float32) is space
    assert thread_space(torch.device("cpu"), torch.float64) is not space


def test_most_steps_come_first():
    config = local()
    steps = [rows.steps(config.batch_sentences, 1) for rows in most_steps_first(rows_of(13, config), config)]
    assert steps == sorted(steps, reverse=True)
    executed = sum(4 * max(steps[first : first + 4]) for first in range(0, len(steps), 4))
    # Steps that chunks of four devices execute, padding included; more devices waste less.
    assert executed <= 1.3 * sum(steps)
