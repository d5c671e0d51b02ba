"""A recurrent cell: four functions and a state. Embeddings, projection, softmax and training are the same for each.

Shape legend: C models side by side (devices of a chunk; 1 in pretraining), N positions (step by step), B rows of a
step, H hidden, G gates * H.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Cell:
    """All that distinguishes one cell from another.

    ``step`` is the definition: models are evaluated by it, a GPU trains by its automatic derivative, ``torch.onnx``
    exports it. ``forward`` and ``backward`` are the same on a CPU, compiled and in place; a test holds them against it.

    Attributes:
      gates: blocks of H columns in the gates' weights.
      start_bias: of the gates of a fresh model, ``[G]``, by H.
      step: the gated output ``[..., H]`` and the new state ``[..., H]``, by the gates' inputs ``[..., G]`` and the
        state before.
      forward: one time step of ``(gates_CNG, state_CNH, saved_CNH, gated_CNH, start, before, rows)``. The gates' inputs
        become what ``backward`` needs of them; ``saved`` is a place for what else it needs. ``start`` and ``before``
        are the first positions of this step and of the one before (-1: there is none, the state was zero).
      backward: the same step back, of ``(gates_CNG, state_CNH, saved_CNH, d_gated_CBH, d_state_CBH, start, before,
        rows)``. The gates become the gradient by their inputs. ``d_state`` is the gradient by this step's state from
        the steps after it, and becomes that by the state before.
    """

    gates: int
    start_bias: Callable[[int], Tensor]
    step: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    forward: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int, int, int], None]
    backward: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, int, int, int], None]

    def __deepcopy__(self, _seen: dict) -> "Cell":
        """The cell itself: a copy of a model has other weights and the same functions."""
        return self
