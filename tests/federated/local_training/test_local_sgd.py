import numpy as np
import pytest
import torch

from federated.local_training.clipping import Clip
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.rows import DeviceRows, device_rows, round_offset
from federated.local_training.sums import Sums, chunked_sum, most_steps_first
from pretrain.kernel.threads import one_torch_thread
from pretrain.kernel.weights import pack
from pretrain.randomness.noise import FIXED_POINT
from pretrain.text.vocabulary import EOS, PAD
from tests.federated.reference_sgd import aggregate, clipped_sum
from tests.helpers.audits.close import assert_close
from tests.helpers.text.typed_devices import WORDS, difference, keyboard, local, rows_of


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("clip_norm", [0.05, 1e3])
@pytest.mark.parametrize("epochs", [1, 3])
def test_batched_equals_one_device_at_a_time(tied, dtype, tolerance, clip_norm, epochs):
    config = local(epochs=epochs)
    model, rows = keyboard(tied, dtype), rows_of(13, config)
    expected = clipped_sum(model, rows, config, clip_norm, 1, kernel="reference")
    assert expected.count_nonzero() > 0.5 * expected.numel()
    for chunk_devices in (1, 4, 64):
        found = clipped_sum(model, rows, config, clip_norm, chunk_devices)
        assert difference(found, expected) < tolerance


def test_reference_is_sgd_by_the_book():
    config, model = local(batch_sentences=100, loss=0.0), keyboard(True, torch.float64)
    (rows,) = rows_of(1, config)
    logits_BTV, _ = model(torch.from_numpy(rows.inputs_RT))
    chosen = torch.log_softmax(logits_BTV, -1).gather(-1, torch.from_numpy(rows.targets_RT).long()[..., None])[..., 0]
    loss = -chosen[torch.from_numpy(rows.targets_RT != PAD)].mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    expected = torch.cat([-config.learning_rate * gradient.flatten() for gradient in gradients])
    found = clipped_sum(model, [rows], config, 1e3, 1, kernel="reference").double() * (1e3 / FIXED_POINT)
    assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_threads_never_change_a_bit_and_other_chunks_only_low_ones():
    config, model = local(epochs=2), keyboard(True)
    rows = rows_of(23, config)
    with one_torch_thread():
        one = clipped_sum(model, rows, config, 0.1, 4, threads=1)
        assert torch.equal(one, clipped_sum(model, rows, config, 0.1, 4, threads=3))
        # Devices with as many steps and words stand in other chunks, beside others.
        assert difference(clipped_sum(model, rows[::-1], config, 0.1, 4, threads=2), one) < 1e-5
        assert difference(clipped_sum(model, rows, config, 0.1, 7), one) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_one_device_a_chunk_depends_on_no_other_device(tied):
    config, model = local(epochs=2), keyboard(tied)
    rows = rows_of(9, config)
    with one_torch_thread():
        whole = clipped_sum(model, rows, config, 0.1, 1)
        assert torch.equal(whole, clipped_sum(model, rows[::-1], config, 0.1, 1, threads=2))
        alone = [clipped_sum(model, [device], config, 0.1, 1) for device in rows]
        assert torch.equal(whole, sum(alone))
        for left_out, device in enumerate(alone):
            others = rows[:left_out] + rows[left_out + 1 :]
            assert torch.equal(whole - clipped_sum(model, others, config, 0.1, 1), device)


def test_torch_threads_are_put_back():
    before = torch.get_num_threads()
    with one_torch_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("kernel", ["batched", "reference"])
def test_the_start_weights_stay_as_they_are(kernel):
    config, model = local(), keyboard(True)
    before = [parameter.clone() for parameter in model.parameters()]
    clipped_sum(model, rows_of(5, config), config, 0.1, 2, kernel=kernel)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("tied", [True, False])
def test_padding_adds_exactly_nothing(tied):
    config, model = local(), keyboard(tied)
    rows = rows_of(9, config)
    wider = [
        DeviceRows(
            np.pad(own.inputs_RT, ((0, 0), (0, 5)), constant_values=PAD),
            np.pad(own.targets_RT, ((0, 0), (0, 5)), constant_values=PAD),
        )
        for own in rows
    ]
    narrow, padded = (clipped_sum(model, own, config, 0.1, 4) for own in (rows, wider))
    assert torch.equal(narrow, padded)
    with_empty = [*rows, DeviceRows(np.zeros((0, 6), np.int32), np.zeros((0, 6), np.int32))]
    assert torch.equal(clipped_sum(model, with_empty, config, 0.1, 4), narrow)


def test_the_input_row_of_padding_never_moves():
    config, model = local(), keyboard(False)
    total = clipped_sum(model, rows_of(9, config), config, 0.1, 4)
    assert torch.count_nonzero(total[:5]) == 0
    updates, ids = train_chunk(pack(model), rows_of(4, config)[::-1], config)
    assert updates.inputs is not None
    for device, known in enumerate(ids):
        assert torch.count_nonzero(updates.inputs[device, len(known) :]) == 0


