"""Words of a masked vector, and the shares from which a mask's secret is recovered.

Masks are keystreams (``federated.workers.streams``). Shares are Shamir's (1979) of 32 bytes, by PyCryptodome: two
secrets of 16 bytes over GF(2^128).
"""

from collections.abc import Mapping

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir

_HALF = 16


def word_of(bits: int) -> np.dtype:
    """The smallest unsigned integer that holds ``bits`` bits."""
    return np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if bits <= 8 * size)}")


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
