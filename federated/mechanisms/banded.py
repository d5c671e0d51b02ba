"""Banded strategies: correlated noise from the last ``bands`` rounds' noise vectors.

Choquette-Choo et al. 2023, *(Amplified) Banded Matrix Factorization: A unified approach to private
training*. Symbols: n rounds, C lower-triangular with ``C[t, s] = 0`` for ``t - s >= bands``.

Suffixes: N rounds, L lags 0 to bands - 1, P parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from federated.mechanisms.blt import errors
from federated.mechanisms.second_sensitivity import MAX_ROUNDS, sensitivity_squared_by_windows
from federated.mechanisms.sensitivity import check_noise_multiplier, check_pattern
from pretrain.randomness import noise

STREAM = "banded"


@dataclass(frozen=True)
class BandedState:
    """Noise of the last ``bands - 1`` rounds. Secret: it lets anyone subtract the noise.

    A ring without a buffer: the next state shares all vectors but the oldest with this one, so a
    step copies nothing and an old state stays what it was.

    Attributes:
      round: the round that comes next.
      recent: float64 ``[P]`` each, in clip norms, oldest first.
      num_parameters: P.
    """

    round: int
    recent: tuple[np.ndarray, ...]
    num_parameters: int


@dataclass(frozen=True, eq=False)
class Banded:
    """DP-FTRL with banded noise ``C^-1 z``.

    Guarantee: the released sums ``sum_t + C_clip * (C^-1 z)_t`` are post-processing of one Gaussian
    release of ``C x`` with standard deviation ``noise_multiplier`` per clip norm. With at most
    ``max_participations`` participations ``min_sep >= bands`` or more apart it is rho-zCDP with
    ``rho = sensitivity^2 / (2 z^2)`` under zero-out adjacency, for adaptively chosen updates.

    Attributes:
      noise_multiplier: z, per clip norm and before the sensitivity.
      lags_NL: float64 ``[N, L]``; ``lags_NL[t, j]`` is ``C[t, t - j]``. What would lie before
        round 0 must be 0, the diagonal ``[:, 0]`` above 0.
    """

    noise_multiplier: float
    lags_NL: np.ndarray

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        rounds, bands = self.lags_NL.shape
        if not 1 <= bands <= rounds:
            raise ValueError(f"lags: {bands} bands for {rounds} rounds; expected 1 to {rounds}")
        if not np.all(np.isfinite(self.lags_NL)) or np.any(self.lags_NL[:, 0] <= 0):
            raise ValueError("lags: must be finite with a positive diagonal, or C could not be inverted")
        if np.any(np.triu(self.lags_NL[:bands], 1)):
            raise ValueError("lags: entries before round 0 must be 0")
        # A copy nobody else can write to: a strategy changed after accounting would void the guarantee.
        lags_NL = np.array(self.lags_NL, dtype=np.float64)
        lags_NL.flags.writeable = False
        object.__setattr__(self, "lags_NL", lags_NL)

    @property
    def rounds(self) -> int:
        """Rounds that there is a strategy for."""
        return len(self.lags_NL)

    @property
    def bands(self) -> int:
        """Number of diagonals."""
        return self.lags_NL.shape[1]

    @property
    def secret_sample(self) -> None:
        """None: the guarantee does not use sampling."""

    def init(self, num_parameters: int) -> BandedState:
        """State before the first round."""
        return BandedState(0, (), num_parameters)

    def noise(self, state: BandedState, round_number: int, key: bytes) -> tuple[np.ndarray, BandedState]:
        """Noise of one round, ``(C^-1 z)_t`` by forward substitution, and the state after it.

        Returns:
          float64 ``[P]`` in clip norms. The state holds this array: it is read-only.

        Raises:
          ValueError: a round out of turn, or past the rounds of the strategy.
        """
        if round_number != state.round:
            raise ValueError(f"round: got {round_number}, but this state continues with round {state.round}")
        if round_number >= self.rounds:
            raise ValueError(
                f"round: {round_number} lies past the {self.rounds} rounds of this strategy; make a longer"
            )
        noise_P = self.noise_multiplier * noise.gaussian(key, STREAM, round_number, state.num_parameters)
        product_P = np.empty_like(noise_P)
        for lag, earlier_P in enumerate(reversed(state.recent), start=1):
            noise_P -= np.multiply(self.lags_NL[round_number, lag], earlier_P, out=product_P)
        noise_P /= self.lags_NL[round_number, 0]
        noise_P.flags.writeable = False
        recent = (*state.recent, noise_P)[max(0, len(state.recent) + 2 - self.bands) :]
        return noise_P, BandedState(round_number + 1, recent, state.num_parameters)

    def sensitivity_squared(self, rounds: int, min_sep: int, max_participations: int) -> float:
        """Exact squared sensitivity in clip norms squared, before the noise multiplier.

        Columns ``bands`` or more apart share no row, so a pattern's square is the sum of its
        columns' squared norms: ``k max ||C[:, s]||^2`` when the columns have one norm.

        Raises:
          ValueError: impossible patterns, more rounds than the strategy has, or several
            participations less than ``bands`` apart.
        """
        check_pattern(rounds, min_sep, max_participations)
        self._check_rounds(rounds)
        if max_participations > 1 and min_sep < self.bands:
            raise ValueError(
                f"min_sep: {min_sep} is less than the {self.bands} bands, so columns of one device would overlap and "
                f"their norms would not add up; use at most {min_sep} bands"
            )
        return _heaviest_pattern(self._column_squares(rounds), min_sep, max_participations)

    def second_sensitivity_squared(self, rounds: int, min_sep: int, max_participations: int) -> float | None:
        """The squared sensitivity by an unrelated program; None where that would take too long."""
        self._check_rounds(rounds)
        if rounds > MAX_ROUNDS:
            return None
        return sensitivity_squared_by_windows(self.matrix()[:rounds, :rounds], min_sep, max_participations)

    def rms_error(self, rounds: int) -> float:
        """Root mean square, over prefixes, of the noise's standard deviation at multiplier 1."""
        lags_TL = self.lags_NL[:rounds, :rounds]
        first_K = np.diagonal(lags_TL)
        if np.array_equal(np.tril(np.ones(lags_TL.shape)) * first_K, lags_TL):
            return toeplitz_rms_error(first_K, rounds)
        prefix_TT = np.cumsum(np.linalg.inv(self.matrix()[:rounds, :rounds]), axis=0)
        return float(np.sqrt(np.mean(np.sum(prefix_TT**2, axis=1))))

    def noise_std(self, weights_T: np.ndarray) -> float:
        """Standard deviation of the weighted sum of the rounds' noise, ``weights_T @ noise_TP``, at multiplier 1."""
        self._check_rounds(len(weights_T))
        counts_T = np.array(weights_T, dtype=np.float64)
        # C^T x = w, from the last round back.
        for place in reversed(range(len(counts_T))):
            counts_T[place] /= self.lags_NL[place, 0]
            earlier = min(self.bands - 1, place)
            lags = np.arange(1, earlier + 1)
            counts_T[place - lags] -= self.lags_NL[place, lags] * counts_T[place]
        return float(np.linalg.norm(counts_T))

    def save(self, state: BandedState) -> dict[str, np.ndarray]:
        """The state as arrays, for a private checkpoint."""
        recent_RP = np.stack(state.recent) if state.recent else np.empty((0, state.num_parameters))
        return {"round": np.asarray(state.round, dtype=np.int64), "recent": recent_RP}

    def load(self, arrays: Mapping[str, np.ndarray]) -> BandedState:
        """The state from the arrays of a checkpoint."""
        recent_RP = np.asarray(arrays["recent"])
        return BandedState(int(arrays["round"]), tuple(recent_RP), recent_RP.shape[1])

    def matrix(self) -> np.ndarray:
        """Dense C, ``[N, N]``."""
        strategy_NN = np.zeros((self.rounds, self.rounds))
        for lag in range(self.bands):
            strategy_NN[np.arange(lag, self.rounds), np.arange(self.rounds - lag)] = self.lags_NL[lag:, lag]
        return strategy_NN

    def _check_rounds(self, rounds: int) -> None:
        if rounds > self.rounds:
            raise ValueError(f"rounds: got {rounds}, but this strategy has {self.rounds}; make a longer one")

    def _column_squares(self, rounds: int) -> np.ndarray:
        """Squared norm of each column among the first rounds, ``[rounds]``."""
        squares = np.zeros(rounds)
        for lag in range(min(self.bands, rounds)):
            squares[: rounds - lag] += self.lags_NL[lag:rounds, lag] ** 2
        return squares


