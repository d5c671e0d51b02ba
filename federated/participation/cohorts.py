"""Cohorts under a timer and a cap: the rule that assigns devices to rounds.

Shape legend: D devices of the population.

The timer of the Gboard papers counts the rounds strictly *between* two participations (MinS,
Xu et al. 2023, section 2.2); ``min_sep`` here is the difference of the two round numbers,
``min_sep = MinS + 1``. Both have separate names in ``observation.Observation``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from federated.participation.availability import Availability

_NEVER = -1
# Attempts to sample random devices before a scan of all devices, and the least population, in cohorts, for sampling.
_TRIES, _COHORTS = 4, 4
_STRESS_STREAM = 0x737472657373  # "stress"
_COHORT_STREAM = 0x636F686F7274  # "cohort": apart from every other use of the launch's seed


@dataclass(frozen=True)
class ParticipationState:
    """Server's memory of each device.

    Attributes:
      last_round_D: int32, the round it last joined; -1 if it never did.
      count_D: int32, the rounds it has joined.
      lasted: hours at which the round before this state opened and ended; None without a clock.
      dropped: devices of that round that dropped out while they reported.
    """

    last_round_D: np.ndarray
    count_D: np.ndarray
    lasted: tuple[float, float] | None = None
    dropped: int = 0


# Whether secure aggregation opens the sum of so many devices, if so many others drop out while they report, in a round.
SumOpens = Callable[[int, int, int], bool]


@dataclass(frozen=True)
class Cohorts:
    """The rule that picks the devices of each round.

    Attributes:
      num_devices: size of the population, synthetic devices included.
      report_goal: devices in a round, at most.
      min_sep: rounds from one participation to the next, at least.
      max_participations: rounds one device may join, at most.
      seed: who joins when; secret in launches of people, which draw it from their key.
      availability: check-ins and reports of devices; None: all devices, immediately.
      stress_D: bool, synthetic devices outside timer and cap, for the audit's stress canaries; None: none.
      stress_rate: chance of a stress device to join a round; it takes one of the ``report_goal`` places.
      sum_opens: a round whose sum does not open has no devices; None: without secure aggregation.
      assigned_D: bool, canary devices under timer and cap, which join as often as both allow; None: none.
      rounds: of the run, for the turns of ``assigned_D``.
    """

    num_devices: int
    report_goal: int
    min_sep: int
    max_participations: int
    seed: int
    availability: Availability | None = None
    stress_D: np.ndarray | None = None
    stress_rate: float = 0.0
    sum_opens: SumOpens | None = None
    assigned_D: np.ndarray | None = None
    rounds: int = 0

    def init(self) -> ParticipationState:
        """State before the first round: nobody has joined."""
        return ParticipationState(
            np.full(self.num_devices, _NEVER, dtype=np.int32), np.zeros(self.num_devices, dtype=np.int32)
        )

    def of_canaries(self, count: int) -> "Cohorts":
        """The same timer and cap for ``count`` canary devices, with a cohort large enough for all of them."""
        alone = replace(self, num_devices=count, report_goal=count, availability=None, sum_opens=None)
        return replace(alone, stress_D=None, assigned_D=None)

    def available(self, state: ParticipationState, round_number: int) -> np.ndarray:
        """Devices with an expired timer and participations left that check in, ascending."""
        return np.flatnonzero(self.ready(state, round_number, slice(None)))

    def draw(self, state: ParticipationState, round_number: int) -> tuple[np.ndarray, ParticipationState]:
        """The cohort of one round and the state after it.

        A pure function of (seed, round, state), so a retried round has the same cohort. Uniform
        over the sets of ``report_goal`` available devices; all of them if there are fewer, and the
        round continues: the denominator of the mean stays the report goal. With ``availability`` more
        are selected, some drop out, and those after the first ``report_goal`` are too late; only
        aggregated devices count as having joined: none where secure aggregation loses the sum.

        Canary devices are not drawn: they take places whenever it is their turn (``assigned``), so that the audit
        attacks devices of the most participations that the guarantee allows.

        Guarantee: no device joins two rounds less than ``min_sep`` apart, nor more than
        ``max_participations`` rounds, except those of ``stress_D``, which are synthetic. The draw reads
        no client data.

        Returns:
          Device numbers, int64, ascending; and the new state (the old one is unchanged).
        """
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([_COHORT_STREAM, self.seed, round_number])))
        planted = self.planted(state, round_number)
        places = self.report_goal - len(planted)
        if self.availability is None:
            cohort, dropped = self._select(state, round_number, rng, places), 0
        else:
            selected = self._select(state, round_number, rng, self.availability.selected(places))
            cohort, dropped = self.availability.reporting(selected, round_number, places)
        cohort = self._summed(np.concatenate([cohort, planted]), dropped, round_number)
        last_round_D, count_D = state.last_round_D.copy(), state.count_D.copy()
        last_round_D[cohort] = round_number
        count_D[cohort] += 1
        return cohort, ParticipationState(last_round_D, count_D, dropped=dropped)

    def _summed(self, reported: np.ndarray, dropped: int, round_number: int) -> np.ndarray:
        """Devices of the round's sum, ascending."""
        if self.sum_opens is not None and not self.sum_opens(len(reported), dropped, round_number):
            return reported[:0]
        return np.sort(reported)

    def planted(self, state: ParticipationState, round_number: int) -> np.ndarray:
        """Synthetic devices of one round: those assigned to it, then those under stress as far as places are left."""
        assigned = self.assigned(state, round_number)
        if self.stress_D is None:
            return assigned
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([_STRESS_STREAM, self.seed, round_number])))
        devices = np.flatnonzero(self.stress_D)
        stressed = rng.permutation(devices[rng.random(len(devices)) < self.stress_rate])
        return np.concatenate([assigned, stressed[: self.report_goal - len(assigned)]])

    def assigned(self, state: ParticipationState, round_number: int) -> np.ndarray:
        """Canary devices that join a round: from a first turn of its own, each joins whenever timer and cap admit it.

        First turns are spread evenly over the rounds from which most participations are still possible. The schedule
        is public, and the same for any population. A round whose secure sum is lost is made up for.
        """
        if self.assigned_D is None:
            return np.empty(0, dtype=np.int64)
        devices = np.flatnonzero(self.assigned_D)
        first_turns, _ = _turns(self.rounds, self.min_sep, self.max_participations)
        turn_K = np.arange(len(devices)) * first_turns // len(devices)
        admitted_K = self._admitted(state, round_number, devices)
        return devices[(turn_K <= round_number) & admitted_K][: self.report_goal]

    def ready(self, state: ParticipationState, round_number: int, devices: np.ndarray | slice) -> np.ndarray:
        ready = self.within_limits(state, round_number, devices)
        if self.availability is not None:
            numbers = np.arange(self.num_devices) if isinstance(devices, slice) else devices
            ready[ready] = self.availability.awake(numbers[ready], round_number)
        return ready

    def within_limits(self, state: ParticipationState, round_number: int, devices: np.ndarray | slice) -> np.ndarray:
        """Devices that timer and cap admit to a draw; no canary device is drawn."""
        within = self._admitted(state, round_number, devices)
        for planted_D in (self.stress_D, self.assigned_D):
            if planted_D is not None:
                within &= ~planted_D[devices]
        return within

    def _admitted(self, state: ParticipationState, round_number: int, devices: np.ndarray | slice) -> np.ndarray:
        last, count = state.last_round_D[devices], state.count_D[devices]
        return ((last == _NEVER) | (round_number - last >= self.min_sep)) & (count < self.max_participations)

    def _select(
        self, state: ParticipationState, round_number: int, rng: np.random.Generator, wanted: int
    ) -> np.ndarray:
        """A number of available devices in uniformly random order; all if there are fewer.

        In a large population, devices are drawn at random and kept if available, at a cost
        proportional to the cohort; if too few are found, the rest comes from a scan of all devices.
        """
        taken = np.empty(0, dtype=np.int64)
        for _ in range(_TRIES if self.num_devices > _COHORTS * wanted else 0):
            tried = rng.integers(self.num_devices, size=2 * (wanted - len(taken)))
            both = np.concatenate([taken, tried[self.ready(state, round_number, tried)]])
            _, first = np.unique(both, return_index=True)
            taken = both[np.sort(first)]
            if len(taken) >= wanted:
                return taken[:wanted]
        rest = np.setdiff1d(self.available(state, round_number), taken, assume_unique=True)
        missing = min(wanted - len(taken), len(rest))
        return np.concatenate([taken, rng.choice(rest, size=missing, replace=False)])


def most_assigned(devices: int, rounds: int, min_sep: int, max_participations: int) -> int:
    """Upper bound on the canary devices assigned to one round."""
    first_turns, most = _turns(rounds, min_sep, max_participations)
    return min(devices, most * -(-devices // first_turns))


def _turns(rounds: int, min_sep: int, max_participations: int) -> tuple[int, int]:
    """Number of rounds from which a device can still join most often, and how often that is."""
    most = min(max_participations, 1 + (rounds - 1) // min_sep)
    return rounds - (most - 1) * min_sep, most
