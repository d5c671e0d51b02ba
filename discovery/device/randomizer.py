"""Subset Selection: the local randomiser of one message.

Wang et al. 2016 and Ye and Barg 2017; algorithm 1 of Sun & Sun 2024. Symbols: d domain size,
k subset size, p probability that the true item is in the subset, q that another one is.
"""

import math
from dataclasses import dataclass

import numpy as np

from discovery.device.keystream import Keystream

# Below it, p - q is lost in the rounding of p.
_LEAST_EPSILON0 = 1e-6


@dataclass(frozen=True)
class SubsetSelection:
    """One randomiser: send k of d items, the true one among them with probability p.

    Guarantee: ``epsilon0``-LDP for every k, because
    ``P[S | v in S] / P[S | v not in S] = (p / (1 - p)) (d - k) / k = e^epsilon0``; rounding only
    lowers p. The unit is the item of one message; a device that sends C messages has C times that.

    Attributes:
      domain: d, the None item included.
      size: k, items in a message.
      inclusion: p.
      background: q, probability that an item other than the true one is in the message.
    """

    epsilon0: float
    domain: int
    size: int
    inclusion: float
    background: float

    @property
    def message_bytes(self) -> int:
        """Length of a message as it travels: k item numbers of ``ceil(log2 d)`` bits each, and nothing else."""
        return (self.size * (self.domain - 1).bit_length() + 7) // 8


def subset_selection(epsilon0: float, domain: int) -> SubsetSelection:
    """The randomiser whose k, of the two integers next to ``d / (e^eps + 1)``, has the smaller variance.

    Raises:
      ValueError: fewer than two items, or epsilon0 not a finite number of at least 1e-6.
    """
    if domain < 2:
        raise ValueError(f"domain: {domain} items leave nothing to hide among; at least 2 are needed")
    if not (epsilon0 >= _LEAST_EPSILON0 and math.isfinite(epsilon0)):
        raise ValueError(f"epsilon0: got {epsilon0}, expected a finite number of at least {_LEAST_EPSILON0:g}")
    ideal = domain * math.exp(-epsilon0) / (1 + math.exp(-epsilon0))
    sizes = {min(max(size, 1), domain - 1) for size in (math.floor(ideal), math.ceil(ideal))}
    return min((of_size(epsilon0, domain, size) for size in sorted(sizes)), key=noise_variance)


def of_size(epsilon0: float, domain: int, size: int) -> SubsetSelection:
    """The randomiser with a given k. ``e^-eps`` keeps p exact where ``e^eps`` would overflow.

    p is rounded down to a multiple of 2^-53, below any error of its computation: ``uniform`` is then
    below it with exactly that probability, and a large epsilon0 cannot make it 1.
    """
    inclusion = size / (size + (domain - size) * math.exp(-epsilon0))
    inclusion = math.floor(inclusion * (1 - 2.0**-50) * 2.0**53) / 2.0**53
    background = (inclusion * (size - 1) + (1 - inclusion) * size) / (domain - 1)
    return SubsetSelection(epsilon0, domain, size, inclusion, background)


def noise_variance(randomizer: SubsetSelection) -> float:
    """Variance that one message adds to the estimate of an item without holders."""
    p, q = randomizer.inclusion, randomizer.background
    return q * (1 - q) / (p - q) ** 2


def randomise(randomizer: SubsetSelection, value: int, bits: Keystream) -> np.ndarray:
    """One message: k distinct item numbers, int64 ``[k]``, ascending: another order could reveal the true item.

    Raises:
      ValueError: the value is not an item of the domain.
    """
    if not 0 <= value < randomizer.domain:
        raise ValueError(f"value: {value} is not one of the domain's {randomizer.domain} items")
    included = bits.uniform() < randomizer.inclusion
    others = bits.subset(randomizer.domain - 1, randomizer.size - included)
    others += others >= value  # the items other than the true one, numbered without a gap
    return np.sort(np.append(others, value) if included else others)


def estimate(randomizer: SubsetSelection, votes: np.ndarray, messages: int) -> np.ndarray:
    """Unbiased estimate of the number of messages that hold each item: ``(V - n q) / (p - q)``."""
    p, q = randomizer.inclusion, randomizer.background
    return (votes - messages * q) / (p - q)


def estimate_deviation(randomizer: SubsetSelection, count: np.ndarray, messages: int) -> np.ndarray:
    """Standard deviation of ``estimate`` for an item that ``count`` messages hold."""
    p, q = randomizer.inclusion, randomizer.background
    held = np.clip(count, 0, messages)
    return np.sqrt(held * p * (1 - p) + (messages - held) * q * (1 - q)) / (p - q)
