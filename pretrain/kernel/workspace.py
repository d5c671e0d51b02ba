"""Memory of the training kernel, used again from step to step and from chunk to chunk.

Fresh memory costs more here than the arithmetic in it: the system clears every page first. A graph of a
GPU finds its numbers by address.
"""

import math
from dataclasses import dataclass, field
from threading import local as local_storage

import torch
from torch import Tensor


@dataclass(frozen=True)
class Space:
    """Named tensors of one thread, used again from step to step.

    Attributes:
      fuse: compiled passes between the products (on a CPU), or torch's own.
    """

    place: torch.device
    dtype: torch.dtype
    fuse: bool
    _flat: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, *shape: int) -> Tensor:
        """A tensor with whatever the memory of this name holds; the last one of the name is gone."""
        size = math.prod(shape)
        if name not in self._flat or self._flat[name].numel() < size:
            self._flat[name] = torch.empty(size, dtype=self.dtype, device=self.place)
        return self._flat[name][:size].view(shape)


_spaces = local_storage()


def thread_space(place: torch.device, dtype: torch.dtype) -> Space:
    """The space of this thread for compiled passes."""
    spaces = _spaces.__dict__
    key = f"{place} {dtype}"
    if key not in spaces:
        spaces[key] = Space(place, dtype, fuse=True)
    return spaces[key]
