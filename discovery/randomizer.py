"""Subset Selection: the local randomiser of one message.

Wang et al. 2016 and Ye and Barg 2017; algorithm 1 of Sun & Sun 2024. Symbols: d domain size,
k subset size, p probability that the true item is in the subset, q that another one is.
"""

import hashlib
import hmac
import math
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

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
    """Variance that one message adds to the estimate of an item nobody holds."""
    p, q = randomizer.inclusion, randomizer.background
    return q * (1 - q) / (p - q) ** 2


def randomise(randomizer: SubsetSelection, value: int, bits: "Keystream") -> np.ndarray:
    """One message: k distinct item numbers, int64 ``[k]``, ascending: any other order could tell which is true.

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
    """Unbiased estimate of how many messages held each item: ``(V - n q) / (p - q)``."""
    p, q = randomizer.inclusion, randomizer.background
    return (votes - messages * q) / (p - q)


def estimate_deviation(randomizer: SubsetSelection, count: np.ndarray, messages: int) -> np.ndarray:
    """Standard deviation of ``estimate`` for an item that ``count`` messages hold."""
    p, q = randomizer.inclusion, randomizer.background
    held = np.clip(count, 0, messages)
    return np.sqrt(held * p * (1 - p) + (messages - held) * q * (1 - q)) / (p - q)


def significant_votes(randomizer: SubsetSelection, messages: int, z: float) -> int:
    """Least votes that noise alone reaches with at most the upper tail probability of z deviations.

    By the exact binomial tail: with few messages ``n q`` is far below 1 and ``n q + z sqrt(n q)``
    would let two stray votes pass for a word.
    """
    tail = stats.norm.sf(z)
    votes = math.floor(messages * randomizer.background) + 1
    while stats.binom.sf(votes - 1, messages, randomizer.background) > tail:
        votes += 1
    return votes


class Keystream:
    """Random bits of one device in one layer: AES-256-CTR under a key derived by HMAC-SHA256.

    The secret is drawn from the operating system once. Deriving from it, instead of drawing
    anew, memoises each message: a retry sends the same bits, so it is the same release.
    """

    _WORDS = 256

    def __init__(self, key: bytes, name: str) -> None:
        if len(key) != 32:
            raise ValueError(f"key: got {len(key)} bytes, expected 32 from the operating system")
        subkey = hmac.digest(key, f"tacit discovery 1|{name}".encode(), hashlib.sha256)
        self._stream = Cipher(algorithms.AES(subkey), modes.CTR(bytes(16))).encryptor()
        self._buffer = np.empty(0, dtype=np.uint64)

    def words(self, count: int) -> np.ndarray:
        """``count`` uniform 64-bit words."""
        while len(self._buffer) < count:
            fresh = self._stream.update(bytes(8 * max(self._WORDS, count)))
            self._buffer = np.concatenate([self._buffer, np.frombuffer(fresh, dtype="<u8")])
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def uniform(self) -> float:
        """A number in [0, 1) with 53 random bits."""
        return int(self.words(1)[0] >> np.uint64(11)) * 2.0**-53

    def subset(self, population: int, count: int) -> np.ndarray:
        """A uniform ``count``-subset of ``range(population)``, int64.

        Draws with replacement and keeps the first ``count`` distinct numbers; when that is most
        of the population, it draws what to leave out. Words above the greatest multiple of
        ``population`` are drawn again, since their remainders would favour small numbers.
        """
        if 2 * count > population:
            left_out = self.subset(population, population - count)
            return np.setdiff1d(np.arange(population), left_out, assume_unique=True)
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < count:
            words = self.words(count - len(drawn))
            fair = words[words <= np.uint64(2**64 - 1 - 2**64 % population)]
            more = (fair % np.uint64(population)).astype(np.int64)
            _, first = np.unique(np.concatenate([drawn, more]), return_index=True)
            drawn = np.concatenate([drawn, more])[np.sort(first)]
        return drawn

    def permutation(self, count: int) -> np.ndarray:
        """A uniform order of ``range(count)``, int64, up to the ``count^2 / 2^65`` chance of equal words."""
        return np.argsort(self.words(count), kind="stable")
