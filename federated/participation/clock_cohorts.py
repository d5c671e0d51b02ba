"""Cohorts by the clock: devices check in when they are awake and rested, and a round ends when its goal is filled.

In production, no separation in rounds is enforced. A device rests for a timer of whole days, and the number of rounds
meanwhile depends on the check-ins by day and by night (Bonawitz et al. 2019, *Towards Federated
Learning at Scale*, sections 2.3 and 9; Xu et al. 2023, section 2.2). The ledger's reservation before the
run is the worst case of two limits in rounds, so these are enforced in addition to the hours.

Shape legend: D devices of the population, A arrivals of an hour.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from federated.participation.availability import Availability
from federated.participation.cohorts import Cohorts, ParticipationState

# Minutes from the last selected device to the sum: download, local training, upload.
ROUND_MINUTES = 3.0
_ARRIVALS = 0x636C6F636B  # "clock": apart from every other use of a seed


@dataclass(frozen=True, kw_only=True)
class ClockState(ParticipationState):
    """Server's memory of each device, and the time.

    Attributes:
      rests_until_D: float64, hours since the first round opened; a device does not check in before.
      opens: hours, opening time of the next round.
      hour: hour of the known check-ins.
      arrival_A, arrived_A: times of these check-ins, ascending, and the devices.
    """

    rests_until_D: np.ndarray
    opens: float
    hour: int
    arrival_A: np.ndarray
    arrived_A: np.ndarray


@dataclass(frozen=True)
class ClockCohorts(Cohorts):
    """The rule that picks the devices of each round by the clock.

    Attributes:
      timer_days: whole days that a device rests.
      round_minutes: from the last device selected to the end of the round.
    """

    timer_days: int = 1
    round_minutes: float = ROUND_MINUTES

    @property
    def day(self) -> Availability:
        """Devices awake at each hour, and those that report; its ``round_minutes`` is not used."""
        return self.availability or Availability(seed=self.seed)

    @property
    def patience_hours(self) -> float:
        """Hours that a round stays open: every rested device checks in within a day, so a longer wait adds none."""
        return 24.0 * (self.timer_days + 1)

    def init(self) -> ClockState:
        """State before the first round: nobody has joined, and it is the first hour."""
        before, nobody = super().init(), np.empty(0)
        return ClockState(
            before.last_round_D,
            before.count_D,
            rests_until_D=np.zeros(self.num_devices),
            opens=0.0,
            hour=-1,
            arrival_A=nobody,
            arrived_A=nobody.astype(np.int64),
        )

    def of_canaries(self, count: int) -> Cohorts:
        """The same limits in rounds for canaries, which are always awake and need no rest."""
        return Cohorts(count, count, self.min_sep, self.max_participations, self.seed)

    def draw(self, state: ParticipationState, round_number: int) -> tuple[np.ndarray, ClockState]:
        """The cohort of one round and the state after it.

        A pure function of (seed, round, state). A device that is awake in an hour checks in at a time uniformly
        spread over it, as Pace Steering requests. Devices that arrive while the round is open are selected, up to
        ``1.3 report_goal``; a device that arrives between rounds, or that a limit excludes, is rejected for the hour.
        Some selected devices never report; the first ``report_goal`` of the others are aggregated, and rest for the
        timer from the end of the round. A round that does not fill ends with the devices that came, and the
        denominator of the mean stays the report goal. A round whose sum secure aggregation loses has no devices.

        Guarantee: no device joins two rounds less than ``min_sep`` apart, nor more than ``max_participations``
        rounds, nor within ``timer_days`` of the end of a round that it joined, except those of ``stress_D``, which
        are synthetic. Canary devices are assigned rounds, and do not rest by the clock. So the accounting for the two
        limits is an upper bound for any clock. The draw reads no client data.

        Returns:
          Device numbers, int64, ascending; and the new state (the old one is unchanged).
        """
        if not isinstance(state, ClockState):
            raise TypeError("state: of cohorts without a clock; begin with init()")
        planted = self.planted(state, round_number)
        places = self.report_goal - len(planted)
        wanted = self.day.selected(places)
        rests_until_D = state.rests_until_D.copy()
        at, gathered = state, np.empty(0, dtype=np.int64)
        end = state.opens
        possible = int(np.sum(self.within_limits(state, round_number, slice(None))))
        while len(gathered) < wanted:
            if math.floor(state.opens) > at.hour:
                at = self._arrivals(at, rests_until_D, math.floor(state.opens))
            came = at.arrived_A[at.arrival_A >= state.opens]
            let_in = came[self.within_limits(state, round_number, came)][: wanted - len(gathered)]
            gathered = np.concatenate([gathered, let_in])
            if len(gathered) == wanted:
                end = float(at.arrival_A[at.arrived_A == let_in[-1]][0])
                break
            # No device is left to wait for, or none came in all that time.
            if len(gathered) == possible or at.hour + 1 - state.opens > self.patience_hours:
                end = state.opens + self.patience_hours
                break
            rests_until_D[let_in] = np.inf  # busy: it does not check in again while its round is open
            at = self._arrivals(at, rests_until_D, at.hour + 1)
        end += self.round_minutes / 60
        reported, dropped = self.day.reporting(gathered, round_number, places)
        cohort = self._summed(np.concatenate([reported, planted]), dropped, round_number)
        rests_until_D[gathered] = end
        rests_until_D[cohort] = end + 24 * self.timer_days
        last_round_D, count_D = state.last_round_D.copy(), state.count_D.copy()
        last_round_D[cohort] = round_number
        count_D[cohort] += 1
        lasted = (state.opens, end)
        after = replace(
            at,
            last_round_D=last_round_D,
            count_D=count_D,
            lasted=lasted,
            dropped=dropped,
            rests_until_D=rests_until_D,
            opens=end,
        )
        return cohort, after

    def _arrivals(self, state: ClockState, rests_until_D: np.ndarray, hour: int) -> ClockState:
        """The state with the check-ins of an hour: devices that are awake, and rested when they arrive."""
        ready = np.flatnonzero(rests_until_D < hour + 1)
        awake = ready[self.day.awake_at(ready, hour)]
        arrival_A = hour + self.day.uniform(_ARRIVALS, awake, hour)
        in_time = arrival_A >= rests_until_D[awake]
        awake, arrival_A = awake[in_time], arrival_A[in_time]
        order = np.argsort(arrival_A, kind="stable")
        return replace(state, hour=hour, arrival_A=arrival_A[order], arrived_A=awake[order])
