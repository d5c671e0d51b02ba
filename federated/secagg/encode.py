"""A device's clipped update as integers modulo 2^bits, and the sum of many as an update again.

Kairouz, Liu, Steinke 2021, algorithms 1 and 2 without their noise: flatten, scale, round at random until
the norm fits, reduce modulo 2^bits. Between rounding and reducing stands the element clip.

Shape legend: P parameters, N the order of the transform.
"""

import numpy as np

from federated.secagg.bounds import Encoding
from federated.secagg.hadamard import Rotation
from federated.secagg.masks import word_of
from federated.workers.streams import uniform_blocks
from pretrain.randomness import noise
from pretrain.randomness.noise import FIXED_POINT

# All of these fail with probability beta^16 at most; then the update is truncated, which never lengthens it.
_TRIES = 16


def encode(update_P: np.ndarray, encoding: Encoding, rotation: Rotation, key: bytes) -> np.ndarray:
    """Encode one device's update for the sum.

    Guarantee: as a vector of integers it has L2 norm at most ``encoding.norm_limit`` and
    no element above ``encoding.element_bound``, whatever ``update_P`` is: one that is longer
    than a clip norm or not finite becomes zeros if rounding cannot make it fit. An update of zeros is
    sent as zeros. Unbiased but for a bias of norm ``sqrt(N) beta / (1 - beta)`` grid steps at most and the
    elements clipped.

    Args:
      update_P: float64 ``[P]`` in clip norms, L2 norm at most 1.
      key: 32 secret bytes of this device and round; the rounding depends on nothing else.

    Returns:
      ``word_of(bits)`` ``[N]`` in [0, 2^bits).
    """
    flat_N = rotation.forward(update_P)
    flat_N *= encoding.scale
    integers_N = round_to_norm(flat_N, encoding, key)
    np.clip(integers_N, -encoding.element_bound, encoding.element_bound, out=integers_N)
    return whole(integers_N, encoding.bits)


def decode(sum_N: np.ndarray, encoding: Encoding, rotation: Rotation) -> np.ndarray:
    """The sum of the updates from the sum of what devices sent, modulo 2^bits. Still without noise.

    Returns:
      int64 ``[P]`` in units of the clip norm / 2^44, as ``clipping.release`` takes it.
    """
    sum_P = rotation.backward(centred(sum_N, encoding.bits).astype(np.float64))[: encoding.num_parameters]
    sum_P *= FIXED_POINT / encoding.scale
    # Only a sum that wrapped around can lie outside; the noise needs its room in an int64 all the same.
    return np.rint(np.clip(sum_P, -(2.0**62), 2.0**62 - 2.0**10)).astype(np.int64)


def whole(integers_N: np.ndarray | int, bits: int) -> np.ndarray:
    """Whole numbers modulo 2^bits, as they are sent."""
    return np.asarray(integers_N).astype(np.int64).view(np.uint64).astype(word_of(bits)) & low_bits(bits)


def centred(sum_N: np.ndarray, bits: int) -> np.ndarray:
    """Sums modulo 2^bits as int64 ``[N]`` in [-2^(bits - 1), 2^(bits - 1))."""
    centred_N = (sum_N & low_bits(bits)).astype(np.int64)
    centred_N[centred_N >= 1 << (bits - 1)] -= 1 << bits
    return centred_N


def round_to_norm(flat_N: np.ndarray, encoding: Encoding, key: bytes) -> np.ndarray:
    """Conditional randomised rounding: whole numbers (float64 ``[N]``) of norm ``norm_limit`` at most."""
    limit = encoding.norm_limit**2
    for attempt in range(_TRIES):
        rounded_N = stochastic_round(flat_N, noise.subkey(key, f"secagg rounding|{attempt}"))
        if np.dot(rounded_N, rounded_N) <= limit:
            return rounded_N
    truncated_N = np.trunc(flat_N)
    return truncated_N if np.dot(truncated_N, truncated_N) <= limit else np.zeros_like(flat_N)


def stochastic_round(flat_N: np.ndarray, key: bytes) -> np.ndarray:
    """Each element to one of its two neighbours, independently, with itself as the expectation."""
    rounded_N = np.floor(flat_N)
    for piece, words in uniform_blocks(key, word_of(32), len(flat_N)):
        # 32 bits a coin: the expectation is off by 2^-32 of a grid step at most, and whole numbers stay.
        rounded_N[piece] += words < (flat_N[piece] - rounded_N[piece]) * 2.0**32
    return rounded_N


def low_bits(bits: int) -> np.unsignedinteger:
    """2^bits - 1 in the word that sums are made in."""
    return word_of(bits).type((1 << bits) - 1)
