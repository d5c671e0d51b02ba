"""Entropy of the operating system: the one source of keys, secrets and salts."""

import secrets


def fresh_bytes(size: int) -> bytes:
    """Draw unpredictable bytes from the operating system.

    Guarantee: they follow from nothing that the program knows. No other code of the packages draws secret bytes; key
    pairs for signatures come from their libraries.
    """
    return secrets.token_bytes(size)
