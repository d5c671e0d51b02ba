"""Audits of training while it runs: a fault of noise or participation ends the run in the round in which it shows.

After each round, before its model is kept or sent, the watch tests

* separation: no device joins sooner or more often than the limits allow, from the cohorts themselves;
* canaries: each direction canary that sends its update is in the sum that gets the noise, and nothing else is;
* key: the first numbers of the noise are those of the key, by the audit's own generator;
* scale and reuse: e-processes on the noise along secret directions (``e_process``).

The first three are arithmetic: an e-value of 0 or infinity, without an error probability. The other two need no key, so
they also see a fault that a key's own noise has. All values are secret; a run learns from the watch only to stop.

Shape legend: T rounds, N directions, P parameters, F first numbers of a vector, D devices.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from evaluation.audit.directions import Directions
from evaluation.audit.e_process import CORRELATIONS_K, SCALES_K, EProcess, reuse_ratios, scale_ratios
from evaluation.audit.keyed_noise import gaussian, step_of
from evaluation.audit.strategies import Strategy
from evaluation.config import STOP_ALPHA

# The e-processes that share the probability of a false stop.
_E_PROCESSES = 2
# Numbers of each round's noise that are drawn again: enough to tell two keys, at a thousandth of the cost of all.
_FIRST = 1024
# A sum's whole numbers are multiples of this many clip norms.
_UNITS = 2**44
# Tolerance of noise that is added in another order, relative to the noise multiplier.
_REORDERED = 2.0**-36
# Length of a canary's update along its own direction, in clip norms, below which it was not sent. Encoding and clipping
# by layer turn an honest one by less; the audit after training tests the length itself.
_PRESENT = 0.5


class Stopped(Exception):
    """Evidence that a run is not what was claimed; the text names the test and no number.

    Attributes:
      state: the watch's state with the round that shows it. Secret.
    """

    def __init__(self, text: str, state: "WatchState") -> None:
        super().__init__(text)
        self.state = state


class SeenRounds(Protocol):
    """The part of ``federated.rounds.witness.Witness`` that the watch needs: a row for each round done."""

    @property
    def sums_TN(self) -> np.ndarray: ...

    @property
    def released_TN(self) -> np.ndarray: ...

    @property
    def planted_TN(self) -> np.ndarray: ...

    @property
    def clips_T(self) -> np.ndarray: ...

    @property
    def missing_T(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Limits:
    """Limits on the rounds of a device.

    Attributes:
      min_sep: least difference of two of its rounds' numbers.
      bound_D: bool, devices that the limits bind; canaries that are always available are not among them.
    """

    min_sep: int
    max_participations: int
    bound_D: np.ndarray


@dataclass(frozen=True)
class WatchState:
    """Evidence after the rounds done. Secret.

    Attributes:
      white_TN: whitened noise in units of the claimed noise.
      scale, reuse: the e-processes.
      log_values_T2: logarithms of both e-values after each round.
      last_round_D, count_D: last round of each device, -1 for none, and its number of rounds.
    """

    white_TN: np.ndarray
    scale: EProcess
    reuse: EProcess
    log_values_T2: np.ndarray
    last_round_D: np.ndarray
    count_D: np.ndarray


@dataclass(frozen=True)
class Watch:
    """The claim about a run, against which each of its rounds is tested.

    Guarantee: an honest run is stopped with probability at most ``alpha``, whenever it ends.

    Attributes:
      whitener_TT: of the mechanism, over all rounds of the run.
      strategy: the same as mixtures of keyed vectors.
      noise_multiplier: of the released sums, in clip norms.
      key: of the noise, as the ledger holds a commitment to it.
      limits: on the rounds of a device.
    """

    directions: Directions
    whitener_TT: np.ndarray
    strategy: Strategy
    noise_multiplier: float
    key: bytes
    limits: Limits
    alpha: float = STOP_ALPHA

    @cached_property
    def _first_TF(self) -> np.ndarray:
        """The first numbers of every round's noise, in clip norms. Secret."""
        size = min(_FIRST, self.directions.num_parameters)
        drawn_KF = np.array([gaussian(self.key, stream, index, size) for stream, index in self.strategy.vectors_K])
        return self.noise_multiplier * (self.strategy.mixing_TK @ drawn_KF)

    def begin(self, seen: SeenRounds, cohorts: Iterable[tuple[int, np.ndarray]]) -> WatchState:
        """The state after the rounds of a checkpoint, which passed when they were run; at first there are none.

        Args:
          cohorts: round and devices of each of these rounds.
        """
        rounds, devices = len(self.whitener_TT), len(self.limits.bound_D)
        state = WatchState(
            np.zeros((0, self.directions.count)),
            EProcess.begin(rounds, len(SCALES_K)),
            EProcess.begin(rounds, len(CORRELATIONS_K)),
            np.zeros((0, 2)),
            np.full(devices, -1, dtype=np.int64),
            np.zeros(devices, dtype=np.int64),
        )
        for number, cohort in cohorts:
            state = _with_cohort(state, number, cohort)
        noise_TN = seen.released_TN / seen.clips_T[:, None] - seen.sums_TN
        for number in range(len(noise_TN)):
            state = self._with_noise(state, noise_TN[: number + 1])
        return state

    def after(
        self,
        state: WatchState,
        cohort: np.ndarray,
        unnoised_P: np.ndarray,
        released_P: np.ndarray,
        joined_N: np.ndarray,
        seen: SeenRounds,
    ) -> WatchState:
        """The state after one more round.

        Args:
          cohort: its devices.
          unnoised_P: int64, the sum that got the noise, in units of a clip norm / 2^44; released_P: with the noise.
          joined_N: bool, canaries that its timer admitted.
          seen: its row is the last.

        Raises:
          Stopped: a test speaks against the run.
        """
        number, sends_N = len(state.white_TN), joined_N & self.directions.included_N
        too_soon = breaks_limits(state, number, cohort, self.limits)
        noise_TN = seen.released_TN / seen.clips_T[:, None] - seen.sums_TN
        state = self._with_noise(_with_cohort(state, number, cohort), noise_TN)
        first_F, clip_norm = self._first_TF[number], float(seen.clips_T[-1])
        gaps_F = released_P[: len(first_F)] / clip_norm - unnoised_P[: len(first_F)] / _UNITS - first_F
        slack = step_of(self.noise_multiplier) / 2 + _REORDERED * self.noise_multiplier
        if too_soon:
            fault = "a device joined sooner or more often than the limits allow"
        elif seen.missing_T[-1] or not np.all(seen.planted_TN[-1][sends_N] >= _PRESENT):
            fault = "the sum is not that of its devices and of all direction canaries that sent their update"
        elif not np.abs(gaps_F).max() <= slack:
            fault = "the noise is not that of the launch's key"
        elif state.scale.refutes(self.alpha / _E_PROCESSES):
            fault = "the noise is not of the claimed scale"
        elif state.reuse.refutes(self.alpha / _E_PROCESSES):
            fault = "the noise is not independent of an earlier round's"
        else:
            return state
        raise Stopped(f"round {number + 1} of {len(self.whitener_TT)}: {fault}", state)

    def _with_noise(self, state: WatchState, noise_TN: np.ndarray) -> WatchState:
        """The state with the last of these rounds' noise, in clip norms along the directions."""
        number = len(noise_TN) - 1
        white_N = self.whitener_TT[number, : number + 1] @ noise_TN / self.noise_multiplier
        scale = state.scale.after(scale_ratios(white_N))
        reuse = state.reuse.after(reuse_ratios(state.white_TN, white_N))
        return replace(
            state,
            white_TN=np.concatenate([state.white_TN, white_N[None]]),
            scale=scale,
            reuse=reuse,
            log_values_T2=np.concatenate([state.log_values_T2, [[scale.log_value, reuse.log_value]]]),
        )


def breaks_limits(state: WatchState, number: int, cohort: np.ndarray, limits: Limits) -> bool:
    """Return whether a device of this round breaks a limit, or is in it twice."""
    bound = cohort[limits.bound_D[cohort]]
    last, count = state.last_round_D[bound], state.count_D[bound]
    soon = (last >= 0) & (number - last < limits.min_sep)
    twice = len(np.unique(cohort)) < len(cohort)
    return bool(twice or np.any(soon) or np.any(count >= limits.max_participations))


def _with_cohort(state: WatchState, number: int, cohort: np.ndarray) -> WatchState:
    last_round_D, count_D = state.last_round_D.copy(), state.count_D.copy()
    last_round_D[cohort] = number
    count_D[cohort] += 1
    return replace(state, last_round_D=last_round_D, count_D=count_D)
