"""Direction canaries in the round loop: synthetic devices with an update that an audit chose beforehand.

Shape legend: P parameters, T rounds, N canaries.

They go through the trainer's own clipping, encoding, adding, timer and noise, side by side with the devices of a
chunk (``aggregation.round_sum``) but not in the cohort's places; the denominator stays. What they add along random
directions is far below the noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from federated.local_training.clipping import Clip
from federated.local_training.sums import CanaryUpdates
from federated.participation.cohorts import Cohorts, ParticipationState
from federated.participation.secret_sample import SampledCohorts
from federated.rounds import server, witness
from federated.rounds.witness import RoundSums, Sketch, Witness
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.randomness.noise import FIXED_POINT


class Probe(Sketch, Protocol):
    """The part of ``evaluation.audit.directions.Directions`` that the loop needs.

    Attributes:
      count: N.
      included_N: bool, the canaries that send anything; the others' timers run all the same.
      commitment: names everything else.
    """

    @property
    def count(self) -> int: ...

    @property
    def included_N(self) -> np.ndarray: ...

    @property
    def commitment(self) -> str: ...

    def update(self, number: int) -> np.ndarray:
        """Float32 ``[P]``, far longer than any clip norm."""


@dataclass(frozen=True)
class ProbeState:
    """Between two rounds. Secret: released sums minus noise are sums of devices.

    Attributes:
      timer: of the canaries.
      projections_TN: of the rounds done, in each round's clip norms.
      joined_TN: bool.
      witness: of the rounds done.
    """

    timer: ParticipationState
    projections_TN: np.ndarray
    joined_TN: np.ndarray
    witness: Witness


def init(probe: Probe | None, cohorts: Cohorts | SampledCohorts, num_parameters: int) -> ProbeState | None:
    """State before the first round; None without canaries."""
    if probe is None:
        return None
    empty_TN = np.zeros((0, probe.count))
    timer = cohorts.of_canaries(probe.count).init()
    return ProbeState(timer, empty_TN, empty_TN.astype(bool), witness.init(probe.count, num_parameters))


def join(
    probe: Probe | None, cohorts: Cohorts | SampledCohorts, state: ProbeState | None
) -> tuple[CanaryUpdates | None, ProbeState | None]:
    """The canaries that send something in the coming round, and their timers after it; none without a probe.

    Canaries obey the launch's timer and cap, and join as soon and as often as these let them.
    """
    if probe is None or state is None:
        return None, None
    cohort, timer = cohorts.of_canaries(probe.count).draw(state.timer, len(state.joined_TN))
    joined_TN = np.concatenate([state.joined_TN, np.isin(np.arange(probe.count), cohort)[None]])
    sending = cohort[probe.included_N[cohort]].tolist()
    planted = CanaryUpdates(sending, probe.update) if sending else None
    return planted, replace(state, timer=timer, joined_TN=joined_TN)


def observe(
    probe: Probe | None, state: ProbeState | None, done: RoundSums, clip: Clip, model: KeyboardLM
) -> ProbeState | None:
    """The state with one more row: the released sum minus the other devices' share, along every direction.

    Args:
      model: that devices are sent next.
    """
    if probe is None or state is None:
        return None
    rest_P = done.released_sum_P / clip.norm - (done.unnoised_sum_P - done.planted_P) / FIXED_POINT
    seen = state.witness.add(witness.row(probe, done, server.flat_weights(model), clip))
    projections_TN = np.concatenate([state.projections_TN, probe.project(rest_P)[None]])
    return replace(state, projections_TN=projections_TN, witness=seen)


def save(state: ProbeState) -> dict[str, np.ndarray]:
    """The state as arrays, for a private checkpoint."""
    return {
        "last_round": state.timer.last_round_D,
        "count": state.timer.count_D,
        "projections": state.projections_TN,
        "joined": state.joined_TN,
        **({} if state.witness is None else witness.save(state.witness)),
    }


def load(arrays: Mapping[str, np.ndarray]) -> ProbeState:
    """The state from the arrays of a checkpoint."""
    timer = ParticipationState(arrays["last_round"], arrays["count"])
    return ProbeState(timer, arrays["projections"], arrays["joined"], witness.load(arrays))
