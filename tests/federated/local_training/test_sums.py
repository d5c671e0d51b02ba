"""Sums of clipped updates: every tensor counts, layers, weights and bits of adaptive clipping, by both kernels."""

import math

import numpy as np
import pytest
import torch

from federated.local_training import sums
from federated.local_training.clipping import Clip
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import Sums, clipped_updates, most_steps_first
from pretrain.kernel.weights import Weights, pack, unpack
from pretrain.randomness.noise import FIXED_POINT
from pretrain.text.vocabulary import EOS, PAD
from tests.federated.reference_sgd import aggregate, clip_to_grid, clipped_sum
from tests.helpers.audits.close import assert_close
from tests.helpers.text.typed_devices import difference, keyboard, local, rows_of

NAMES = [name for name, _ in keyboard(False).named_parameters()]
CLIP = 0.05


def added(name: str, tied: bool, dtype: torch.dtype, fuse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Share of a device whose update lies nearly all in ``name``, by ``Sums`` and by ``clip_to_grid``."""
    config, model = local(), keyboard(tied, dtype)
    devices = most_steps_first(rows_of(3, config), config)[:1]
    updates, ids = train_chunk(pack(model), devices, config)
    layers = unpack(updates)
    layers[name].mul_(100 * sum(float(layer.norm()) for layer in layers.values()) / layers[name].norm())
    norms = {other: float(layer.norm()) for other, layer in layers.items()}
    assert norms[name] > 50 * max(norm for other, norm in norms.items() if other != name)
    whole = [part[0].clone() for part in updates.shared()]
    inputs = None
    if updates.inputs is not None:
        inputs = torch.zeros_like(model.embedding, requires_grad=False)
        inputs[ids[0]] = updates.inputs[0, : len(ids[0])]
    by_name = unpack(Weights(model.cell, inputs, *whole))
    flat = torch.cat([by_name[other].flatten() for other, _ in model.named_parameters()])
    total = Sums.zeros(pack(model))
    total.add(updates, ids, [1.0], Clip(CLIP), fuse=fuse)
    return total.flat(model), clip_to_grid([flat], CLIP)[0]


@pytest.mark.slow
@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("name", NAMES)
def test_each_tensor_dominates_the_clip_in_turn(name, dtype, tolerance, fuse):
    for tied in (True, False):
        if tied and name == "output":
            continue
        found, expected = added(name, tied, dtype, fuse)
        assert difference(found, expected) < tolerance
        assert 0.99 < float(found.double().norm()) / FIXED_POINT <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_norm_that_forgets_a_tensor_is_seen(monkeypatch, name):
    true_norms = sums.joint_norms

    def forgetful(updates, fuse):
        seen = Weights(updates.cell, *(part.clone() for part in (updates.inputs, *updates.shared())))
        unpack(seen)[name].zero_()
        return true_norms(seen, fuse=fuse)

    found, _ = added(name, False, torch.float64, fuse=True)
    assert float(found.double().norm()) / FIXED_POINT <= 1.0
    monkeypatch.setattr(sums, "joint_norms", forgetful)
    found, _ = added(name, False, torch.float64, fuse=True)
    assert float(found.double().norm()) / FIXED_POINT > 1.0


def test_weights_in_16_bits_are_refused():
    config, model = local(), keyboard(False).to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"keep the weights in float32"):
        clipped_sum(model, rows_of(3, config), config, 0.1, 2)


def test_products_of_a_gpu_are_in_float32_and_the_setting_is_put_back(monkeypatch):
    settings, seen = torch.backends.cuda.matmul, []
    train = sums.train_chunk

    def watched(*arguments, **named):
        seen.append(settings.fp32_precision)
        return train(*arguments, **named)

    monkeypatch.setattr(sums, "train_chunk", watched)
    before = settings.fp32_precision
    try:
        settings.fp32_precision = "tf32"  # Somebody else's choice.
        clipped_sum(keyboard(False), rows_of(3, local()), local(), 0.1, 8)
        assert (settings.fp32_precision, seen) == ("tf32", ["ieee"])
    finally:
        settings.fp32_precision = before


both_kernels = pytest.mark.parametrize("kernel", ["batched", "reference"])
both_tables = pytest.mark.parametrize("tied", [True, False])
FREE = 1e3


def alone(model: torch.nn.Module, rows: DeviceRows, clip: Clip, kernel: str) -> torch.Tensor:
    """One device's contribution in units of the update."""
    return aggregate(model, [rows], local(), clip, 4, kernel=kernel).sum_P.double() * (clip.norm / FIXED_POINT)


def layers(model: torch.nn.Module, flat_P: torch.Tensor) -> dict[str, torch.Tensor]:
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return dict(zip(sizes, flat_P.split(list(sizes.values())), strict=True))


@both_kernels
@both_tables
def test_each_layer_is_clipped_to_its_share(kernel: str, tied: bool) -> None:
    model = keyboard(tied)
    clip = Clip(0.03, per_layer=True)
    shares = []
    for rows in rows_of(9, local()):
        free, clipped = layers(model, alone(model, rows, Clip(FREE), kernel)), alone(model, rows, clip, kernel)
        bound = clip.norm / math.sqrt(len(free))
        for name, layer in layers(model, clipped).items():
            expected = free[name] * min(1.0, bound / max(float(free[name].norm()), 1e-30))
            assert_close(layer, expected, rtol=2e-4, atol=1e-7)
            shares.append(float(free[name].norm()) > bound)
        assert clipped.norm() <= clip.norm
    assert any(shares)
    assert not all(shares)


@pytest.mark.slow
@both_kernels
def test_a_weight_scales_what_was_clipped(kernel: str) -> None:
    model, rows = keyboard(tied=True), rows_of(9, local())
    clip = Clip(0.02, weight_words=10)
    words = [int(np.sum((own.targets_RT != PAD) & (own.targets_RT != EOS))) for own in rows]
    expected = [min(count / 10, 1.0) for count in words]
    assert min(expected) < 1 == max(expected)
    for own, weight in zip(rows, expected, strict=True):
        plain = alone(model, own, Clip(0.02), kernel)
        assert_close(alone(model, own, clip, kernel), plain * weight, rtol=1e-9, atol=1e-12)
    total = aggregate(model, rows, local(), clip, 4, kernel=kernel)
    assert total.weight == pytest.approx(sum(expected))
    assert aggregate(model, rows, local(), Clip(0.02), 4, kernel=kernel).weight == len(rows)


@pytest.mark.slow
@both_kernels
@both_tables
def test_bits_count_the_updates_below(kernel: str, tied: bool) -> None:
    model, rows = keyboard(tied), rows_of(11, local())
    norms = sorted(float(alone(model, own, Clip(FREE), kernel).norm()) for own in rows)
    nobody = DeviceRows(rows[0].inputs_RT[:0], rows[0].targets_RT[:0])
    for count in (0, 4, 11):
        threshold = 0.5 * (([0.0, *norms])[count] + ([*norms, 2 * norms[-1]])[count])
        # The clip norm in use plays no part, nor does clipping by layer: the bit is about the update itself.
        for clip in (Clip(0.01, below=threshold), Clip(FREE, per_layer=True, below=threshold)):
            found = aggregate(model, rows, local(), clip, 4, kernel=kernel).below
            assert found == count - 11 / 2
        with_nobody = aggregate(model, [*rows, nobody], local(), Clip(1.0, below=threshold), 4, kernel=kernel)
        assert with_nobody.below == count - 11 / 2
    assert aggregate(model, rows, local(), Clip(1.0), 4, kernel=kernel).below == 0


def test_an_update_that_is_not_finite_adds_nothing_to_any_sum() -> None:
    model, rows = keyboard(tied=True), rows_of(5, local())
    # The second step starts from weights near the largest float32 and overflows.
    blown = local(epochs=2).model_copy(update={"learning_rate": 1e38})
    for kernel in ("batched", "reference"):
        for clip in (Clip(0.1, per_layer=True, below=0.1), Clip(0.1, below=0.1, weight_words=10)):
            found = aggregate(model, rows, blown, clip, 4, kernel=kernel)
            assert not found.sum_P.any()
            assert (found.below, found.weight) == (0, 0)
    clip = Clip(0.1, per_layer=True, below=0.1)
    for kernel in ("batched", "reference"):
        # One step does not: an update of norm 4e37 is clipped like any other, though its square is no float32.
        huge = aggregate(model, rows[:1], local().model_copy(update={"learning_rate": 1e38}), clip, 4, kernel=kernel)
        assert 0.99 < float(huge.sum_P.double().norm()) / FIXED_POINT <= 1
        assert huge.below == -1 / 2


def test_updates_one_by_one_add_up_to_the_sum() -> None:
    model, rows = keyboard(tied=False), rows_of(7, local())
    clip = Clip(0.05, below=0.2)
    nobody = DeviceRows(rows[0].inputs_RT[:0], rows[0].targets_RT[:0])
    updates, bits = zip(*clipped_updates(model, [*rows, nobody], local(), clip), strict=True)
    assert len(updates) == 8
    assert max(np.linalg.norm(update) for update in updates) <= 1
    summed = aggregate(model, rows, local(), clip, 1)
    np.testing.assert_array_equal((np.sum(updates, axis=0) * FIXED_POINT).astype(np.int64), summed.sum_P.numpy())
    assert set(bits) == {-1, 0, 1}
    assert sum(bits) == 2 * summed.below
