"""Keyed secure Gaussian noise: a pure function of (key, stream, index).

A retried round must redraw the same noise for the same release, or averaging two releases
would thin it out (DESIGN rule 2). So there is no generator that rolls on: every vector has a
key of its own, derived by HKDF-SHA256, and its bits are the AES-256-CTR keystream under it.

Guarantee: the noise is Gaussian up to the resolution of float64 and indistinguishable from
independent draws for anyone without the key, as far as AES-256 is a pseudo-random function.
The differential privacy built on it is computational, not information-theoretic.
"""

import hashlib

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
# Clipped updates and noise are added as integers, so many per clip norm. A power of two: scaling by it is exact, and
# it leaves 19 bits of an int64 for the number of devices in a sum.
FIXED_POINT = 2**44
BLOCK = 1 << 20  # coordinates drawn at a time, to bound memory


def seeded_key(seed: int) -> bytes:
    """A key that anyone can compute: for tests and runs marked as seeded, never for a real launch."""
    return hashlib.sha256(f"tacit seeded noise {seed}".encode()).digest()


def gaussian(key: bytes, stream: str, index: int, size: int) -> np.ndarray:
    """Independent standard normal numbers.

    Args:
      key: 32 secret bytes.
      stream: what the noise is for; streams never share bits.
      index: which vector of the stream (a tree node, a round).
      size: how many numbers.

    Returns:
      float64 ``[size]``. The first numbers do not depend on ``size``.

    Raises:
      ValueError: the key is not 32 bytes, or index or size is negative.
    """
    if index < 0 or size < 0:
        raise ValueError(f"index, size: got {index}, {size}; neither may be negative")
    keystream = _keystream(key, f"tacit noise 1|{stream}|{index}")
    pairs = (size + 1) // 2
    normals = np.empty((pairs, 2))
    for start in range(0, pairs, BLOCK):
        rows = normals[start : start + BLOCK]
        bits = np.frombuffer(keystream.update(bytes(16 * len(rows))), dtype="<u8").reshape(-1, 2)
        rows[:] = box_muller(bits)
    return normals.reshape(-1)[:size]


def subkey(key: bytes, purpose: str) -> bytes:
    """A key for one purpose; nothing drawn under it tells of what is drawn under another (HKDF-SHA256)."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"key: {len(key)} bytes, expected {KEY_BYTES}; draw one from the operating system")
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=purpose.encode()).derive(key)


def uniform_words(key: bytes, stream: str, index: int, size: int) -> np.ndarray:
    """Independent uniform 64-bit words, uint64 ``[size]``, for secret choices such as who is sampled."""
    return np.frombuffer(_keystream(key, f"tacit words 1|{stream}|{index}").update(bytes(8 * size)), dtype="<u8")


def _keystream(key: bytes, info: str) -> CipherContext:
    return Cipher(algorithms.AES(subkey(key, info)), modes.CTR(bytes(16))).encryptor()


def box_muller(bits_N2: np.ndarray) -> np.ndarray:
    """Two normals from two 64-bit words (Box and Muller 1958).

    The top 53 bits of the first word give ``u`` in (0, 1], so its logarithm is finite and the
    largest radius is ``sqrt(-2 log 2^-53) = 8.57``: single precision, whose radius ends near
    5.77, would visibly cut the tails of the billions of numbers in one training run.

    Args:
      bits_N2: uint64 ``[N, 2]``, uniform.

    Returns:
      float64 ``[N, 2]``.
    """
    words_N2 = (bits_N2 >> np.uint64(11)).astype(np.float64)
    radius_N = np.sqrt(-2.0 * np.log((words_N2[:, 0] + 1.0) * 2.0**-53))
    angle_N = words_N2[:, 1] * (2.0**-53 * 2.0 * np.pi)
    return np.stack([radius_N * np.cos(angle_N), radius_N * np.sin(angle_N)], axis=1)
