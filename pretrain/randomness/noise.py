"""Keyed secure Gaussian noise: a pure function of (key, stream, index).

A retried round must redraw the same noise for the same release, or averaging two releases
would thin it out (DESIGN rule 2). So there is no generator that rolls on: every vector has a
key of its own, derived by HKDF-SHA256, and its bits are the AES-256-CTR keystream under it.

Guarantee: the noise is Gaussian up to the resolution of float64 and indistinguishable from
independent draws for anyone without the key, as far as AES-256 is a pseudo-random function.
The differential privacy built on it is computational, not information-theoretic. The bits are the same on every
processor and with every system library, so a retry on another worker adds the same noise.

Numbers of a computer are still a lattice, and a sum whose last bits are shown tells which points of it the noise can
have hit (Mironov 2012, *On Significance of the Least Significant Bits for Differential Privacy*). So noise is drawn to
the full precision of float64 however far out, and what is released of a noisy sum are multiples of a millionth of the
noise (``on_grid``), around each of which lie 2^50 points: which of them was hit shows nothing.

Lemma: let s be a sum of whole numbers and Y Gaussian. The release ``on_grid(s + rint(Y))`` has exactly the zCDP of ``s
+ Y``. Proof: rint commutes with whole shifts but at ties, which have probability 0, so ``s + rint(Y) = rint(s + Y)``:
both roundings are post-processing of ``s + Y``, for neighbours too, as their sums are whole as well. So discrete noise
(Canonne et al. 2020) would lower no loss, and its exact sampler costs rejections in whole numbers of any size for each
cell; it is not used. What the lemma leaves is that Y here is a float64, off by some units of its last digit, at most
2^-50 of its radius: that moves the ends of a multiple's interval, 2^-21 of the noise wide, and so its probability by a
factor within 1 plus or minus 2^-24. No bound on what that adds up to over all parameters of a model is claimed; the
attack on the lattice finds nothing in 100,000 (``tests/federated/local_training/test_noise_lattice.py``), and a game
against every release (``tests/contracts/test_distinguishing.py``) finds no support that tells neighbours apart.
"""

import hashlib
import math

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
# Clipped updates and noise are added as integers, so many per clip norm. A power of two: scaling by it is exact, and
# it leaves 19 bits of an int64 for the number of devices in a sum.
FIXED_POINT = 2**44
BLOCK = 1 << 15  # pairs drawn at a time: they stay in the cache
# Words below are the rare ones whose 64 bits are less than float64 holds.
_SMALL = 2**53
_GRID_BITS = 20


def seeded_key(seed: int) -> bytes:
    """A key that anyone can compute: for tests and runs marked as seeded, never for a real launch."""
    return hashlib.sha256(f"tacit seeded noise {seed}".encode()).digest()


def gaussian(key: bytes, stream: str, index: int, size: int) -> np.ndarray:
    """Independent standard normal numbers.

    Args:
      key: 32 secret bytes.
      stream: name of the noise; streams never share bits.
      index: index of the vector in the stream (a tree node, a round).
      size: number of values.

    Returns:
      float64 ``[size]``. The first numbers do not depend on ``size``.

    Raises:
      ValueError: the key is not 32 bytes, or index or size is negative.
    """
    if index < 0 or size < 0:
        raise ValueError(f"index, size: got {index}, {size}; neither may be negative")
    keystream, further = (_keystream(key, f"tacit noise {part}|{stream}|{index}") for part in ("1", "1, further bits"))
    pairs = (size + 1) // 2
    normals = np.empty((pairs, 2))
    for start in range(0, pairs, BLOCK):
        rows = normals[start : start + BLOCK]
        bits = np.frombuffer(keystream.update(bytes(16 * len(rows))), dtype="<u8").reshape(-1, 2)
        small = np.count_nonzero(bits[:, 0] < _SMALL)
        rows[:] = box_muller(bits, np.frombuffer(further.update(bytes(8 * small)), dtype="<u8"))
    return normals.reshape(-1)[:size]


def subkey(key: bytes, purpose: str) -> bytes:
    """A key for one purpose; draws under it reveal nothing about draws under another (HKDF-SHA256)."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"key: {len(key)} bytes, expected {KEY_BYTES}; draw one from the operating system")
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=purpose.encode()).derive(key)


def uniform_words(key: bytes, stream: str, index: int, size: int) -> np.ndarray:
    """Independent uniform 64-bit words, uint64 ``[size]``, for secret choices such as who is sampled."""
    return np.frombuffer(_keystream(key, f"tacit words 1|{stream}|{index}").update(bytes(8 * size)), dtype="<u8")


def _keystream(key: bytes, info: str) -> CipherContext:
    return Cipher(algorithms.AES(subkey(key, info)), modes.CTR(bytes(16))).encryptor()


def on_grid(noisy: np.ndarray, deviation: float) -> np.ndarray:
    """Publishable form of noisy sums: the nearest multiples of a power of two, 2^-21 to 2^-20 of the noise.

    Guarantee: a function of sums that have noise, so it costs nothing. Two coordinates whose noise is drawn together
    may have 2^50 values and more around each pair of multiples, whatever the sums without noise were.

    Args:
      noisy: any shape, whole numbers or floats.
      deviation: standard deviation of the noise, in the units of ``noisy``.

    Returns:
      float64.
    """
    step = 2.0 ** (math.frexp(deviation)[1] - 1 - _GRID_BITS)
    return np.rint(noisy / step) * step


def box_muller(bits_N2: np.ndarray, further_S: np.ndarray) -> np.ndarray:
    """Two normals from two 64-bit words (Box and Muller 1958).

    The first word, and 64 further bits where it is small, give ``u`` in (0, 1] with all the digits of a float64, so
    that the radius has them too: single precision, whose radius ends near 5.77, would visibly cut the tails of the
    billions of numbers in one training run, and 53 bits leave so few radii beyond 6 that they could be counted.

    Args:
      bits_N2: uint64 ``[N, 2]``, uniform.
      further_S: uint64, uniform, one for each first word below 2^53.

    Returns:
      float64 ``[N, 2]``; 13.3 at most.
    """
    from pretrain.randomness import normals  # numba is slow to import, and sizes and grids are asked for without it

    words_N2 = bits_N2.astype(np.float64)
    below_N = np.ones(len(words_N2))
    below_N[bits_N2[:, 0] < _SMALL] = (further_S.astype(np.float64) + 1.0) * 2.0**-64
    return normals.pairs((words_N2[:, 0] + below_N) * 2.0**-64, words_N2[:, 1] * 2.0**-64)
