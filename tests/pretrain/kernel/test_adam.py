"""Adam as its paper prints it, and bitwise as torch's own class, whose checkpoints it reads."""

import numpy as np
import pytest
import torch

from pretrain.kernel.adam import Adam

RATES = (0.1, 0.05, 0.2, 0.01)


def gradients(steps: int = len(RATES)) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=6) * 10.0 ** rng.integers(-3, 2, size=6) for _ in range(steps)]


def parameters() -> list[torch.nn.Parameter]:
    start_P = torch.linspace(-1, 1, 6, dtype=torch.float64)
    return [torch.nn.Parameter(start_P[:2].clone()), torch.nn.Parameter(start_P[2:].reshape(2, 2).clone())]


def put(weights: list[torch.nn.Parameter], gradient_P: np.ndarray) -> None:
    weights[0].grad = torch.from_numpy(gradient_P[:2].copy())
    weights[1].grad = torch.from_numpy(gradient_P[2:].reshape(2, 2).copy())


def flat(weights: list[torch.nn.Parameter]) -> np.ndarray:
    return torch.cat([weight.detach().flatten() for weight in weights]).numpy()


def test_steps_are_those_of_algorithm_1() -> None:
    weights = parameters()
    made, expected_P, mean_P, square_P = Adam(weights), flat(weights), np.zeros(6), np.zeros(6)
    for step, (rate, gradient_P) in enumerate(zip(RATES, gradients(), strict=True), start=1):
        put(weights, gradient_P)
        made.step(rate)
        mean_P = 0.9 * mean_P + 0.1 * gradient_P
        square_P = 0.999 * square_P + 0.001 * gradient_P**2
        expected_P = expected_P - rate * (mean_P / (1 - 0.9**step)) / (np.sqrt(square_P / (1 - 0.999**step)) + 1e-8)
        np.testing.assert_allclose(flat(weights), expected_P, rtol=1e-9)


def test_a_saved_state_goes_on_bitwise() -> None:
    whole, cut = parameters(), parameters()
    one, other = Adam(whole), Adam(cut)
    for number, (rate, gradient_P) in enumerate(zip(RATES, gradients(), strict=True)):
        if number == 2:
            saved, other = other.state_dict(), Adam(cut)
            other.load(saved)
        for weights, made in ((whole, one), (cut, other)):
            put(weights, gradient_P)
            made.step(rate)
    assert np.array_equal(flat(whole), flat(cut))


@pytest.mark.slow  # the class imports torch's compiler
def test_torch_s_class_makes_the_same_steps_and_its_checkpoints_are_read() -> None:
    ours, theirs, after = parameters(), parameters(), parameters()
    made, twin, resumed = Adam(ours), torch.optim.Adam(theirs, fused=True), Adam(after)
    for number, (rate, gradient_P) in enumerate(zip(RATES, gradients(), strict=True)):
        if number == 2:
            resumed.load(twin.state_dict())
            for weight, reached in zip(after, theirs, strict=True):
                weight.data.copy_(reached)
        twin.param_groups[0]["lr"] = rate
        for weights in (ours, theirs, after):
            put(weights, gradient_P)
        made.step(rate)
        twin.step()
        if number >= 2:
            resumed.step(rate)
    assert np.array_equal(flat(ours), flat(theirs))
    assert np.array_equal(flat(after), flat(theirs))
