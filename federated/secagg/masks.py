"""Masks, and the shares from which a mask's secret is recovered.

Masks are AES-256-CTR expanded to uniform words, a block that fits the cache at a time. Shares are Shamir's
(1979) of 32 bytes, by PyCryptodome: two secrets of 16 bytes over GF(2^128).

Shape legend: N elements of a vector.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_BLOCK = 1 << 18  # bytes
_ZEROS = bytes(_BLOCK)
_HALF = 16


def word_of(bits: int) -> np.dtype:
    """The smallest unsigned integer that holds ``bits`` bits."""
    return np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if bits <= 8 * size)}")


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


def split_secret(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Shares 1 to ``count``, 32 bytes each; fewer than ``threshold`` of them tell nothing about the secret.

    Their randomness is the operating system's. What a round releases does not depend on it.
    """
    halves = [Shamir.split(threshold, count, part) for part in (secret[:_HALF], secret[_HALF:])]
    return [first + second for (_, first), (_, second) in zip(*halves, strict=True)]


def combine_shares(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret from ``threshold`` of its shares by number, or more.

    Raises:
      OSError: there are fewer: their holders dropped out.
    """
    if len(shares) < threshold:
        raise OSError(
            f"secure aggregation lost this round: {len(shares)} shares of a secret came back, {threshold} are needed; "
            "run it again with devices that stay, or raise the report goal"
        )
    some = sorted(shares.items())[:threshold]
    halves = (slice(0, _HALF), slice(_HALF, None))
    return b"".join(Shamir.combine([(number, share[half]) for number, share in some]) for half in halves)
