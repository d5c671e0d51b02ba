"""One tensor after the other is made to hold nearly all of an update: the clip must see every one of them."""

import pytest
import torch

from federated.local_training import sums
from federated.local_training.clipping import Clip
from federated.local_training.kernel.chunk import train_chunk
from federated.local_training.sums import Sums, most_steps_first
from pretrain.kernel.weights import Weights, pack, unpack
from pretrain.randomness.noise import FIXED_POINT
from tests.federated.reference_sgd import clip_to_grid, clipped_sum
from tests.helpers.text.typed_devices import difference, keyboard, local, rows_of

NAMES = [name for name, _ in keyboard(False).named_parameters()]
CLIP = 0.05


def added(name: str, tied: bool, dtype: torch.dtype, fuse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """What one device adds whose update of ``name`` is most of all, and the same by ``clip_to_grid``."""
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
