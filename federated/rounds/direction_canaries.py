"""Direction canaries in the round loop: synthetic devices whose update an audit chose beforehand.

Shape legend: P parameters, T rounds, N canaries.

They go through the trainer's own clipping, timer and noise, beside the cohort and not in its places; the
denominator stays. What they add along random directions is far below the noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from federated import noise
from federated.local_training.clipping import Clip
from federated.local_training.kernel.weights import pack, pack_flat
from federated.local_training.sums import Sums
from federated.noise import FIXED_POINT
from federated.participation.cohorts import Cohorts, ParticipationState
from federated.participation.secret_sample import SampledCohorts
from pretrain.model import KeyboardLM


class Probe(Protocol):
    """What the loop needs of ``evaluation.audit.directions.Directions``.

    Attributes:
      count: N.
      included_N: bool, the canaries that send anything; the others' timers run all the same.
      commitment: names everything else.
    """

    count: int

    @property
    def included_N(self) -> np.ndarray: ...

    @property
    def commitment(self) -> str: ...

    def update(self, number: int) -> np.ndarray:
        """Float32 ``[P]``, far longer than any clip norm."""

    def project(self, vector_P: np.ndarray) -> np.ndarray:
        """Inner products with all directions, float64 ``[N]``."""


@dataclass(frozen=True)
class ProbeState:
    """Between two rounds. Secret: released sums minus noise are sums of devices.

    Attributes:
      timer: of the canaries.
      projections_TN: of the rounds done, in each round's clip norms.
      joined_TN: bool.
    """

    timer: ParticipationState
    projections_TN: np.ndarray
    joined_TN: np.ndarray


def init(probe: Probe, cohorts: Cohorts | SampledCohorts) -> ProbeState:
    """Before the first round."""
    empty_TN = np.zeros((0, probe.count))
    return ProbeState(_rule(probe, cohorts).init(), empty_TN, empty_TN.astype(bool))


def join(
    probe: Probe,
    cohorts: Cohorts | SampledCohorts,
    state: ProbeState,
    round_number: int,
    clip: Clip,
    model: KeyboardLM,
) -> tuple[np.ndarray, ProbeState]:
    """What the canaries of one round send, int64 ``[P]`` in units of ``clip.norm / 2^44``, and their timers after it.

    Canaries obey the launch's timer and cap, and join as soon and as often as these let them. Each weighs 1.
    """
    cohort, timer = _rule(probe, cohorts).draw(state.timer, round_number)
    total, place = Sums.zeros(pack(model)), model.embedding.device
    every_word = [torch.arange(model.vocabulary_size, device=place)]
    for number in cohort[probe.included_N[cohort]]:
        update_P = torch.from_numpy(probe.update(int(number))).to(place)
        total.add(pack_flat(update_P, model), every_word, [1.0], clip)
    joined_TN = np.concatenate([state.joined_TN, np.isin(np.arange(probe.count), cohort)[None]])
    return total.flat(model).numpy(), replace(state, timer=timer, joined_TN=joined_TN)


def observe(
    probe: Probe, state: ProbeState, released_sum_P: np.ndarray, unnoised_others_P: np.ndarray, clip: Clip
) -> ProbeState:
    """The state with one more row: the released sum minus the other devices' share, along every direction."""
    rest_P = released_sum_P / clip.norm - unnoised_others_P / FIXED_POINT
    return replace(state, projections_TN=np.concatenate([state.projections_TN, probe.project(rest_P)[None]]))


def save(state: ProbeState) -> dict[str, np.ndarray]:
    """The state as arrays, for a private checkpoint."""
    return {
        "last_round": state.timer.last_round_D,
        "count": state.timer.count_D,
        "projections": state.projections_TN,
        "joined": state.joined_TN,
    }


def load(arrays: Mapping[str, np.ndarray]) -> ProbeState:
    """What ``save`` gave."""
    timer = ParticipationState(arrays["last_round"], arrays["count"])
    return ProbeState(timer, arrays["projections"], arrays["joined"])


def _rule(probe: Probe, cohorts: Cohorts | SampledCohorts) -> Cohorts | SampledCohorts:
    """The launch's rule for the canaries alone: with a timer, a place for each of them in every round."""
    if isinstance(cohorts, SampledCohorts):
        return replace(cohorts, num_devices=probe.count, poisson=True, key=noise.subkey(cohorts.key, "probe cohorts"))
    return replace(cohorts, num_devices=probe.count, report_goal=probe.count, availability=None, stress_D=None)
