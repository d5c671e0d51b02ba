"""Flattening: a randomised Hadamard transform, H D x / sqrt(N) with public random signs D.

Kairouz, Liu, Steinke 2021, *The Distributed Discrete Gaussian Mechanism for Federated Learning with
Secure Aggregation*, lemma 29, which allows any orthogonal matrix with entries +-1/sqrt(N). Sylvester's needs
N to be a power of two, up to twice the parameters. Here N may also be 12 or 20 times one, with Paley's
matrix as one Kronecker factor: at most a third more than the parameters, and the same tail bounds.

Shape legend: P parameters, N >= P the order of the transform.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pretrain.randomness import noise

# Sylvester factors of this order turn the transform into a few products that BLAS does well.
_FACTOR = 64
_PALEY = (12, 20)


def order_of(num_parameters: int) -> int:
    """The least N >= ``num_parameters`` of the form 2^k, 12 * 2^k or 20 * 2^k."""
    return min(base * 2 ** max(0, math.ceil(math.log2(num_parameters / base))) for base in (1, *_PALEY))


def factors(order: int) -> tuple[int, ...]:
    """Orders of the Kronecker factors of the matrix of this order."""
    sylvester = order & -order
    odd = order // sylvester
    first = 4 * odd if odd > 1 else 1
    if first not in (1, *_PALEY) or order % first:
        raise ValueError(f"order: no matrix of order {order}; take one from order_of()")
    rest, parts = order // first, [first] if first > 1 else []
    while rest > 1:
        parts.append(min(rest, _FACTOR))
        rest //= parts[-1]
    return tuple(parts)


def arithmetic_error(order: int) -> float:
    """Bound on the error of one transform in float64, relative to the norm of what is transformed.

    A product with an f x f matrix of signs is off by at most ``f u / (1 - f u)`` times the product of
    absolute values in any order of summation (Higham 2002, section 3.1), which has norm f where the
    result has sqrt(f); u = 2^-53. The last term is for the conversions and scales before and after.
    """
    return sum(part * math.sqrt(part) for part in factors(order)) * 2.0**-52 + 2.0**-50


@dataclass(frozen=True)
class Rotation:
    """H D / sqrt(N) of one round. Public.

    Attributes:
      order: N.
      signs_N: float64, +-1.
    """

    order: int
    signs_N: np.ndarray

    def forward(self, x_P: np.ndarray) -> np.ndarray:
        """float64 ``[N]`` of the same L2 norm; zeros are appended to ``x_P``."""
        x_N = np.zeros(self.order)
        x_N[: len(x_P)] = x_P
        x_N *= self.signs_N
        x_N = _multiply(x_N, self.order, transposed=False)
        x_N *= 1.0 / math.sqrt(self.order)
        return x_N

    def backward(self, y_N: np.ndarray) -> np.ndarray:
        """The inverse, which is the transpose; float64 ``[N]``."""
        x_N = _multiply(y_N, self.order, transposed=True)
        x_N *= self.signs_N
        x_N *= 1.0 / math.sqrt(self.order)
        return x_N


def rotation(order: int, public_seed: int, round_number: int) -> Rotation:
    """The transform of one round: signs are an AES keystream from (public seed, round).

    Anyone can compute them; nothing about privacy rests on their being secret.
    """
    words = noise.uniform_words(noise.seeded_key(public_seed), "secagg signs", round_number, -(-order // 64))
    bits_N = np.unpackbits(words.view(np.uint8), count=order)
    return Rotation(order, 1.0 - 2.0 * bits_N)


def _multiply(x_N: np.ndarray, order: int, transposed: bool) -> np.ndarray:
    """The unnormalised Kronecker product of the factors, times ``x_N``: O(N log N), each axis in turn."""
    before, after = 1, order
    for part in factors(order):
        after //= part
        matrix = sign_matrix(part).T if transposed else sign_matrix(part)
        if after == 1:
            x_N = x_N.reshape(before, part) @ matrix.T
        else:
            x_N = np.matmul(matrix, x_N.reshape(before, part, after))
        before *= part
    # Callers scale the result in place; at order 1 nothing was multiplied, so it is still theirs.
    return x_N.reshape(order) if order > 1 else x_N.copy()


@lru_cache(maxsize=16)
def sign_matrix(order: int) -> np.ndarray:
    """Dense Hadamard matrix of signs, float64 ``[order, order]``: Paley's first, else Sylvester's."""
    if order not in _PALEY:
        places = np.arange(order)
        return 1.0 - 2.0 * (np.bitwise_count(places[:, None] & places) % 2)
    prime = order - 1
    squares = {value * value % prime for value in range(1, prime)}
    characters = np.array([0.0] + [1.0 if value in squares else -1.0 for value in range(1, prime)])
    skew = np.zeros((order, order))
    skew[0, 1:], skew[1:, 0] = 1.0, -1.0
    skew[1:, 1:] = characters[(np.arange(prime)[:, None] - np.arange(prime)) % prime]
    return skew + np.eye(order)
