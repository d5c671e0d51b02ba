"""A message as it travels: k item numbers in ``ceil(log2 d)`` bits each, and nothing else.

The length depends on k and d alone, which everybody knows.
"""

import numpy as np

from discovery.device.randomizer import SubsetSelection


def message_bytes(randomizer: SubsetSelection) -> int:
    """Bytes of one message."""
    return (randomizer.size * _bits(randomizer) + 7) // 8


def encode(randomizer: SubsetSelection, message: np.ndarray) -> bytes:
    """The bytes of one message, int64 ``[k]``."""
    shifts = np.arange(_bits(randomizer), dtype=np.int64)[::-1]
    return np.packbits((message[:, None] >> shifts & 1).astype(np.uint8).ravel()).tobytes()


def decode(randomizer: SubsetSelection, content: bytes) -> np.ndarray:
    """The message, int64 ``[k]``; the server's check of what a device sent.

    Raises:
      ValueError: what no device that follows the protocol sends.
    """
    width = _bits(randomizer)
    if len(content) != message_bytes(randomizer):
        raise ValueError(f"message: {len(content)} bytes, expected {message_bytes(randomizer)}")
    bits = np.unpackbits(np.frombuffer(content, dtype=np.uint8))
    used, padding = bits[: randomizer.size * width], bits[randomizer.size * width :]
    message = used.reshape(randomizer.size, width).astype(np.int64) @ (1 << np.arange(width, dtype=np.int64)[::-1])
    if np.any(padding) or np.any(np.diff(message) <= 0) or message[-1] >= randomizer.domain:
        raise ValueError("message: not distinct ascending items of the domain; discard the message")
    return message


def _bits(randomizer: SubsetSelection) -> int:
    return (randomizer.domain - 1).bit_length()
