"""Loss and gradient of one batch of sentences on a CPU, by hand: no padding, no graph, the softmax in place.

Shape legend: B rows of a batch, longest first; P positions, step by step (see ``batches.Packed``); L positions of one
block, K columns of the output layer, E embedding, H hidden, G = 3H gates (forget, candidate, output), V vocabulary.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from pretrain.batches import Packed
from pretrain.kernel.columns import Columns
from pretrain.kernel.compiled import cell_backward, cell_forward, softmax_loss
from pretrain.model import KeyboardLM

# Logits of a block stay in the second cache.
_BLOCK_LOGITS = 1 << 19


@torch.no_grad()
def loss_and_gradient(
    model: KeyboardLM,
    batch: Packed,
    columns: Columns | None,
    gradients: Mapping[str, Tensor],
    weight: float,
    kept_PE: Tensor | None = None,
) -> float:
    """Sum of the batch's cross entropies; ``weight`` times its gradient is added to ``gradients``.

    Args:
      columns: of the softmax; None: every word of the vocabulary.
      gradients: by name of the parameter, float32, of its shape.
      kept_PE: factors of what the output layer sees (``dropout.kept_outputs``); None: all as it is.
    """
    alive = batch.alive_T.tolist()
    starts = (np.cumsum(batch.alive_T) - batch.alive_T).tolist()
    inputs_P = torch.from_numpy(batch.inputs_P)
    positions, hidden = len(inputs_P), model.hidden_dim

    words_PE = model.embedding[inputs_P]
    gates_PG = torch.addmm(model.gates_b, words_PE, model.gates_x)
    outs_PE = torch.empty_like(words_PE)
    cell_PH, tanh_PH, mixed_PH = (torch.empty(positions, hidden) for _ in range(3))
    gates_1PG, cell_1PH, tanh_1PH, mixed_1PH = (part.numpy()[None] for part in (gates_PG, cell_PH, tanh_PH, mixed_PH))
    for step, (first, rows) in enumerate(zip(starts, alive, strict=True)):
        span = slice(first, first + rows)
        before = starts[step - 1] if step else -1
        if step:
            gates_PG[span].addmm_(outs_PE[before : before + rows], model.gates_r)
        cell_forward(gates_1PG, cell_1PH, tanh_1PH, mixed_1PH, first, before, rows)
        torch.mm(mixed_PH[span], model.projection, out=outs_PE[span])

    seen_PE = outs_PE if kept_PE is None else outs_PE * kept_PE
    d_outs_PE, loss = _output_layer(model, seen_PE, batch.targets_P, columns, gradients, weight)
    if kept_PE is not None:
        d_outs_PE *= kept_PE

    recurrent_GE, projection_EH = model.gates_r.T.contiguous(), model.projection.T.contiguous()
    d_cell_BH = np.zeros((1, alive[0], hidden), dtype=np.float32)
    earlier_PE = torch.zeros_like(outs_PE)
    for step in reversed(range(len(alive))):
        first, rows = starts[step], alive[step]
        span = slice(first, first + rows)
        before = starts[step - 1] if step else -1
        d_mixed_BH = torch.mm(d_outs_PE[span], projection_EH)
        cell_backward(gates_1PG, cell_1PH, tanh_1PH, d_mixed_BH.numpy()[None], d_cell_BH, first, before, rows)
        if step:
            # Rows that ended before get nothing back.
            d_outs_PE[before : before + rows].addmm_(gates_PG[span], recurrent_GE)
            earlier_PE[span] = outs_PE[before : before + rows]
    gradients["gates_x"].addmm_(words_PE.T, gates_PG)
    gradients["gates_r"].addmm_(earlier_PE.T, gates_PG)
    gradients["gates_b"].add_(gates_PG.sum(0))
    gradients["projection"].addmm_(mixed_PH.T, d_outs_PE)
    gradients["embedding"].index_add_(0, inputs_P, torch.mm(gates_PG, model.gates_x.T))
    return loss


def _output_layer(
    model: KeyboardLM,
    outs_PE: Tensor,
    targets_P: np.ndarray,
    columns: Columns | None,
    gradients: Mapping[str, Tensor],
    weight: float,
) -> tuple[Tensor, float]:
    """Gradient ``[P, E]`` by recurrent output, and the loss; adds the output layer's gradients."""
    output_KE, exact_K, places_P = model.output_VE.detach(), model.output_bias.detach(), targets_P
    offset_K = exact_K
    if columns is not None:
        words_K = torch.from_numpy(columns.words_K)
        output_KE, exact_K, places_P = output_KE[words_K], exact_K[words_K], columns.column_V[targets_P]
        offset_K = exact_K + torch.from_numpy(columns.correction_K)
    d_output_KE, slope_K = torch.zeros_like(output_KE), torch.zeros_like(exact_K)
    d_outs_PE = torch.empty_like(outs_PE)
    block = max(16, _BLOCK_LOGITS // len(output_KE))
    loss, transposed_EK = 0.0, output_KE.T.contiguous()
    for first in range(0, len(outs_PE), block):
        span = slice(first, first + block)
        logits_LK = torch.mm(outs_PE[span], transposed_EK)
        loss += softmax_loss(logits_LK.numpy(), offset_K.numpy(), exact_K.numpy(), places_P[span], slope_K.numpy())
        torch.mm(logits_LK, output_KE, out=d_outs_PE[span])
        d_output_KE.addmm_(logits_LK.T, outs_PE[span])
    d_outs_PE *= weight
    into, bias = gradients["embedding" if model.tied else "output"], gradients["output_bias"]
    if columns is None:
        into.add_(d_output_KE, alpha=weight)
        bias.add_(slope_K, alpha=weight)
    else:
        into.index_add_(0, words_K, d_output_KE, alpha=weight)
        bias.index_add_(0, words_K, slope_K, alpha=weight)
    return d_outs_PE, loss
