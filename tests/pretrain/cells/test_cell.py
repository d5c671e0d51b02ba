"""Compiled cells against their definition and its automatic derivative."""

import copy
import importlib
import pkgutil

import numpy as np
import pytest
import torch

from pretrain import cells
from pretrain.cells.cell import Cell
from pretrain.model.keyboard_lm import KeyboardLM

# Every cell there is: a file in the folder is enough.
CELLS = {
    module.name: value
    for module in pkgutil.iter_modules(cells.__path__)
    for value in vars(importlib.import_module(f"{cells.__name__}.{module.name}")).values()
    if isinstance(value, Cell)
}
every_cell = pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS.keys())

MODELS, ROWS, HIDDEN = 3, 4, 5
# Both steps of a row are held, as what a later one hands back shows in the earlier one.
FIRST, SECOND = 1, 1 + ROWS


@pytest.mark.slow
@every_cell
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
@pytest.mark.parametrize("ended", [0, 1])
def test_two_steps_forward_and_back_are_the_definition(
    cell: Cell, dtype: torch.dtype, tolerance: float, ended: int
) -> None:
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> torch.Tensor:
        return 2 * torch.randn(MODELS, *shape, generator=generator, dtype=dtype)

    positions, later = SECOND + ROWS, ROWS - ended
    gates, state, saved, gated = (drawn(positions, size * HIDDEN).numpy() for size in (cell.gates, 1, 1, 1))
    d_first, d_second, d_state = drawn(ROWS, HIDDEN), drawn(later, HIDDEN), drawn(ROWS, HIDDEN)
    inputs = [torch.from_numpy(gates[:, start : start + ROWS].copy()).requires_grad_() for start in (FIRST, SECOND)]
    gated_first, state_first = cell.step(inputs[0], torch.zeros(MODELS, ROWS, HIDDEN, dtype=dtype))
    gated_second, state_second = cell.step(inputs[1][:, :later], state_first[:, :later])
    # A row that ended has no later step, so its state's gradient counts at the first.
    ends = torch.cat([state_second, state_first[:, later:]], dim=1)
    expected = torch.autograd.grad((gated_first, gated_second, ends), inputs, (d_first, d_second, d_state))

    untouched = gates[:, 0].copy()
    cell.forward(gates, state, saved, gated, FIRST, -1, ROWS)
    cell.forward(gates, state, saved, gated, SECOND, FIRST, later)
    for found, wanted in ((gated, gated_first), (state, state_first)):
        np.testing.assert_allclose(found[:, FIRST : FIRST + ROWS], wanted.detach(), atol=tolerance)
    for found, wanted in ((gated, gated_second), (state, state_second)):
        np.testing.assert_allclose(found[:, SECOND : SECOND + later], wanted.detach(), atol=tolerance)

    by_state = d_state.numpy().copy()
    cell.backward(gates, state, saved, d_second.numpy(), by_state, SECOND, FIRST, later)
    cell.backward(gates, state, saved, d_first.numpy(), by_state, FIRST, -1, ROWS)
    np.testing.assert_allclose(gates[:, FIRST : FIRST + ROWS], expected[0], atol=10 * tolerance)
    np.testing.assert_allclose(gates[:, SECOND : SECOND + later], expected[1][:, :later], atol=10 * tolerance)
    np.testing.assert_array_equal(gates[:, 0], untouched)


@every_cell
def test_what_is_not_a_number_stays_none(cell: Cell) -> None:
    gates = np.zeros((1, 2, cell.gates * 2), np.float32)
    gates[0, 0, 0] = np.nan
    state, saved, gated = (np.zeros((1, 2, 2), np.float32) for _ in range(3))
    cell.forward(gates, state, saved, gated, 0, -1, 1)
    assert np.isnan(gated[0, 0, 0])
    assert np.isfinite(gated[0, 0, 1])
    by_state = np.zeros((1, 1, 2), np.float32)
    cell.backward(gates, state, saved, np.ones((1, 1, 2), np.float32), by_state, 0, -1, 1)
    assert np.isnan(gates[0, 0, 0])


def test_the_cell_of_a_copied_model_is_the_same_one() -> None:
    model = KeyboardLM(9, 4, 6, tied=True)
    assert copy.deepcopy(model).cell is model.cell
    assert "cifg" in CELLS
