"""What the kernel does between two matrix products, in torch: for a GPU, and to test ``fused`` against.

Shape legend: C devices of a chunk, N positions (step by step), H hidden, G = 3H gates (forget,
candidate, output), V vocabulary, B rows.
"""

import torch
from torch import Tensor


def cell_forward(
    gates_CNG: Tensor, cell_CNH: Tensor, tanh_CNH: Tensor, mixed_CNH: Tensor, start: int, before: int, rows: int
) -> None:
    """One time step from the gates' inputs, which become their outputs in place."""
    span = slice(start, start + rows)
    forget, candidate, output = gates_CNG[:, span].chunk(3, dim=-1)
    forget.sigmoid_()
    candidate.tanh_()
    output.sigmoid_()
    if before < 0:
        cell_CNH[:, span] = candidate - forget * candidate
    else:
        cell_CNH[:, span] = torch.lerp(candidate, cell_CNH[:, before : before + rows], forget)
    tanh_CNH[:, span] = torch.tanh(cell_CNH[:, span])
    mixed_CNH[:, span] = output * tanh_CNH[:, span]


def cell_backward(
    gates_CNG: Tensor,
    cell_CNH: Tensor,
    tanh_CNH: Tensor,
    d_mixed_CBH: Tensor,
    d_cell_CBH: Tensor,
    start: int,
    before: int,
    rows: int,
) -> None:
    """One time step backward: the gates' outputs become gradients by the gates' inputs in place."""
    span = slice(start, start + rows)
    forget, candidate, output = gates_CNG[:, span].chunk(3, dim=-1)
    tanh, d_mixed, later = tanh_CNH[:, span], d_mixed_CBH[:, :rows], d_cell_CBH[:, :rows]
    earlier = torch.zeros_like(tanh) if before < 0 else cell_CNH[:, before : before + rows]
    d_cell = d_mixed * output * (1 - tanh * tanh) + later
    later.copy_(d_cell * forget)
    forget.copy_(d_cell * (earlier - candidate) * forget * (1 - forget))
    candidate.copy_((d_cell - later) * (1 - candidate * candidate))
    output.copy_(d_mixed * tanh * output * (1 - output))
