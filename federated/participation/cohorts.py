"""Who joins which round, and what the records say about it afterwards.

Shape legend: D devices of the population, N participations on record.

The timer of the Gboard papers counts the rounds strictly *between* two participations (MinS,
McMahan et al. 2024, section 2); ``min_sep`` here is the difference of the two round numbers,
``min_sep = MinS + 1``. Both have a name of their own in ``Observed``.
"""

import math
from dataclasses import dataclass

import numpy as np

from federated.participation import turnout
from federated.participation.availability import Availability
from federated.participation.records import Records
from federated.participation.turnout import Turnout

_NEVER = -1
# Guesses at available devices, rounds of them, before all devices of a population that is not large are looked at.
_GUESSES = 4
_SMALL = 4
_MANY = 100_000
_STRESS_STREAM = 0x737472657373  # "stress"
_COHORT_STREAM = 0x636F686F7274  # "cohort": apart from every other use of the launch's seed


@dataclass(frozen=True)
class ParticipationState:
    """What the server remembers about each device.

    Attributes:
      last_round_D: int32, the round it last joined; -1 if it never did.
      count_D: int32, the rounds it has joined.
    """

    last_round_D: np.ndarray
    count_D: np.ndarray


@dataclass(frozen=True)
class Cohorts:
    """The rule that picks the devices of each round.

    Attributes:
      num_devices: size of the population, synthetic devices included.
      report_goal: devices in a round, at most.
      min_sep: rounds from one participation to the next, at least.
      max_participations: rounds one device may join, at most.
      seed: the launch's public seed.
      availability: which devices check in, and which of the selected report; None: all, at once.
      stress_D: bool, synthetic devices outside timer and cap, for the audit's stress canaries; None: none.
      stress_rate: chance of a stress device to join a round; it takes one of the ``report_goal`` places.
    """

    num_devices: int
    report_goal: int
    min_sep: int
    max_participations: int
    seed: int
    availability: Availability | None = None
    stress_D: np.ndarray | None = None
    stress_rate: float = 0.0

    def init(self) -> ParticipationState:
        """Nobody has joined yet."""
        return ParticipationState(
            np.full(self.num_devices, _NEVER, dtype=np.int32), np.zeros(self.num_devices, dtype=np.int32)
        )

    def available(self, state: ParticipationState, round_number: int) -> np.ndarray:
        """Devices whose timer has run out, who may still join and who check in, ascending."""
        return np.flatnonzero(self._ready(state, round_number, slice(None)))

    def draw(self, state: ParticipationState, round_number: int) -> tuple[np.ndarray, ParticipationState]:
        """The cohort of one round and the state after it.

        A pure function of (seed, round, state), so a retried round has the same cohort. Uniform
        over the sets of ``report_goal`` available devices; all of them if there are fewer, and the
        round goes on: the denominator of the mean stays the report goal. With ``availability`` more
        are selected, some drop out, and those after the first ``report_goal`` are too late; only who is
        aggregated counts as having joined.

        Guarantee: no device joins two rounds less than ``min_sep`` apart, nor more than
        ``max_participations`` rounds, but for those of ``stress_D``, which are nobody's. The draw reads
        no client data.

        Returns:
          Device numbers, int64, ascending; and the new state (the old one is unchanged).
        """
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([_COHORT_STREAM, self.seed, round_number])))
        stressed = self._stressed(round_number)
        places = self.report_goal - len(stressed)
        if self.availability is None:
            cohort = self._select(state, round_number, rng, places)
        else:
            selected = self._select(state, round_number, rng, self.availability.selected(places))
            cohort = self.availability.reporting(selected, round_number)[:places]
        cohort = np.sort(np.concatenate([cohort, stressed]))
        last_round_D, count_D = state.last_round_D.copy(), state.count_D.copy()
        last_round_D[cohort] = round_number
        count_D[cohort] += 1
        return cohort, ParticipationState(last_round_D, count_D)

    def _stressed(self, round_number: int) -> np.ndarray:
        """Stress devices of one round, each by a coin of its own; never more than there are places."""
        if self.stress_D is None:
            return np.empty(0, dtype=np.int64)
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([_STRESS_STREAM, self.seed, round_number])))
        devices = np.flatnonzero(self.stress_D)
        return rng.permutation(devices[rng.random(len(devices)) < self.stress_rate])[: self.report_goal]

    def _ready(self, state: ParticipationState, round_number: int, devices: np.ndarray | slice) -> np.ndarray:
        last, count = state.last_round_D[devices], state.count_D[devices]
        ready = ((last == _NEVER) | (round_number - last >= self.min_sep)) & (count < self.max_participations)
        if self.stress_D is not None:
            ready &= ~self.stress_D[devices]
        if self.availability is not None:
            numbers = np.arange(self.num_devices) if isinstance(devices, slice) else devices
            ready[ready] = self.availability.awake(numbers[ready], round_number)
        return ready

    def _select(
        self, state: ParticipationState, round_number: int, rng: np.random.Generator, wanted: int
    ) -> np.ndarray:
        """So many available devices in random order, every order equally likely; all if there are fewer.

        In a large population devices are drawn at random and kept if available, which costs what
        the cohort costs; if that finds too few, the rest comes from a look at all devices.
        """
        taken, asked, guesses = np.empty(0, dtype=np.int64), 0, 0
        size = 2 * wanted if self.num_devices > _SMALL * wanted else 0
        while size:
            tried = rng.integers(self.num_devices, size=size)
            both = np.concatenate([taken, tried[self._ready(state, round_number, tried)]])
            _, first = np.unique(both, return_index=True)
            taken = both[np.sort(first)]
            if len(taken) >= wanted:
                return taken[:wanted]
            asked, guesses = asked + size, guesses + 1
            size = self._next_guess(wanted - len(taken), len(taken), asked, guesses)
        rest = np.setdiff1d(self.available(state, round_number), taken, assume_unique=True)
        missing = min(wanted - len(taken), len(rest))
        return np.concatenate([taken, rng.choice(rest, size=missing, replace=False)])

    def _next_guess(self, missing: int, found: int, asked: int, guesses: int) -> int:
        """Devices to try next; 0 to look at all. Counts alone decide, so no device is favoured."""
        if guesses < _GUESSES:
            return 2 * missing
        # As many as found the ones before, and a little more; not where a look at all costs no more.
        size = math.ceil(1.2 * missing * asked / max(found, 1))
        return size if self.num_devices >= _MANY and asked + size < self.num_devices / _SMALL else 0


