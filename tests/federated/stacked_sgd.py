"""Many devices' local SGD on any module: one copy of the parameters per device, stacked.

Shape legend: C devices, R rows, B rows of a batch, T steps.

Gradients of every device are stored whole, which large models pay for: a second opinion on the training kernel.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from federated.config.training import LocalTrainingConfig
from federated.local_training.rows import DeviceRows
from pretrain.vocabulary import PAD

Loss = Callable[[nn.Module, dict[str, Tensor], Tensor, Tensor], Tensor]


def next_word(model: nn.Module, parameters: dict[str, Tensor], inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
    """Mean cross-entropy over targets that are not ``PAD``; 0 if there are none."""
    logits_BTV = functional_call(model, parameters, (inputs_BT,))
    logits_BTV = logits_BTV[0] if isinstance(logits_BTV, tuple) else logits_BTV
    total = functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=PAD, reduction="sum")
    return total / (targets_BT != PAD).sum().clamp(min=1)


def train_stacked(
    model: nn.Module, devices: Sequence[DeviceRows], local: LocalTrainingConfig, loss: Loss = next_word
) -> dict[str, Tensor]:
    """Local SGD of every device from the model's parameters.

    A device that is done, or has no row in a step, has gradient zero and stays as it is, exactly.

    Args:
      model: called with ids ``[B, T]``; returns logits, or a tuple that begins with them.
      loss: of (model, its parameters, inputs, targets), for one device.

    Returns:
      Final minus start parameters by name, each ``[C, ...]``.
    """
    start = {name: parameter.detach() for name, parameter in model.named_parameters()}
    place = next(iter(start.values())).device
    stacked = {name: own.expand(len(devices), *own.shape).clone() for name, own in start.items()}
    slope = vmap(grad(lambda own, inputs_BT, targets_BT: loss(model, own, inputs_BT, targets_BT)))
    steps = [device.steps(local.batch_sentences, local.epochs) for device in devices]
    width = max((device.targets_RT.shape[1] for device in devices), default=0)
    for step in range(max(steps, default=0)):
        inputs_CBT = np.full((len(devices), local.batch_sentences, width), PAD, dtype=np.int64)
        targets_CBT = inputs_CBT.copy()
        for number, (device, last) in enumerate(zip(devices, steps, strict=True)):
            if step < last:
                rows = device.batch(step, local.batch_sentences)
                inputs_BT, targets_BT = device.inputs_RT[rows], device.targets_RT[rows]
                inputs_CBT[number, : len(inputs_BT), : inputs_BT.shape[1]] = inputs_BT
                targets_CBT[number, : len(targets_BT), : targets_BT.shape[1]] = targets_BT
        slopes = slope(stacked, torch.from_numpy(inputs_CBT).to(place), torch.from_numpy(targets_CBT).to(place))
        for name, own in stacked.items():
            own.sub_(slopes[name], alpha=local.learning_rate)
    return {name: stacked[name] - own for name, own in start.items()}
