"""Limit torch to one thread while small matrix products run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Each product on one thread, put back afterwards.

    The products here are too small to split (two threads on a busy machine ran eight times slower),
    and how they are split changes low bits.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
