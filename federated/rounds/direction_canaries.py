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

from federated.local_training.clipping import Clip
from federated.local_training.kernel.weights import pack, pack_flat
from federated.local_training.sums import Sums
from federated.noise import FIXED_POINT
from federated.participation.cohorts import Cohorts, ParticipationState
from federated.participation.secret_sample import SampledCohorts
from federated.rounds import server, witness
from federated.rounds.witness import Sketch, Witness
from pretrain.model import KeyboardLM


class Probe(Sketch, Protocol):
    """What the loop needs of ``evaluation.audit.directions.Directions``.

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
      witness: of the rounds done; None where an earlier version began the run, which wrote none down.
    """

    timer: ParticipationState
    projections_TN: np.ndarray
    joined_TN: np.ndarray
    witness: Witness | None


def init(probe: Probe | None, cohorts: Cohorts | SampledCohorts, num_parameters: int) -> ProbeState | None:
    """State before the first round; None where there are no canaries."""
    if probe is None:
        return None
    empty_TN = np.zeros((0, probe.count))
    timer = cohorts.of_canaries(probe.count).init()
    return ProbeState(timer, empty_TN, empty_TN.astype(bool), witness.init(probe.count, num_parameters))


def join(
    probe: Probe | None,
    cohorts: Cohorts | SampledCohorts,
    state: ProbeState | None,
    clip: Clip,
    model: KeyboardLM,
    unnoised_P: np.ndarray,
) -> tuple[np.ndarray, ProbeState | None]:
    """The devices' sum with what the canaries of one round send, and the canaries' timers after it.

    Canaries obey the launch's timer and cap, and join as soon and as often as these let them. Each weighs 1. Without
    canaries nothing changes.

    Args:
      unnoised_P: the devices' sum, int64 in units of ``clip.norm / 2^44``, as the sum with canaries is.
    """
    if probe is None or state is None:
        return unnoised_P, None
    cohort, timer = cohorts.of_canaries(probe.count).draw(state.timer, len(state.joined_TN))
    total, place = Sums.zeros(pack(model)), model.embedding.device
    every_word = [torch.arange(model.vocabulary_size, device=place)]
    for number in cohort[probe.included_N[cohort]]:
        update_P = torch.from_numpy(probe.update(int(number))).to(place)
        total.add(pack_flat(update_P, model), every_word, [1.0], clip)
    joined_TN = np.concatenate([state.joined_TN, np.isin(np.arange(probe.count), cohort)[None]])
    return unnoised_P + total.flat(model).numpy(), replace(state, timer=timer, joined_TN=joined_TN)


def observe(
    probe: Probe | None,
    state: ProbeState | None,
    unnoised_others_P: np.ndarray,
    unnoised_sum_P: np.ndarray,
    released_sum_P: np.ndarray,
    clip: Clip,
    model: KeyboardLM,
) -> ProbeState | None:
    """The state with one more row: the released sum minus the other devices' share, along every direction.

    Args:
      unnoised_others_P, unnoised_sum_P: int64 without and with canaries.
      released_sum_P: what the server's optimiser was given.
      model: that devices are sent next.
    """
    if probe is None or state is None:
        return None
    rest_P = released_sum_P / clip.norm - unnoised_others_P / FIXED_POINT
    seen = state.witness
    if seen is not None:
        sent_P = server.flat_weights(model)
        seen = seen.add(witness.row(probe, unnoised_sum_P, released_sum_P, sent_P, clip.norm))
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