@pytest.mark.slow
def test_a_device_that_breaks_drops_out_alone():
    config, model = local(), keyboard(False, torch.float64)
    healthy = [DeviceRows(own.inputs_RT.clip(0, WORDS - 2), own.targets_RT) for own in rows_of(6, config)]
    expected = clipped_sum(model, healthy, config, 0.1, 4)
    with torch.no_grad():
        model.embedding[WORDS - 1] = float("nan")  # A word that only the next device types.
    broken = DeviceRows(np.full((2, 6), WORDS - 1, np.int32), np.full((2, 6), 5, np.int32))
    for kernel in ("batched", "reference"):
        assert torch.count_nonzero(clipped_sum(model, [broken], config, 0.1, 4, kernel=kernel)) == 0
    assert difference(clipped_sum(model, [*healthy[:3], broken, *healthy[3:]], config, 0.1, 4), expected) < 1e-12


def test_nobody_sends_zeros():
    config, model = local(), keyboard(True)
    for kernel in ("batched", "reference"):
        total = clipped_sum(model, [], config, 0.1, 4, kernel=kernel)
        assert total.dtype == torch.int64
        assert total.shape == (sum(parameter.numel() for parameter in model.parameters()),)
        assert torch.count_nonzero(total) == 0


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("per_layer", [True, False])
def test_running_sums_are_those_of_clip_to_grid(tied, per_layer):
    config, model = local(), keyboard(tied, torch.float64)
    clip = Clip(0.05, per_layer, below=0.3, weight_words=20)
    devices = [rows for rows in rows_of(9, config) if len(rows.targets_RT)]
    expected = aggregate(model, devices, config, clip, 1, kernel="reference")
    halves = [Sums.zeros(pack(model)) for _ in range(2)]
    for number, rows in enumerate(devices):
        halves[number % 2].add(*train_chunk(pack(model), [rows], config), [clip.weight(rows)], clip)
        halves[number % 2].trained([rows])
    halves[0].merge(halves[1])
    assert difference(halves[0].flat(model), expected.sum_P) < 1e-10
    assert halves[0].below == expected.below
    assert expected.weight <= halves[0].weight <= expected.weight + 1e-7
    for threads, parts in ((1, 1), (3, 1), (1, 2), (2, 3)):
        ordered = most_steps_first(devices, config)
        whole, *others = (chunked_sum(model, ordered, config, clip, 2, threads, own, parts) for own in range(parts))
        for other in others:
            whole.merge(other)
        if parts == threads == 1:
            alone = whole.flat(model)
        assert torch.equal(whole.flat(model), alone)
        assert difference(alone, expected.sum_P) < 1e-10
        np.testing.assert_array_equal(whole.counts, halves[0].counts)


def words_in(rows: DeviceRows) -> int:
    return int(np.sum((rows.targets_RT != PAD) & (rows.targets_RT != EOS)))


def test_a_round_uses_at_most_max_words_from_its_own_offset():
    tokens = np.concatenate([[10 + sentence] * (1 + sentence % 4) + [EOS] for sentence in range(20)])
    config = local(max_words=9)
    seen = set()
    for offset in np.linspace(0, 0.999, 20):
        rows = device_rows(tokens, config, float(offset))
        assert 9 - 4 < words_in(rows) <= 9
        first = int(rows.targets_RT[0, 0]) - 10
        assert first == int(offset * 20)
        starts = rows.targets_RT[:, 0] - 10
        assert np.all(np.diff(starts) % 20 == 1)
        seen |= set(starts.tolist())
    assert seen == set(range(20))


def test_all_is_used_where_all_fits_and_a_row_that_is_too_long_is_cut():
    tokens = np.array([5, 6, 7, EOS, 8, EOS])
    rows = device_rows(tokens, local(max_words=4), 0.9)
    assert rows.targets_RT[:, 0].tolist() == [5, 8]
    cut = device_rows(np.array([5, 6, 7, 8, EOS, 9, EOS]), local(max_words=2), 0.0)
    assert cut.targets_RT.tolist() == [[5, 6, 0, 0, 0, 0]]
    assert words_in(cut) == 2
    assert len(device_rows(np.array([], dtype=np.int32), local(), 0.5).targets_RT) == 0


def test_offsets_are_functions_of_seed_and_round():
    offsets = [round_offset(3, number) for number in range(200)]
    assert offsets == [round_offset(3, number) for number in range(200)]
    assert len(set(offsets)) == 200
    assert offsets != [round_offset(4, number) for number in range(200)]
    assert all(0 <= offset < 1 for offset in offsets)


def test_batches_cover_every_row_once_an_epoch():
    rows = rows_of(5, local())[4]
    count = len(rows.targets_RT)
    steps = rows.steps(3, 2)
    assert steps == 2 * -(-count // 3)
    taken = np.concatenate([np.arange(count)[rows.batch(step, 3)] for step in range(steps)])
    np.testing.assert_array_equal(taken, np.tile(np.arange(count), 2))
