"""Random numbers by name: a pure function of a seed and counters, for common random numbers.

Two arms get the same number for the same key of the same word of the same device, in any order or
batch. The mixing steps are SplitMix64's (Steele et al. 2014), one for
each counter. For simulated typists only: nothing here protects anybody.
"""

import hashlib

import numpy as np
from scipy.special import ndtri

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

Counter = np.ndarray | int


def uniform(seed: int, channel: str, *counters: Counter) -> np.ndarray:
    """Numbers in (0, 1) of the counters' common shape.

    Args:
      channel: purpose of the numbers; channels are independent.
      counters: non-negative integers or arrays that broadcast, such as device, sentence, word, key.
    """
    name = hashlib.blake2b(f"{seed}\0{channel}".encode(), digest_size=8).digest()
    state = np.array([int.from_bytes(name, "big")], dtype=np.uint64)
    for counter in counters:
        state = _mixed(state + _STEP * (np.atleast_1d(np.asarray(counter)).astype(np.uint64) + np.uint64(1)))
    # 52 bits and a half: never 0, never 1.
    return ((state >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**52


def normal(seed: int, channel: str, *counters: Counter) -> np.ndarray:
    """Standard normal numbers, one for each ``uniform`` of the same arguments."""
    return ndtri(uniform(seed, channel, *counters))


def _mixed(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
