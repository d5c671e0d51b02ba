"""Direction canaries: synthetic devices whose update is one fixed direction, for audits of the noise.

Shape legend: P parameters, Q the power of two not below P, N directions.

Rows of a randomised Hadamard matrix, ``H D`` with random signs D, cut to P entries, have entries of one magnitude
but are orthogonal only if P is a power of two: otherwise a canary would have components along other canaries'
directions, and its estimated length would be biased. The directions are the nearest orthonormal mixtures of these rows,
``G^(-1/2) H D`` with their N by N inner products G. No matrix of P columns is stored: inner products with all
directions are one fast transform.
"""

import functools
import hashlib
import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from evaluation.config import LEAST_DIRECTIONS

# Far beyond every clip norm, so that the trainer's own clipping determines the length of the update.
UPDATE_NORM = 1e4
_BITS_AT_ONCE = 5
# Number of redraws if the cut rows are nearly dependent.
_DRAWS, _LEAST_VALUE = 64, 1e-3
_LEAST_ROUNDS, _LEAST_PARAMETERS = 2, 1000


def unauditable(count: int, rounds: int, parameters: int, share: float = 1.0) -> list[str]:
    """Reasons why audits with this many directions would be meaningless, each with its fix; empty if there are none.

    With ``LEAST_DIRECTIONS`` canaries that have a round, fair coins leave fewer than three on either side once in 10^15
    runs.

    Args:
      rounds: of training.
      parameters: of the model, or the most that it may have.
      share: share of the canaries that is expected to have a round.
    """
    lines = []
    if rounds < _LEAST_ROUNDS:
        lines.append(f"noise is audited over {_LEAST_ROUNDS} rounds or more, and there is {rounds}; raise rounds")
    if count * share < LEAST_DIRECTIONS:
        lines.append(
            f"about {math.floor(count * share)} of {count} would have a round, and the audits need {LEAST_DIRECTIONS}; "
            f"raise it to {math.ceil(LEAST_DIRECTIONS / share):,} or more"
        )
    # Just above a power of two, each row has one other that is nearly equal on the first P entries. N of Q rows contain
    # no such pair with probability about exp(-N^2 / 2Q); where that is 1/e, 64 draws find such rows.
    least = max(_LEAST_PARAMETERS, _padded(-(-(count**2) // 2)) // 2 + 1)
    if parameters < least:
        lines.append(
            f"{count} in a model of {parameters:,} parameters, and the audits need {least:,}; lower it, or "
            "take a larger model"
        )
    return lines


def most_directions(parameters: int) -> int:
    """Most directions that ``unauditable`` accepts in a model of so many parameters, if it is not too small for any."""
    return math.isqrt(2 << (parameters - 1).bit_length())


@dataclass(frozen=True)
class Directions:
    """N unit directions and the coins for their participation; a function of the fields alone.

    Attributes:
      count: N.
      seed: kept secret from the mechanism under audit; committed to before training (``commitment``).
      layers: sizes of the layers, P in all. One number: all entries have the same magnitude. Several: every layer
        holds the same share of the squared norm, which clipping by layer leaves unchanged.
    """

    layers: tuple[int, ...]
    count: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 < self.count <= self.num_parameters:
            raise ValueError(
                f"count: {self.count} directions in {self.num_parameters} dimensions; give 1 to {self.num_parameters}"
            )

    @property
    def num_parameters(self) -> int:
        """Number of the model's parameters, P."""
        return sum(self.layers)

    @functools.cached_property
    def included_N(self) -> np.ndarray:
        """Bool: a fair coin for each direction's participation."""
        return np.random.default_rng([self.seed, *b"canary coins"]).random(self.count) < 0.5

    @property
    def commitment(self) -> str:
        """SHA-256 to record before training, so that coins and directions cannot be chosen afterwards."""
        return hashlib.sha256(f"{self.layers}|{self.count}|{self.seed}".encode()).hexdigest()

    def update(self, number: int) -> np.ndarray:
        """Update of the device of one direction before clipping: float32 ``[P]``, length ``UPDATE_NORM``."""
        return (UPDATE_NORM * self.combined(np.arange(self.count) == number)).astype(np.float32)

    def combined(self, weights_N: np.ndarray) -> np.ndarray:
        """Weighted sum of the unit directions, float64 ``[P]``."""
        weights_Q = np.zeros(self._padded)
        weights_Q[self._rows_N] = weights_N.astype(np.float64) @ self._mixture_NN
        return hadamard(weights_Q)[: self.num_parameters] * self._scaled_signs_P

    def project(self, vector_P: np.ndarray) -> np.ndarray:
        """Inner products with all directions, float64 ``[N]``."""
        padded_Q = np.zeros(self._padded)
        padded_Q[: self.num_parameters] = vector_P * self._scaled_signs_P
        return self._mixture_NN @ hadamard(padded_Q)[self._rows_N]

    def rounding(self, vector_P: np.ndarray) -> float:
        """Standard deviation, along a direction, of float32 rounding errors in every entry.

        The directions' signs are random, so these errors add up like independent ones.
        """
        return float(np.linalg.norm(vector_P * self._scaled_signs_P)) * 2.0**-24

    @property
    def _padded(self) -> int:
        return _padded(self.num_parameters)

    @property
    def _rows_N(self) -> np.ndarray:
        return self._basis[0]

    @property
    def _mixture_NN(self) -> np.ndarray:
        return self._basis[1]

    @functools.cached_property
    def _basis(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the Hadamard matrix, and ``G^(-1/2)`` of their inner products on the first P entries.

        The product of two rows is the row whose index is the exclusive or of theirs, so one transform gives all of G.
        """
        squares_Q = np.zeros(self._padded)
        squares_Q[: self.num_parameters] = self._scaled_signs_P**2
        products_Q, rng = hadamard(squares_Q), np.random.default_rng([self.seed, *b"canary rows"])
        for _ in range(_DRAWS):
            rows_N = rng.choice(self._padded, size=self.count, replace=False)
            values_N, vectors_NN = np.linalg.eigh(products_Q[rows_N[:, None] ^ rows_N])
            if values_N[0] > _LEAST_VALUE:
                return rows_N, (vectors_NN / np.sqrt(values_N)) @ vectors_NN.T
        raise ValueError(
            f"count: {self.count} directions in {self.num_parameters} dimensions cannot be made orthogonal; give fewer"
        )

    @functools.cached_property
    def _scaled_signs_P(self) -> np.ndarray:
        coins_P = np.random.default_rng([self.seed, *b"canary signs"]).random(self.num_parameters) < 0.5
        sizes = np.array(self.layers)
        return np.where(coins_P, 1.0, -1.0) * np.repeat((len(sizes) * sizes) ** -0.5, sizes)


def hadamard(vector_Q: np.ndarray) -> np.ndarray:
    """``H x`` for the Hadamard matrix of entries +-1 in natural order; Q a power of two.

    H is a Kronecker product of small Hadamard matrices, so ``H x`` needs a few dense products, which BLAS computes
    faster than butterflies.
    """
    left, done_Q = len(vector_Q), vector_Q
    while left > 1:
        size = min(left, 1 << _BITS_AT_ONCE)
        left //= size
        parts = done_Q.reshape(left, size, -1)
        # One matrix product if the blocks are vectors: many small products take three times as long.
        done_Q = (parts[:, :, 0] @ _small(size) if parts.shape[2] == 1 else np.matmul(_small(size), parts)).reshape(-1)
    return done_Q


@functools.lru_cache(maxsize=8)
def _small(size: int) -> np.ndarray:
    return linalg.hadamard(size).astype(np.float64)


def _padded(size: int) -> int:
    """The smallest power of two that is at least ``size``."""
    return 1 << max(0, size - 1).bit_length()
