"""Cohorts by secret sampling, for mechanisms whose guarantee assumes it.

Shape legend: D devices of the population.
"""

from dataclasses import dataclass, replace

import numpy as np

from federated.participation.cohorts import ParticipationState, SumOpens
from pretrain.randomness import noise

_STREAM = "sampling"


@dataclass(frozen=True)
class SampledCohorts:
    """The rule that selects the devices of each round, by coins that only the holder of the key knows.

    Guarantee: given the key is secret, a device's presence in a round is hidden and independent of
    every other round and of all data. ``poisson``: each device joins with probability
    ``sampling_rate``, independently. ``fixed``: every set of ``report_goal`` devices is equally likely.
    The launch's public seed must not determine this: against an attacker who knows the sample there is no
    amplification.

    Attributes:
      num_devices: size of the population, synthetic devices included.
      report_goal: devices in a round: expected (poisson, at ``sampling_rate`` of the configured
        population) or exact (fixed).
      sampling_rate: probability of one device.
      poisson: which of the two.
      key: 32 secret bytes.
      rounds: of the run; no device can join more.
      sum_opens: as of ``Cohorts``.
    """

    num_devices: int
    report_goal: int
    sampling_rate: float
    poisson: bool
    key: bytes
    rounds: int
    min_sep: int = 1
    sum_opens: SumOpens | None = None

    @property
    def max_participations(self) -> int:
        """Most rounds a device may join: all of them."""
        return self.rounds

    def of_canaries(self, count: int) -> "SampledCohorts":
        """Samples of ``count`` canaries at the same rate, by coins of their own."""
        return replace(
            self, num_devices=count, poisson=True, key=noise.subkey(self.key, "probe cohorts"), sum_opens=None
        )

    def init(self) -> ParticipationState:
        """State before the first round: nobody has joined."""
        return ParticipationState(
            np.full(self.num_devices, -1, dtype=np.int32), np.zeros(self.num_devices, dtype=np.int32)
        )

    def draw(self, state: ParticipationState, round_number: int) -> tuple[np.ndarray, ParticipationState]:
        """The cohort of one round, int64 ascending, and the state after it; a function of (key, round)."""
        words_D = noise.uniform_words(self.key, _STREAM, round_number, self.num_devices)
        if self.poisson:
            # At most 2^-53 off the rate: negligible against delta.
            cohort = np.flatnonzero((words_D >> np.uint64(11)).astype(np.float64) * 2.0**-53 < self.sampling_rate)
        elif self.report_goal >= self.num_devices:
            cohort = np.arange(self.num_devices)
        else:
            cohort = np.sort(np.argpartition(words_D, self.report_goal)[: self.report_goal])
        if self.sum_opens is not None and not self.sum_opens(len(cohort), 0, round_number):
            cohort = cohort[:0]
        last_round_D, count_D = state.last_round_D.copy(), state.count_D.copy()
        last_round_D[cohort] = round_number
        count_D[cohort] += 1
        return cohort, ParticipationState(last_round_D, count_D)
