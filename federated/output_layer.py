"""Training the output layer of a chunk of devices: the loss, its gradient, and the weights' step.

Shape legend: C devices still training, N positions (step by step), L labelled positions of one
device, E embedding, V vocabulary.

Two ways to the same numbers: compiled passes for a CPU, and torch's own for a GPU.
"""

import numpy as np
import torch
from torch import Tensor

from federated.local_training.kernel import compiled as fused
from federated.local_training.kernel.layout import Batch
from federated.local_training.kernel.precision import add_product, factor
from federated.local_training.kernel.weights import Weights
from federated.local_training.kernel.workspace import Space


def one_at_a_time(
    weights: Weights, batch: Batch, learning_rate: float, space: Space, outs_CNE: Tensor, d_outs_CNE: Tensor
) -> None:
    """Train the output layer; ``d_outs_CNE`` becomes the loss's gradient by recurrent output.

    One device at a time, and only over its labelled positions: the logits stay in cache, and
    nothing is computed for padding.
    """
    slope_V = space("slope", weights.bias.shape[-1]).numpy()
    for device, count in enumerate(batch.labelled_C.tolist()):
        outputs_VE, own_NE, d_own_NE = weights.outputs[device], outs_CNE[device], d_outs_CNE[device]
        targets_N = batch.targets_CN[device]
        if count < len(targets_N):
            d_own_NE.zero_()
        if not count:
            continue
        labelled = None
        if count < len(targets_N):
            labelled = torch.from_numpy(np.flatnonzero(targets_N))
            targets_N = targets_N[targets_N != 0]
            own_NE = torch.index_select(own_NE, 0, labelled, out=space("labelled", count, own_NE.shape[1]))
        logits_LV = space("logits", count, len(outputs_VE))
        add_product(logits_LV, own_NE, outputs_VE.T, space.precision, beta=0)
        rate = learning_rate / count
        bias_V = weights.bias[device].numpy()
        fused.train_bias(logits_LV.numpy(), bias_V, targets_N, slope_V, bias_V.dtype.type(rate))
        if labelled is None:
            add_product(d_own_NE, logits_LV, outputs_VE, space.precision, beta=0, alpha=1 / count)
        else:
            found = space("d_labelled", *own_NE.shape)
            add_product(found, logits_LV, outputs_VE, space.precision, beta=0, alpha=1 / count)
            d_own_NE.index_copy_(0, labelled, found)
        add_product(outputs_VE, logits_LV.T, own_NE, space.precision, alpha=-rate)


def side_by_side(
    weights: Weights,
    targets_CN: Tensor,
    learning_rate: float,
    space: Space,
    outs_CNE: Tensor,
    d_outs_CNE: Tensor,
) -> None:
    """The same for all devices in one product each, positions without a target at weight exactly zero."""
    devices, positions = targets_CN.shape
    outputs_CVE, bias_CV = weights.outputs[:devices], weights.bias[:devices]
    labelled_CN1 = (targets_CN != 0).to(space.dtype)[..., None]
    share_CN1 = labelled_CN1 / labelled_CN1.sum(1, keepdim=True).clamp(min=1)
    rounded_CVE = factor(outputs_CVE, space.precision)
    logits_CNV = space("logits", devices, positions, outputs_CVE.shape[1])
    add_product(logits_CNV, outs_CNE, rounded_CVE.mT, space.precision, beta=0)
    logits_CNV += bias_CV[:, None]
    torch.softmax(logits_CNV, dim=-1, out=logits_CNV)
    logits_CNV.scatter_add_(2, targets_CN[..., None], -torch.ones_like(labelled_CN1))
    logits_CNV *= share_CN1
    add_product(d_outs_CNE, logits_CNV, rounded_CVE, space.precision, beta=0)
    bias_CV.sub_(logits_CNV.sum(1), alpha=learning_rate)
    add_product(outputs_CVE, logits_CNV.mT, outs_CNE, space.precision, alpha=-learning_rate)
