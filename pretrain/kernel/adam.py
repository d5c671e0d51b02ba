"""Adam (Kingma & Ba 2015) by torch's fused kernel.

``torch.optim.Adam`` does the same, but to make one imports torch's compiler: seconds of every launch.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.optim.adam import adam

_MEMORY = (0.9, 0.999)
_LEAST_DEVIATION = 1e-8


class Adam:
    """Both moments of each parameter's gradient; saved as ``torch.optim.Adam`` saves them."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._parameters = list(parameters)
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._steps = [torch.zeros((), device=parameter.device) for parameter in self._parameters]

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Move every parameter by its ``.grad``; each must have one."""
        adam(
            self._parameters,
            [parameter.grad for parameter in self._parameters if parameter.grad is not None],
            self._means,
            self._squares,
            [],
            self._steps,
            fused=True,
            amsgrad=False,
            beta1=_MEMORY[0],
            beta2=_MEMORY[1],
            lr=learning_rate,
            weight_decay=0.0,
            eps=_LEAST_DEVIATION,
            maximize=False,
        )

    def state_dict(self) -> dict[str, dict[int, dict[str, Tensor]]]:
        """What ``load`` puts back."""
        moments = enumerate(zip(self._steps, self._means, self._squares, strict=True))
        return {
            "state": {
                number: {"step": t, "exp_avg": mean, "exp_avg_sq": square} for number, (t, mean, square) in moments
            }
        }

    @torch.no_grad()
    def load(self, state: Mapping[str, Mapping[int, Mapping[str, Tensor]]]) -> None:
        """Go on from a ``state_dict`` of this or of ``torch.optim.Adam``, of the same parameters."""
        for number, saved in state["state"].items():
            self._steps[number].copy_(saved["step"])
            self._means[number].copy_(saved["exp_avg"])
            self._squares[number].copy_(saved["exp_avg_sq"])
