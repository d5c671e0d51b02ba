"""SGD on the output layers of a chunk of devices, in place: device by device on a CPU, side by side on a GPU.

A word of probability p costs ``(1 - q) (1 - r^q) / q`` (generalised cross entropy, Zhang & Sabuncu 2018) with r in
proportion to ``p^(1 / (1 - q))`` among the words, so that it is least where p is the truth, as the cross entropy is.
Its gradient by logit is that of the cross entropy of r, times ``r^q``: words beyond hope do not fill the clip norm.

Shape legend: C devices still training, or a block of them, N positions (step by step), L labelled positions of one
device, E embedding, V columns that the loss runs over: words, or for q = 0 the vocabulary.
"""

import numpy as np
import torch
from torch import Tensor

from federated.config.training import LocalTrainingConfig
from federated.local_training.kernel.layout import Batch
from pretrain.cells.functions import softmax_loss
from pretrain.kernel.weights import Weights
from pretrain.kernel.workspace import Space
from pretrain.text.vocabulary import UNK

LOGITS_BYTES = 1 << 28


def one_at_a_time(
    weights: Weights, batch: Batch, local: LocalTrainingConfig, space: Space, outs_CNE: Tensor, d_outs_CNE: Tensor
) -> None:
    """Train the output layer device by device; ``d_outs_CNE`` becomes the loss's gradient by recurrent output.

    For a CPU, and only over labelled positions: the logits stay in cache, and nothing is computed for padding.
    """
    first, sharper = _columns(local.loss)
    slope_V = space("slope", weights.bias.shape[-1] - first)
    for device, count in enumerate(np.count_nonzero(batch.targets_CN, axis=1).tolist()):
        outputs_VE, bias_V = weights.outputs[device][first:], weights.bias[device][first:]
        outs_NE, d_outs_NE = outs_CNE[device], d_outs_CNE[device]
        targets_N = batch.targets_CN[device]
        if count < len(targets_N):
            d_outs_NE.zero_()
        if not count:
            continue
        labelled = None
        if count < len(targets_N):
            labelled = torch.from_numpy(np.flatnonzero(targets_N))
            targets_N = targets_N[targets_N != 0]
            outs_NE = torch.index_select(outs_NE, 0, labelled, out=space("labelled", count, outs_NE.shape[1]))
        logits_LV = space("logits", count, len(outputs_VE))
        logits_LV.addmm_(outs_NE, outputs_VE.T, beta=0, alpha=sharper)
        rate = local.learning_rate / count
        offset_V = (bias_V * sharper).numpy()
        softmax_loss(logits_LV.numpy(), offset_V, offset_V, targets_N - first, slope_V.zero_().numpy(), local.loss)
        bias_V.sub_(slope_V, alpha=rate)
        if labelled is None:
            d_outs_NE.addmm_(logits_LV, outputs_VE, beta=0, alpha=1 / count)
        else:
            d_labelled_LE = space("d_labelled", *outs_NE.shape)
            d_labelled_LE.addmm_(logits_LV, outputs_VE, beta=0, alpha=1 / count)
            d_outs_NE.index_copy_(0, labelled, d_labelled_LE)
        outputs_VE.addmm_(logits_LV.T, outs_NE, alpha=-rate)


def side_by_side(
    weights: Weights,
    targets_CN: Tensor,
    learning_rate: float,
    loss: float,
    space: Space,
    outs_CNE: Tensor,
    d_outs_CNE: Tensor,
) -> None:
    """Train the output layer of many devices in one product each, positions without a target at weight exactly zero.

    Devices go in blocks whose logits take at most ``LOGITS_BYTES``: 64 devices of 160 positions and 20,000 words would
    take 820 MB at once.
    """
    first, sharper = _columns(loss)
    devices, positions = targets_CN.shape
    size = positions * weights.outputs.shape[1] * space.dtype.itemsize
    block = min(devices, max(1, LOGITS_BYTES // size))
    for begin in range(0, devices, block):
        of = slice(begin, min(begin + block, devices))
        outputs_CVE, bias_CV, part_CN1 = weights.outputs[of, first:], weights.bias[of, first:], targets_CN[of, :, None]
        labelled_CN1, column_CN1 = (part_CN1 != 0).to(space.dtype), (part_CN1 - first).clamp(min=0)
        share_CN1 = labelled_CN1 / labelled_CN1.sum(1, keepdim=True).clamp(min=1)
        logits_CNV = space("logits", len(part_CN1), positions, outputs_CVE.shape[1])
        logits_CNV.baddbmm_(outs_CNE[of], outputs_CVE.mT, beta=0, alpha=sharper)
        logits_CNV.add_(bias_CV[:, None], alpha=sharper)
        torch.softmax(logits_CNV, dim=-1, out=logits_CNV)
        share_CN1 *= logits_CNV.gather(2, column_CN1) ** loss
        logits_CNV.scatter_add_(2, column_CN1, -torch.ones_like(labelled_CN1))
        logits_CNV *= share_CN1
        d_outs_CNE[of].baddbmm_(logits_CNV, outputs_CVE, beta=0)
        bias_CV.sub_(logits_CNV.sum(1), alpha=learning_rate)
        outputs_CVE.baddbmm_(logits_CNV.mT, outs_CNE[of], alpha=-learning_rate)


def _columns(loss: float) -> tuple[int, float]:
    """The first word that the loss runs over, and the factor of its logits."""
    return UNK + 1 if loss else 0, 1 / (1 - loss)
