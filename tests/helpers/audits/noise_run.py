"""A small honest round loop with direction canaries, out of the project's own parts, and five ways to break it.

Suffixes: P parameters, T rounds, N directions.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from evaluation.audit import whitening
from evaluation.audit.directions import Directions
from evaluation.audit.matched_filter import Claim
from federated import mechanisms
from federated.accounting.guarantees import guarantee_of
from federated.local_training.clipping import release
from federated.mechanisms.blt import Blt, BltState
from federated.mechanisms.tree import Tree, TreeState
from federated.participation.cohorts import Cohorts
from pretrain.kernel.threads import one_torch_thread
from pretrain.randomness import noise
from pretrain.randomness.noise import FIXED_POINT
from tests.federated.reference_sgd import clip_to_grid

ROUNDS, MIN_SEP, MOST, RESTART = 64, 16, 4, 40
PARAMETERS, CLIP_NORM, DELTA = 4096, 0.3, 1e-10
Clipper = Callable[[list[torch.Tensor], float], list[torch.Tensor]]


def tree(noise_multiplier: float = 2.5) -> Tree:
    return Tree(noise_multiplier, (RESTART,))


def blt(noise_multiplier: float = 1.5) -> Blt:
    return Blt(noise_multiplier, (0.97, 0.6), (0.25, 0.3), (RESTART,))


@functools.cache
def claim(mechanism: Tree | Blt, min_sep: int = MIN_SEP, most: int = MOST) -> Claim:
    """What the project's accountant says of the mechanism."""
    whitener_TT = mechanisms.whitener(mechanism, ROUNDS, whitening.of_tree, whitening.of_coefficients)
    promised = guarantee_of(mechanism, ROUNDS, min_sep, most, (DELTA,))
    return Claim(whitener_TT, mechanism.noise_multiplier, promised.mu)


# Vectors as small as these are slower on several threads than on one, the more so where cores are shared.
@one_torch_thread()
def run(
    mechanism: object,
    seed: int,
    *,
    clip: Clipper = clip_to_grid,
    min_sep: int = MIN_SEP,
    most: int = MOST,
    canaries: int = 500,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Projections ``[T, N]`` in clip norms, who joined ``[T, N]`` and who is included ``[N]``."""
    directions = Directions((PARAMETERS,), canaries, seed)
    sent_NP = np.zeros((canaries, PARAMETERS), dtype=np.int64)
    for number in np.flatnonzero(directions.included_N):
        sent_NP[number] = torch.cat(clip([torch.from_numpy(directions.update(number))], CLIP_NORM)).numpy()
    honest = torch.from_numpy(np.random.default_rng(seed).standard_normal((ROUNDS, PARAMETERS)))
    # Canaries obey the timer like any device and join whenever it lets them; those left out send nothing.
    cohorts = Cohorts(canaries, canaries, min_sep, most, seed)
    timer, state = cohorts.init(), mechanism.init(PARAMETERS)
    projections_TN, joined_TN = np.zeros((ROUNDS, canaries)), np.zeros((ROUNDS, canaries), dtype=bool)
    for number in range(ROUNDS):
        cohort, timer = cohorts.draw(timer, number)
        others_P = clip_to_grid([honest[number]], CLIP_NORM)[0].numpy().astype(np.int64)
        noise_P, state = mechanism.noise(state, number, noise.seeded_key(seed))
        released_P = release(others_P + sent_NP[cohort].sum(axis=0), noise_P, CLIP_NORM, mechanism.noise_multiplier)
        rest_P = released_P / CLIP_NORM - others_P / FIXED_POINT
        projections_TN[number] = directions.project(rest_P)
        joined_TN[number, cohort] = True
    return projections_TN, joined_TN, directions.included_N


@functools.cache
def honest_run(mechanism: Tree | Blt, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``run`` without any bug."""
    return run(mechanism, seed)


@dataclass(frozen=True)
class HalfNoise:
    """Noise of half the scale that was accounted."""

    true: Tree | Blt

    @property
    def noise_multiplier(self) -> float:
        """As it was accounted."""
        return self.true.noise_multiplier

    def init(self, size: int) -> TreeState | BltState:
        return self.true.init(size)

    def noise(self, state: TreeState | BltState, number: int, key: bytes) -> tuple[np.ndarray, TreeState | BltState]:
        noise_P, state = self.true.noise(state, number, key)
        return noise_P / 2, state


@dataclass(frozen=True)
class ReusedNoise(HalfNoise):
    """A restart that counts its rounds from 0 again, so the key gives the first rounds' noise once more."""

    def noise(self, state: TreeState | BltState, number: int, key: bytes) -> tuple[np.ndarray, TreeState | BltState]:
        anew = replace(self.true, restarts=())
        size = state.num_parameters if isinstance(state, TreeState) else state.buffers_BP.shape[1]
        if number == RESTART:
            state = anew.init(size)
        own = number - RESTART if number >= RESTART else number
        return anew.noise(state, own, key)


def loose_clip(update: list[torch.Tensor], clip_norm: float) -> list[torch.Tensor]:
    """Clips to one and a half times the norm."""
    return [(1.5 * part).trunc() for part in clip_to_grid(update, 1.5 * clip_norm)]
