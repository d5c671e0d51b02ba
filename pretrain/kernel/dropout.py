"""Dropout, which keeps a network from memorising a small corpus (Srivastava et al. 2014).

Only between recurrence and output layer, as Zaremba et al. 2014 (section 3) do: what the network remembers stays whole.

Shape legend: P positions of a batch that are not padding, E embedding.
"""

import numpy as np
import torch
from torch import Tensor

# Up to so many passes over a text the network learns no sentence by heart, and leaving outputs out costs it accuracy.
_PASSES = 6
_DROPPED = 0.3


def dropped_share(steps: int, batch_sentences: int, sentences: int) -> float:
    """Share of the outputs to leave out in a training of so many steps over so many sentences."""
    return _DROPPED if steps * batch_sentences > _PASSES * sentences else 0.0


def kept_outputs(positions: int, width: int, dropped: float, generator: np.random.Generator) -> Tensor | None:
    """Factors ``[P, E]`` float32 of the outputs: 0, or what keeps their mean; None: nothing is left out."""
    if not dropped:
        return None
    kept_PE = generator.random((positions, width), dtype=np.float32) >= dropped
    return torch.from_numpy(kept_PE.astype(np.float32) / np.float32(1 - dropped))