def from_matrix(noise_multiplier: float, strategy_NN: np.ndarray, bands: int) -> Banded:
    """A banded mechanism of a dense C.

    Raises:
      ValueError: C is not lower-triangular with that many bands.
    """
    lags_NL = np.zeros((len(strategy_NN), bands))
    for lag in range(bands):
        lags_NL[lag:, lag] = np.diagonal(strategy_NN, -lag)
    banded = Banded(noise_multiplier, lags_NL)
    if not np.array_equal(banded.matrix(), strategy_NN):
        raise ValueError(f"strategy: has entries outside its {bands} lower bands")
    return banded


def from_coefficients(noise_multiplier: float, coefficients_L: np.ndarray, rounds: int) -> Banded:
    """A banded Toeplitz mechanism of its first column's non-zero part."""
    lags_NL = np.tril(np.ones((rounds, len(coefficients_L)))) * coefficients_L
    return Banded(noise_multiplier, lags_NL)


def _heaviest_pattern(squares_N: np.ndarray, min_sep: int, most: int) -> float:
    """Largest sum of at most ``most`` numbers whose places lie ``min_sep`` or more apart."""
    # best_N[t]: with one more participation in every pass, the last of them at round t or before.
    best_N = np.zeros(len(squares_N))
    for _ in range(most):
        before_N = np.zeros(len(squares_N))
        before_N[min_sep:] = best_N[: max(0, len(squares_N) - min_sep)]
        best_N = np.maximum.accumulate(squares_N + before_N)
    return float(best_N[-1])


def inverse_series(coefficients_K: np.ndarray, terms: int) -> np.ndarray:
    """First ``terms`` coefficients of one over the power series ``coefficients``."""
    from scipy.signal import lfilter  # A second of CPU to import, which an accountant's answer does not need.

    impulse_N = np.zeros(terms)
    impulse_N[0] = 1.0
    return lfilter([1.0], coefficients_K, impulse_N)


def toeplitz_rms_error(coefficients_K: np.ndarray, rounds: int) -> float:
    """RmsErr of the strategy with the same coefficients in every column, without its dense matrix."""
    return errors(inverse_series(coefficients_K, rounds))[1]
