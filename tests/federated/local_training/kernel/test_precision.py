"""``runtime.precision``: what may be rounded, how much that changes, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from federated.client import clipped_sum
from federated.local_training.clipping import Clip
from federated.local_training.kernel.precision import add_product, products
from federated.local_training.sums import chunked_sum, most_steps_first
from federated.runtime_config import RuntimeConfig
from pretrain.model import KeyboardLM
from tests.federated.local_training.test_local_sgd import difference, keyboard, local, rows_of
from tests.helpers.small_run import Launch, run


def summed(model: KeyboardLM, devices, config, precision: str) -> torch.Tensor:
    ordered = most_steps_first(devices, config)
    return chunked_sum(model, ordered, config, Clip(1e3), 4, precision=precision).flat(model)


@pytest.mark.parametrize(("beta", "alpha"), [(0.0, 1.0), (1.0, -0.3), (0.0, 0.25)])
@pytest.mark.parametrize("axes", [2, 3])
def test_a_product_is_one_at_either_precision(beta, alpha, axes):
    torch.manual_seed(0)
    left, right = torch.randn(3, 5, 7), torch.randn(3, 7, 4)
    start = torch.randn(3, 5, 4)
    if axes == 2:
        left, right, start = left[0], right[0], start[0]
    expected = beta * start + alpha * (left @ right)
    for precision, tolerance in (("float32", 1e-6), ("tf32", 1e-6), ("bfloat16", 1e-2)):
        total = start.clone() if beta else torch.full_like(start, float("nan"))
        add_product(total, left, right, precision, beta=beta, alpha=alpha)
        assert difference(total, expected) < tolerance
    assert difference(total, expected) > 1e-4  # rounded it was


def test_rounded_factors_move_an_update_little():
    """Weights stay in float32: with factors of 8 bits an update moves by less than a thousandth of its norm."""
    config = local(batch_sentences=4, sequence_words=8, max_words=64, learning_rate=0.1)
    torch.manual_seed(0)
    model = KeyboardLM(500, 32, 64, tied=False)
    devices = rows_of(12, config)
    exact = summed(model, devices, config, "float32")
    rounded = summed(model, devices, config, "bfloat16")
    assert 1e-5 < difference(rounded, exact) < 1e-3
    assert torch.equal(rounded, summed(model, devices, config, "bfloat16"))
    # What the same rounding of the weights themselves would do.
    start = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    update = exact.double() / 2**44 * 1e3 / len(devices)
    kept = (start.double() + update).bfloat16().double() - start.bfloat16().double()
    assert difference(kept, update) > 0.1


def test_weights_in_16_bits_are_refused():
    config, model = local(), keyboard(False).to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"keep the weights in float32.*runtime\.precision"):
        clipped_sum(model, rows_of(3, config), config, 0.1, 2)
    for name in ("bf16", "bfloat16-weights", "float16"):
        with pytest.raises(ValidationError, match="weights in 16 bits"):
            RuntimeConfig(precision=name)
    with pytest.raises(ValidationError, match="tf32"):
        RuntimeConfig(precision="tf32")
    assert RuntimeConfig(precision="tf32", device="cuda").precision == "tf32"


def test_tf32_is_off_unless_asked_for_and_put_back():
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    try:
        settings.fp32_precision = "tf32"  # Somebody else's choice.
        with products("float32"):
            assert settings.fp32_precision == "ieee"
        with products("bfloat16"):
            assert settings.fp32_precision == "ieee"
        assert settings.fp32_precision == "tf32"
        settings.fp32_precision = "ieee"
        with products("tf32"):
            assert settings.fp32_precision == "tf32"
        assert settings.fp32_precision == "ieee"
    finally:
        settings.fp32_precision = before


def test_a_run_goes_on_at_its_own_precision_only(tmp_path):
    launch = Launch()
    rounded = replace(launch, runtime=launch.runtime.model_copy(update={"precision": "bfloat16"}))
    weights, _ = run(rounded, tmp_path / "rounded")
    exact, _ = run(launch, tmp_path / "exact")
    assert 0 < np.linalg.norm(weights - exact) < 0.05 * np.linalg.norm(exact)
    for one, directory in ((launch, "rounded"), (rounded, "exact")):
        with pytest.raises(ValueError, match="empty directory"):
            run(one, tmp_path / directory)
