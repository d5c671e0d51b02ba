"""Shared parts of both peers: the workload as a file, the model in plain torch, and alternating rounds.

Runs in a peer's environment, which does not hold this project. ``wait_for_turn`` makes a process do one
round each time it is told to, so that peers run in turns on one machine.
"""

import json
import sys

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


class CifgModel(nn.Module):
    """The CIFG-LSTM with projection of ``pretrain.model.keyboard_lm``, weights from the file."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(value.copy())))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits by row, step and word."""
        cell = self.projection.new_zeros(len(tokens), self.projection.shape[0])
        out = self.projection.new_zeros(len(tokens), self.projection.shape[1])
        gates_by_step = nn.functional.embedding(tokens, self.embedding) @ self.gates_x + self.gates_b
        outs = []
        for gates in gates_by_step.unbind(1):
            forget, candidate, output = (gates + out @ self.gates_r).chunk(3, dim=-1)
            forget = torch.sigmoid(forget)
            cell = forget * cell + (1 - forget) * torch.tanh(candidate)
            out = (torch.sigmoid(output) * torch.tanh(cell)) @ self.projection
            outs.append(out)
        return torch.stack(outs, dim=1) @ self.output.T + self.output_bias

    def loss_of(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy over targets that are not padding."""
        logits = self(inputs)
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0)


class Workload:
    """A file written by ``simulation.py``: rows of every device, start weights, settings."""

    def __init__(self, path: str) -> None:
        found = np.load(path)
        self.settings = json.loads(str(found["settings"]))
        self.weights = {name[2:]: found[name] for name in found.files if name.startswith("w.")}
        count = self.settings["devices"]
        self.devices = [
            tuple(torch.from_numpy(found[f"{kind}.{number}"]).long() for kind in ("inputs", "targets"))
            for number in range(count)
        ]

    def model(self) -> CifgModel:
        """At the start of a round."""
        return CifgModel(self.weights)


def wait_for_turn(seconds: float | None) -> bool:
    """Report a round's CPU seconds (None before the first); False when there is to be no other."""
    print(json.dumps({"seconds": seconds}), file=sys.__stdout__, flush=True)
    return sys.stdin.readline().strip() == "go"
