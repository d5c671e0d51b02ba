"""Shamir secret sharing of 32 bytes (Shamir 1979), by PyCryptodome: two secrets of 16 bytes over GF(2^128)."""

from collections.abc import Mapping

from Crypto.Protocol.SecretSharing import Shamir

_HALF = 16


def split(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Shares 1 to ``count``, 32 bytes each; fewer than ``threshold`` of them tell nothing about the secret.

    Their randomness is the operating system's. What a round releases does not depend on it.
    """
    halves = [Shamir.split(threshold, count, part) for part in (secret[:_HALF], secret[_HALF:])]
    return [first + second for (_, first), (_, second) in zip(*halves, strict=True)]


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret from ``threshold`` of its shares by number, or more.

    Raises:
      OSError: there are fewer: their holders dropped out.
    """
    if len(shares) < threshold:
        raise OSError(
            f"secure aggregation lost this round: {len(shares)} shares of a secret came back, {threshold} are needed; "
            "run it again with devices that stay, or lower secagg.threshold"
        )
    some = sorted(shares.items())[:threshold]
    halves = (slice(0, _HALF), slice(_HALF, None))
    return b"".join(Shamir.combine([(number, share[half]) for number, share in some]) for half in halves)
