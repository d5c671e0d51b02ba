"""Direction canaries: synthetic devices whose update is one fixed direction, for audits of the noise.

Shape legend: P parameters, Q the power of two not below P, N directions.

A direction is a row of a randomised Hadamard matrix, ``H D`` with random signs D, cut to P entries: all
its entries have one magnitude, N of them are orthogonal up to the cut (exactly where P is a power of two),
and no matrix is stored. Inner products with all of them are one fast transform.
"""

import functools
import hashlib
from dataclasses import dataclass

import numpy as np
from scipy import linalg

# Far beyond every clip norm, so that the trainer's own clipping decides how long the update is.
UPDATE_NORM = 1e4
_BITS_AT_ONCE = 7


@dataclass(frozen=True)
class Directions:
    """N unit directions and which of them take part; a function of the fields alone.

    Attributes:
      count: N.
      seed: kept secret from the mechanism under audit; committed to before training (``commitment``).
      layers: sizes of the layers, P in all. One number: all entries alike. Several: every layer holds the same
        share of the squared norm, which is what clipping by layer leaves as it is.
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
        """Bool: a fair coin for each direction, whether it takes part."""
        return np.random.default_rng([self.seed, *b"canary coins"]).random(self.count) < 0.5

    @property
    def commitment(self) -> str:
        """SHA-256 to be written down before training: afterwards nobody can pick other coins or directions."""
        return hashlib.sha256(f"{self.layers}|{self.count}|{self.seed}".encode()).hexdigest()

    def update(self, number: int) -> np.ndarray:
        """What the device of one direction sends before clipping: float32 ``[P]``, length ``UPDATE_NORM``."""
        # Entry (i, j) of a Hadamard matrix is -1 to the number of ones that i and j have in common.
        shared = np.bitwise_count(np.arange(self.num_parameters) & self._rows_N[number])
        signs_P = np.where(shared & 1, -1.0, 1.0) * self._scaled_signs_P
        return (UPDATE_NORM * signs_P).astype(np.float32)

    def project(self, vector_P: np.ndarray) -> np.ndarray:
        """Inner products with all directions, float64 ``[N]``."""
        padded_Q = np.zeros(1 << max(0, self.num_parameters - 1).bit_length())
        padded_Q[: self.num_parameters] = vector_P * self._scaled_signs_P
        return hadamard(padded_Q)[self._rows_N]

    def rounding(self, vector_P: np.ndarray) -> float:
        """Standard deviation along a direction of errors that are to each entry as its last place in float32.

        The directions' signs are random, so such errors add up as independent ones do.
        """
        return float(np.linalg.norm(vector_P * self._scaled_signs_P)) * 2.0**-24

    @functools.cached_property
    def _rows_N(self) -> np.ndarray:
        padded = 1 << max(0, self.num_parameters - 1).bit_length()
        return np.random.default_rng([self.seed, *b"canary rows"]).choice(padded, size=self.count, replace=False)

    @functools.cached_property
    def _scaled_signs_P(self) -> np.ndarray:
        coins_P = np.random.default_rng([self.seed, *b"canary signs"]).random(self.num_parameters) < 0.5
        sizes = np.array(self.layers)
        return np.where(coins_P, 1.0, -1.0) * np.repeat((len(sizes) * sizes) ** -0.5, sizes)


def hadamard(vector_Q: np.ndarray) -> np.ndarray:
    """``H x`` for the Hadamard matrix of entries +-1 in natural order; Q a power of two.

    A Kronecker product of small Hadamard matrices, so a few products by dense ones, which BLAS does
    faster than the butterflies.
    """
    left, done_Q = len(vector_Q), vector_Q
    while left > 1:
        size = min(left, 1 << _BITS_AT_ONCE)
        left //= size
        done_Q = np.matmul(_small(size), done_Q.reshape(left, size, -1)).reshape(-1)
    return done_Q


@functools.lru_cache(maxsize=8)
def _small(size: int) -> np.ndarray:
    return linalg.hadamard(size).astype(np.float64)
