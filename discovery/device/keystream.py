"""Secret random bits of devices: equal in a retry, and never shared between two answers.

AES-256 in counter mode under a key derived by HMAC-SHA256; the counter block is the device's
number (8 bytes), then the block's (8 bytes). So each device has a stream of its own that can be
read by itself (``Keystream``) or for many devices in one call (``first_words``). A word has 32 bits.
"""

import hashlib
import hmac

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

# Words per block of ``first_words``: whole blocks are not copied, and compiled code sees one layout.
BLOCK_WORDS = 4
_LARGEST = 2**31


def first_words(key: bytes, name: str, devices_N: np.ndarray, count: int) -> np.ndarray:
    """The first ``count`` words of each device's ``Keystream(key, name, device)``, uint32 ``[N, count]``."""
    blocks = -(-count // BLOCK_WORDS)
    words_BW = words_at(key, name, np.repeat(devices_N, blocks), np.tile(np.arange(blocks), len(devices_N)))
    return words_BW.reshape(len(devices_N), -1)[:, :count]


def words_at(key: bytes, name: str, devices_B: np.ndarray, blocks_B: np.ndarray) -> np.ndarray:
    """One block of each device's ``Keystream(key, name, device)``, by its number from 0; uint32 ``[B, 4]``."""
    counters_B2 = np.empty((len(devices_B), 2), dtype=">u8")
    counters_B2[:, 0], counters_B2[:, 1] = devices_B, blocks_B
    # Counter mode is the encryption of counters; ECB on distinct blocks spelled out here is just that.
    stream = Cipher(algorithms.AES(_subkey(key, name)), modes.ECB()).encryptor().update(counters_B2.data.cast("B"))
    return np.frombuffer(stream, dtype="<u4").reshape(-1, BLOCK_WORDS)


class Keystream:
    """Random bits of one device for one name.

    The secret is drawn from the operating system once. Deriving bits from it, instead of drawing
    new ones, memoises each message: a retry sends the same bits, so it is the same release.

    Raises:
      ValueError: a key that is not 32 bytes.
    """

    _WORDS = 512

    def __init__(self, key: bytes, name: str, device: int = 0) -> None:
        counter = device.to_bytes(8, "big") + bytes(8)
        self._stream = Cipher(algorithms.AES(_subkey(key, name)), modes.CTR(counter)).encryptor()
        self._buffer = np.empty(0, dtype=np.uint32)

    def words(self, count: int) -> np.ndarray:
        """``count`` uniform words, uint32."""
        while len(self._buffer) < count:
            fresh = self._stream.update(bytes(4 * max(self._WORDS, count)))
            self._buffer = np.concatenate([self._buffer, np.frombuffer(fresh, dtype="<u4")])
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def uniform(self) -> float:
        """A number in [0, 1) with 53 random bits, from two words."""
        high, low = self.words(2).tolist()
        return ((high << 32 | low) >> 11) * 2.0**-53

    def subset(self, population: int, count: int) -> np.ndarray:
        """A uniform ``count``-subset of ``range(population)``, int64.

        Draws with replacement and keeps the first ``count`` distinct numbers; when that is most
        of the population, it draws what to leave out. A word w becomes the number
        ``floor(w population / 2^32)`` (Lemire 2019): a word whose product has a low half under
        ``2^32 mod population`` is drawn again, which leaves each number equally many words.

        Raises:
          ValueError: more than 2^31 numbers.
        """
        if population > _LARGEST:
            raise ValueError(f"population: {population} numbers do not fit a random word; at most {_LARGEST} do")
        if 2 * count > population:
            left_out = self.subset(population, population - count)
            return np.setdiff1d(np.arange(population), left_out, assume_unique=True)
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < count:
            products = self.words(count - len(drawn)).astype(np.uint64) * np.uint64(population)
            fair = (products & np.uint64(2**32 - 1)) >= np.uint64(2**32 % population)
            more = (products[fair] >> np.uint64(32)).astype(np.int64)
            _, first = np.unique(np.concatenate([drawn, more]), return_index=True)
            drawn = np.concatenate([drawn, more])[np.sort(first)]
        return drawn

    def permutation(self, count: int) -> np.ndarray:
        """A uniform order of ``range(count)``, int64, but for the ``count^2 / 2^65`` chance of equal keys."""
        words = self.words(2 * count).astype(np.uint64).reshape(count, 2)
        return np.argsort(words[:, 0] << np.uint64(32) | words[:, 1], kind="stable")


def _subkey(key: bytes, name: str) -> bytes:
    if len(key) != 32:
        raise ValueError(f"key: got {len(key)} bytes, expected 32 from the operating system")
    return hmac.digest(key, f"tacit discovery 3|{name}".encode(), hashlib.sha256)
