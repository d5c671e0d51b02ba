"""Loss and gradient of one batch of sentences on a CPU, by hand: no padding, no graph, the softmax in place.

Shape legend: P positions, step by step (see ``batches.PackedRows``); L positions of one block, K columns of the output
layer, E embedding, V vocabulary.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from pretrain.cells.functions import softmax_loss
from pretrain.kernel.columns import Columns
from pretrain.kernel.step import add_gradient
from pretrain.kernel.weights import Weights
from pretrain.kernel.workspace import thread_space
from pretrain.text.batches import PackedRows

# Logits of a block stay in the second cache.
_BLOCK_LOGITS = 1 << 19


@torch.no_grad()
def loss_and_gradient(
    weights: Weights,
    batch: PackedRows,
    columns: Columns | None,
    gradients: Weights,
    weight: float,
    kept_PE: Tensor | None = None,
) -> float:
    """Sum of the batch's cross entropies; ``weight`` times its gradient is added to ``gradients``.

    Args:
      weights: of one model, with a leading axis of 1 (``weights.pack``), as ``gradients`` are.
      columns: of the softmax; None: every word of the vocabulary.
      kept_PE: factors of what the output layer sees (``train.kept_outputs``); None: all as it is.
    """
    output_layer = partial(_output_layer, weights, batch.targets_P, columns, gradients, weight, kept_PE)
    rows_1P = torch.from_numpy(batch.inputs_P)[None]
    space = thread_space(weights.gates.device, weights.gates.dtype)
    return add_gradient(gradients, 1.0, weights, rows_1P, batch.alive_T.tolist(), output_layer, space)


def _output_layer(
    weights: Weights,
    targets_P: np.ndarray,
    columns: Columns | None,
    gradients: Weights,
    weight: float,
    kept_PE: Tensor | None,
    outs_1PE: Tensor,
    d_outs_1PE: Tensor,
) -> float:
    """The loss; fills its gradient by recurrent output, and adds the output layer's gradients."""
    (outs_PE,), (d_outs_PE,) = outs_1PE, d_outs_1PE
    if kept_PE is not None:
        outs_PE = outs_PE * kept_PE
    output_KE, exact_K, places_P = weights.outputs[0], weights.bias[0], targets_P
    offset_K = exact_K
    if columns is not None:
        words_K = torch.from_numpy(columns.words_K)
        output_KE, exact_K, places_P = output_KE[words_K], exact_K[words_K], columns.column_V[targets_P]
        offset_K = exact_K + torch.from_numpy(columns.correction_K)
    d_output_KE, slope_K = torch.zeros_like(output_KE), torch.zeros_like(exact_K)
    block = max(16, _BLOCK_LOGITS // len(output_KE))
    loss, transposed_EK = 0.0, output_KE.T.contiguous()
    for first in range(0, len(outs_PE), block):
        span = slice(first, first + block)
        logits_LK = torch.mm(outs_PE[span], transposed_EK)
        biases = offset_K.numpy(), exact_K.numpy()
        loss += softmax_loss(logits_LK.numpy(), *biases, places_P[span], slope_K.numpy(), 0.0)
        torch.mm(logits_LK, output_KE, out=d_outs_PE[span])
        d_output_KE.addmm_(logits_LK.T, outs_PE[span])
    d_outs_PE *= weight
    if kept_PE is not None:
        d_outs_PE *= kept_PE
    into_VE, bias_V = gradients.outputs[0], gradients.bias[0]
    if columns is None:
        into_VE.add_(d_output_KE, alpha=weight)
        bias_V.add_(slope_K, alpha=weight)
    else:
        into_VE.index_add_(0, words_K, d_output_KE, alpha=weight)
        bias_V.index_add_(0, words_K, slope_K, alpha=weight)
    return loss
