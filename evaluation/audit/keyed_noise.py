"""Second implementation of the secure noise, from its key, for the audits of releases.

Guarantee: the same bits as ``pretrain.randomness`` on every processor, by a program that shares no line with it and
imports none of our modules: a fault there cannot hide itself from an audit. Both follow one definition, and committed
vectors test each against it (``tests/evaluation/audit/keyed_noise.json``).

The definition. A stream's number has an AES-256 key of its own, HKDF-SHA256 of the stage's key with the info
``tacit noise 1|<stream>|<index>`` and no salt; its bits are the keystream in counter mode from zero, as little-endian
64-bit words. Each pair of words (a, b) gives two normals (Box and Muller 1958). The radius is ``sqrt(-2 ln u)`` with
``u = (a + 1) / 2^64``; for a below 2^53 the 1 is ``(c + 1) / 2^64`` with the next word c under the info
``tacit noise 1, further bits|<stream>|<index>``, so that u has all digits of float64. The angle is b / 2^64 of a turn.
Logarithm, sine and cosine are the series below, in float64 additions, multiplications, divisions and square roots
alone, which IEEE 754 defines to the last bit; NumPy computes each of these apart, so none is fused with another.

Shape legend: N pairs.
"""

import hashlib
import hmac
import math

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

_PAIRS = 1 << 14  # at a time
_FULL = 1 << 53  # words from here on fill a float64 without further bits
_LATTICE_BITS = 20
# ln 2 = high + low; high ends in 24 zeros, so its product with an exponent is exact.
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e42ffp-1"), -4.2009150726810846e-11


def gaussian(key: bytes, stream: str, index: int, size: int) -> np.ndarray:
    """Standard normal numbers of one vector of a stream, float64 ``[size]``."""
    bits = _keystream(key, f"tacit noise 1|{stream}|{index}")
    further = _keystream(key, f"tacit noise 1, further bits|{stream}|{index}")
    drawn = [np.empty((0, 2))]
    for start in range(0, size, 2 * _PAIRS):
        words_N2 = _words(bits, 2 * min(_PAIRS, -(-(size - start) // 2))).reshape(-1, 2)
        drawn.append(normals(words_N2, _words(further, int((words_N2[:, 0] < _FULL).sum()))))
    return np.concatenate(drawn).ravel()[:size]


def uniform_words(key: bytes, stream: str, index: int, size: int) -> np.ndarray:
    """Uniform 64-bit words, uint64 ``[size]``: the keystream under the info ``tacit words 1|<stream>|<index>``."""
    return _words(_keystream(key, f"tacit words 1|{stream}|{index}"), size)


def subkey(key: bytes, info: str) -> bytes:
    """HKDF-SHA256 (RFC 5869) of a stage's key, without salt: 32 bytes."""
    extracted = hmac.digest(bytes(32), key, hashlib.sha256)
    return hmac.digest(extracted, info.encode() + b"\x01", hashlib.sha256)


def step_of(deviation: float) -> float:
    """The step of a release's lattice: the power of two that is 2^-21 to 2^-20 of its noise."""
    return math.ldexp(1.0, math.frexp(deviation)[1] - 1 - _LATTICE_BITS)


def lattice(noisy: np.ndarray, deviation: float) -> np.ndarray:
    """Nearest multiples of the lattice's step, the digits of a release."""
    return np.rint(noisy / step_of(deviation)) * step_of(deviation)


def _keystream(key: bytes, info: str) -> CipherContext:
    return Cipher(algorithms.AES256(subkey(key, info)), modes.CTR(bytes(16))).encryptor()


def _words(stream: CipherContext, count: int) -> np.ndarray:
    return np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8")


def normals(words_N2: np.ndarray, further: np.ndarray) -> np.ndarray:
    """Two normals of each pair of words, float64 ``[N, 2]``; ``further`` has one word for each first one below 2^53."""
    high_N, low_N = words_N2[:, 0].astype(np.float64), np.ones(len(words_N2))
    low_N[words_N2[:, 0] < _FULL] = np.ldexp(further.astype(np.float64) + 1.0, -64)
    radius_N = np.sqrt(-2.0 * _logarithm(np.ldexp(high_N + low_N, -64)))
    turns_N = np.ldexp(words_N2[:, 1].astype(np.float64), -64)
    quarter_N = np.rint(4.0 * turns_N)
    angle_N = (turns_N - 0.25 * quarter_N) * (2.0 * math.pi)
    sine_N, cosine_N = _sine(angle_N), _cosine(angle_N)
    # A whole turn is none: quarters 0 and 4 are one.
    ways = [np.mod(quarter_N, 4.0) == way for way in range(4)]
    across_N = np.select(ways, [cosine_N, -sine_N, -cosine_N, sine_N])
    up_N = np.select(ways, [sine_N, cosine_N, -sine_N, -cosine_N])
    return np.stack([radius_N * across_N, radius_N * up_N], axis=1)


def _logarithm(u_N: np.ndarray) -> np.ndarray:
    """Logarithm, by 2 atanh((m - 1) / (m + 1)) for a mantissa m from sqrt(1/2) to sqrt(2)."""
    mantissa_N, exponent_N = np.frexp(u_N)
    small_N = mantissa_N < math.sqrt(0.5)
    mantissa_N, exponent_N = np.where(small_N, 2.0 * mantissa_N, mantissa_N), (exponent_N - small_N).astype(np.float64)
    s_N = (mantissa_N - 1.0) / (mantissa_N + 1.0)
    rest_N = _series(s_N * s_N, [1.0 / odd for odd in range(3, 22, 2)])
    return exponent_N * _LN2_HIGH + (2.0 * s_N + (2.0 * s_N * rest_N + exponent_N * _LN2_LOW))


def _sine(x_N: np.ndarray) -> np.ndarray:
    """Sine, for up to an eighth of a turn."""
    return x_N + x_N * _series(x_N * x_N, [(-1.0) ** n / math.factorial(2 * n + 1) for n in range(1, 9)])


def _cosine(x_N: np.ndarray) -> np.ndarray:
    """Cosine, for up to an eighth of a turn."""
    square_N = x_N * x_N
    return 1.0 - square_N * (0.5 - _series(square_N, [(-1.0) ** n / math.factorial(2 * n) for n in range(2, 9)]))


def _series(z_N: np.ndarray, coefficients: list[float]) -> np.ndarray:
    """``z (c1 + z (c2 + ...))``, by Horner's rule."""
    total_N = np.full_like(z_N, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total_N = total_N * z_N + coefficient
    return z_N * total_N
