"""Secret random bits of devices: the same again in a retry, and never shared between two answers.

AES-256 in counter mode under a key derived by HMAC-SHA256; the counter block is the device's
number (8 bytes), then the block's (8 bytes). So each device has a stream of its own that can be
read by itself (``Keystream``) or for many devices in one call (``first_words``).
"""

import hashlib
import hmac

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def _subkey(key: bytes, name: str) -> bytes:
    if len(key) != 32:
        raise ValueError(f"key: got {len(key)} bytes, expected 32 from the operating system")
    return hmac.digest(key, f"tacit discovery 2|{name}".encode(), hashlib.sha256)


def first_words(key: bytes, name: str, devices_N: np.ndarray, count: int) -> np.ndarray:
    """The first ``count`` words of each device's ``Keystream(key, name, device)``, uint64 ``[N, count]``."""
    blocks_NB2 = np.empty((len(devices_N), (count + 1) // 2, 2), dtype=">u8")
    blocks_NB2[:, :, 0] = devices_N[:, None]
    blocks_NB2[:, :, 1] = np.arange(blocks_NB2.shape[1])
    # Counter mode is the encryption of counters; ECB on distinct blocks spelled out here is just that.
    stream = Cipher(algorithms.AES(_subkey(key, name)), modes.ECB()).encryptor().update(blocks_NB2.data.cast("B"))
    return np.frombuffer(stream, dtype="<u8").reshape(len(devices_N), -1)[:, :count]


class Keystream:
    """Random bits of one device for one name.

    The secret is drawn from the operating system once. Deriving from it, instead of drawing
    anew, memoises each message: a retry sends the same bits, so it is the same release.

    Raises:
      ValueError: a key that is not 32 bytes.
    """

    _WORDS = 256

    def __init__(self, key: bytes, name: str, device: int = 0) -> None:
        counter = device.to_bytes(8, "big") + bytes(8)
        self._stream = Cipher(algorithms.AES(_subkey(key, name)), modes.CTR(counter)).encryptor()
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
