import numpy as np
import pytest
import torch

from federated.local_training.clipping import MAX_DEVICES, Clip, check_clip_norm, check_report_goal, release
from federated.local_training.sums import Sums
from pretrain.cells.cifg import CIFG
from pretrain.kernel.weights import Weights
from pretrain.randomness.noise import FIXED_POINT
from tests.helpers.audits.close import assert_close
from tests.helpers.text.typed_devices import local, rows_of


def clip_to_grid(parts: list[torch.Tensor], clip_norm: float) -> list[torch.Tensor]:
    """One device's share of a sum, by compiled passes and by torch's own."""
    found = []
    for fuse in (True, False):
        first, *others = (part[None].clone() for part in parts)
        nothing = [torch.zeros(1, 1)] * (4 - len(parts))
        update = Weights(CIFG, None, first, *others, *nothing)
        total = Sums.zeros(Weights(CIFG, None, *(part[0] for part in update.shared())))
        total.add(update, [], [1.0], Clip(clip_norm), fuse=fuse)
        found.append(total.shared[: len(parts)])
    for one, other in zip(*found, strict=True):
        # Norms may differ in their last bit, and so may an integer.
        assert_close(one, other, rtol=1e-12, atol=1)
    return list(found[0])


def norm_after(parts: list[torch.Tensor], clip_norm: float) -> float:
    """Joint norm of what one device adds, in units of the clip norm, by exact integers."""
    whole = [int(value) for part in parts for value in part.flatten().tolist()]
    return sum(value * value for value in whole) ** 0.5 / FIXED_POINT


def update(scale: float, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(7, 5), (3,), (40, 2)]
    return [scale * torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes]


@pytest.mark.slow
@pytest.mark.parametrize("clip_norm", [0.3, 1.0, 1e-3, 50.0])
@pytest.mark.parametrize("scale", [1e-4, 0.1, 1.0, 1e6, 1e18])
def test_the_bound_holds_whatever_the_update(clip_norm, scale):
    parts = update(scale)
    norm = sum(float((part.double() ** 2).sum()) for part in parts) ** 0.5
    reached = norm_after(clip_to_grid(parts, clip_norm), clip_norm)
    assert reached <= 1.0
    assert reached == pytest.approx(min(norm / clip_norm, 1.0), rel=2e-6, abs=1e-9)


@pytest.mark.slow
def test_a_small_update_is_kept_to_the_grid():
    parts = update(1e-3, dtype=torch.float64)
    for part, grid in zip(parts, clip_to_grid(parts, 1.0), strict=True):
        assert_close(grid.double() / FIXED_POINT, part, rtol=0, atol=1 / FIXED_POINT)
        assert torch.all(grid.abs() <= part.abs() * FIXED_POINT)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_becomes_exact_zeros(poison):
    parts = update(1.0)
    parts[1][2] = poison
    assert all(torch.count_nonzero(part) == 0 for part in clip_to_grid(parts, 1.0))


def test_no_overflow_at_production_size():
    # Every device sends the largest entry there is; then the largest noise that is let through.
    sent = int(clip_to_grid([torch.tensor([1e30])], 0.3)[0].item())
    for devices in (6_500, MAX_DEVICES // 2):
        check_report_goal(devices)
        total = np.array([sent * devices], dtype=np.int64)
        assert int(total[0]) == sent * devices
        noisy = release(total, np.array([2.0**18 - 1]), 0.3, 1.0)
        assert noisy[0] == pytest.approx(0.3 * (devices + 2.0**18 - 1), rel=1e-5)
    with pytest.raises(ValueError, match="report_goal"):
        check_report_goal(MAX_DEVICES)


def test_release_adds_noise_in_units_of_the_clip_norm():
    total = np.array([FIXED_POINT, -3 * FIXED_POINT, 0], dtype=np.int64)
    np.testing.assert_allclose(release(total, np.array([0.5, 1.0, -2.0]), 0.1, 1.0), [0.15, -0.2, -0.2], rtol=1e-12)


def test_release_keeps_no_bit_below_the_grid():
    rng = np.random.default_rng(0)
    noise_P = rng.normal(size=1000) * 7
    total_P = rng.integers(-FIXED_POINT, FIXED_POINT, size=1000)
    units = release(total_P, noise_P, 0.25, 7.0) / 0.25 * FIXED_POINT
    assert np.array_equal(units, np.rint(units))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 2.0**18])
def test_noise_beyond_the_grid_is_refused(bad):
    with pytest.raises(ArithmeticError, match="noise_multiplier"):
        release(np.zeros(2, dtype=np.int64), np.array([0.0, bad]), 1.0, 1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_a_clip_norm_is_a_finite_bound(bad):
    with pytest.raises(ValueError, match="clip_norm"):
        check_clip_norm(bad)


def test_no_device_weighs_more_than_one():
    (rows,) = rows_of(1, local())
    assert Clip(1.0, weight_words=2 * rows.words).weight(rows) == 0.5
    assert Clip(1.0, weight_words=max(1, rows.words // 2)).weight(rows) == 1.0
    assert Clip(1.0).weight(rows) == 1.0
