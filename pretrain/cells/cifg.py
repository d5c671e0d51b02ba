"""The CIFG-LSTM cell of Gboard's next-word models: input and forget gate are coupled, ``i = 1 - f``.

Shape legend: C models side by side, N positions (step by step), B rows of a step, H hidden, G = 3H gates (forget,
candidate, output).

Xu et al. 2023, section 1; Ramaswamy et al. 2020, section III-A.
"""

import numba
import numpy as np
import torch
from torch import Tensor

from pretrain.cells.cell import Cell
from pretrain.cells.functions import exp, tanh


def _start_bias(hidden: int) -> Tensor:
    """A forget gate that starts open lets gradients reach the first words."""
    return torch.cat([torch.ones(hidden), torch.zeros(2 * hidden)])


def _step(gates_BG: Tensor, state_BH: Tensor) -> tuple[Tensor, Tensor]:
    forget_BH, candidate_BH, output_BH = gates_BG.split(state_BH.shape[-1], dim=-1)
    forget_BH = torch.sigmoid(forget_BH)
    state_BH = forget_BH * state_BH + (1 - forget_BH) * torch.tanh(candidate_BH)
    return torch.sigmoid(output_BH) * torch.tanh(state_BH), state_BH


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _forward(
    gates_CNG: np.ndarray,
    state_CNH: np.ndarray,
    tanh_CNH: np.ndarray,
    gated_CNH: np.ndarray,
    start: int,
    before: int,
    rows: int,
) -> None:
    one = gates_CNG.dtype.type(1)
    hidden = state_CNH.shape[2]
    for device in range(len(gates_CNG)):
        for row in range(rows):
            forget_H = gates_CNG[device, start + row, :hidden]
            candidate_H = gates_CNG[device, start + row, hidden : 2 * hidden]
            output_H = gates_CNG[device, start + row, 2 * hidden :]
            state_H, tanh_H = state_CNH[device, start + row], tanh_CNH[device, start + row]
            gated_H = gated_CNH[device, start + row]
            for h in range(hidden):
                forget_H[h] = one / (one + exp(-forget_H[h]))
                candidate_H[h] = tanh(candidate_H[h])
                output_H[h] = one / (one + exp(-output_H[h]))
            if before < 0:
                for h in range(hidden):
                    state_H[h] = candidate_H[h] - forget_H[h] * candidate_H[h]
            else:
                before_H = state_CNH[device, before + row]
                for h in range(hidden):
                    state_H[h] = candidate_H[h] + forget_H[h] * (before_H[h] - candidate_H[h])
            for h in range(hidden):
                tanh_H[h] = tanh(state_H[h])
                gated_H[h] = output_H[h] * tanh_H[h]


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _backward(
    gates_CNG: np.ndarray,
    state_CNH: np.ndarray,
    tanh_CNH: np.ndarray,
    d_gated_CBH: np.ndarray,
    d_state_CBH: np.ndarray,
    start: int,
    before: int,
    rows: int,
) -> None:
    one = gates_CNG.dtype.type(1)
    zero = gates_CNG.dtype.type(0)
    hidden = state_CNH.shape[2]
    for device in range(len(gates_CNG)):
        for row in range(rows):
            forget_H = gates_CNG[device, start + row, :hidden]
            candidate_H = gates_CNG[device, start + row, hidden : 2 * hidden]
            output_H = gates_CNG[device, start + row, 2 * hidden :]
            tanh_H = tanh_CNH[device, start + row]
            before_H = state_CNH[device, max(before, 0) + row]
            d_gated_H, d_state_H = d_gated_CBH[device, row], d_state_CBH[device, row]
            earlier = zero if before < 0 else one
            for h in range(hidden):
                forget, candidate, output, squashed = forget_H[h], candidate_H[h], output_H[h], tanh_H[h]
                d_cell = d_gated_H[h] * output * (one - squashed * squashed) + d_state_H[h]
                d_before = d_cell * forget
                forget_H[h] = d_cell * (earlier * before_H[h] - candidate) * forget * (one - forget)
                candidate_H[h] = (d_cell - d_before) * (one - candidate * candidate)
                output_H[h] = d_gated_H[h] * squashed * output * (one - output)
                d_state_H[h] = d_before


CIFG = Cell(gates=3, start_bias=_start_bias, step=_step, forward=_forward, backward=_backward)