@dataclass(frozen=True)
class Observed:
    """What the records of the protected devices show; the accountant's input. Holds no device.

    Attributes:
      rounds: rounds done.
      min_sep: smallest difference between the round numbers of two participations of one device;
        None if no device joined twice.
      mins: the papers' MinS, the rounds strictly between: ``min_sep - 1``.
      max_participations: the papers' MaxP, most rounds that one device joined.
      participation_histogram: rounds joined -> devices (those that joined none are not counted).
      separation_histogram: difference of round numbers -> how often.
      violations: over all devices, synthetic ones too: pairs of participations closer than the
        enforced ``min_sep``, and devices above the enforced ``max_participations``.
      synthetic_devices: planted devices, which the other numbers leave out.
      turnout: how full the rounds were, planted devices included; None where the sample is secret.
    """

    rounds: int
    min_sep: int | None
    mins: int | None
    max_participations: int
    participation_histogram: dict[int, int]
    separation_histogram: dict[int, int]
    violations: int
    synthetic_devices: int
    turnout: Turnout | None = None


def observe(records: Records, rounds: int, cohorts: Cohorts, synthetic_D: np.ndarray) -> Observed:
    """Sum up the records.

    Args:
      rounds: rounds done, those without a participant too.
      cohorts: the rule that was to be enforced; it does not bind its stress devices.
      synthetic_D: bool, devices made for the audit.
    """
    counts_all_D = records.participations(cohorts.num_devices)
    stress_D = getattr(cohorts, "stress_D", None)
    bound_D = np.ones(cohorts.num_devices, dtype=bool) if stress_D is None else ~stress_D
    bound = bound_D[records.devices_N]
    separations_all = _separations(Records(records.rounds_N[bound], records.devices_N[bound]))
    violations = int(
        np.sum(separations_all < cohorts.min_sep) + np.sum(counts_all_D[bound_D] > cohorts.max_participations)
    )
    protected = ~synthetic_D[records.devices_N]
    separations = _separations(Records(records.rounds_N[protected], records.devices_N[protected]))
    counts_D = counts_all_D[~synthetic_D]
    min_sep = int(separations.min()) if len(separations) else None
    return Observed(
        rounds=rounds,
        min_sep=min_sep,
        mins=None if min_sep is None else min_sep - 1,
        max_participations=int(counts_D.max(initial=0)),
        participation_histogram=_histogram(counts_D[counts_D > 0]),
        separation_histogram=_histogram(separations),
        violations=violations,
        synthetic_devices=int(np.sum(synthetic_D)),
        turnout=_turnout(records, rounds, cohorts),
    )


def _turnout(records: Records, rounds: int, cohorts: Cohorts) -> Turnout | None:
    if not isinstance(cohorts, Cohorts):
        # How many a secret sample drew is part of the secret.
        return None
    return turnout.seen(records, rounds, cohorts.num_devices, cohorts.report_goal, cohorts.availability)


def _separations(records: Records) -> np.ndarray:
    order = np.lexsort((records.rounds_N, records.devices_N))
    rounds, devices = records.rounds_N[order], records.devices_N[order]
    return np.diff(rounds)[np.diff(devices) == 0]


def _histogram(values: np.ndarray) -> dict[int, int]:
    keys, counts = np.unique(values, return_counts=True)
    return {int(key): int(count) for key, count in zip(keys, counts, strict=True)}
