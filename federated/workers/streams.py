"""Keystreams of uniform words, to be added to a vector and taken off again.

AES-256-CTR, a block that fits the cache at a time.

Shape legend: N elements of a vector.
"""

from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_BLOCK = 1 << 18  # bytes
_ZEROS = bytes(_BLOCK)


def uniform_blocks(key: bytes, word: np.dtype, size: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Pieces of a vector of ``size`` independent uniform words, with where each belongs.

    A piece is overwritten by the next. The counter starts at 0, so a key must serve for one vector.

    Args:
      key: 32 secret bytes.
      word: an unsigned integer type, little-endian.
    """
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    # A stream cipher fills no more than it is given; the binding asks for a block of slack.
    buffer = bytearray(_BLOCK + 15)
    step = _BLOCK // word.itemsize
    for start in range(0, size, step):
        stop = min(start + step, size)
        cipher.update_into(_ZEROS[: (stop - start) * word.itemsize], buffer)
        yield slice(start, stop), np.frombuffer(buffer, word, stop - start)


def add_mask(total_N: np.ndarray, key: bytes, sign: int) -> None:
    """Add (``sign`` 1) or subtract (-1) the mask of ``key``, in place.

    Modulo 2^(8 * itemsize), of which 2^bits is a divisor: reducing to ``bits`` can wait.

    Args:
      total_N: an unsigned integer type.
    """
    combine = np.add if sign > 0 else np.subtract
    for piece, words in uniform_blocks(key, total_N.dtype, len(total_N)):
        combine(total_N[piece], words, out=total_N[piece])
