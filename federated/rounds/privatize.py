"""From the unnoised sum of a round to the released one: clip norm, noise, and the estimate of both.

Xu et al. 2023, *Federated Learning of Gboard Language Models with Differential Privacy*, algorithm 1
and theorem 1; Andrew et al. 2021 for the quantile. Symbols there: C_theta the clip norm in use, C^t its
estimate, b^t the noisy share of updates below the estimate, gamma the share wanted, eta the step.

Shape legend: P parameters.
"""

import math
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from federated import mechanisms
from federated.config.mechanism import AdaptiveClipping, MechanismConfig
from federated.local_training.clipping import release
from pretrain.randomness import noise

# A device sends its bit as b - 1/2, and one that contributes nothing sends 0: one device moves the sum by 1/2.
_BIT_SENSITIVITY = 0.5
_BITS = "bits."
_UPDATES = "updates."


class NoiseStream(Protocol):
    """Round-by-round noise of a mechanism. Its state is its own: nobody else looks into it, so it is of any type."""

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation before the strategy, in clip norms."""

    def init(self, num_parameters: int) -> Any:
        """State before the first round."""

    def noise(self, state: Any, round_number: int, key: bytes) -> tuple[np.ndarray, Any]:
        """Noise of one round, and the state after it."""

    def save(self, state: Any) -> dict[str, np.ndarray]:
        """The state as arrays."""

    def load(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """The state from the arrays of a checkpoint."""


@dataclass(frozen=True)
class PrivacyState:
    """Between two rounds. The noise in it is secret; the norms are public.

    Attributes:
      round: the round that comes next.
      updates: noise of the sums of updates.
      bits: noise of the sums of bits; None without adaptive clipping.
      clip_norm: C_theta, in use since the noise last began anew.
      estimate: C^t, what the clip norm would be if it could change now.
      shares: running sum of the noisy shares of updates below the estimate.
      released_bits: noisy sum of the bits of the round before, as released; 0 with a fixed clip norm.
    """

    round: int
    updates: mechanisms.MechanismState
    bits: mechanisms.MechanismState | None
    clip_norm: float
    estimate: float
    shares: float
    released_bits: float = 0.0


@dataclass(frozen=True)
class RoundNoise:
    """Noise of one round, and the states it leaves behind. Secret.

    Attributes:
      noise_P: float64 ``[P]`` in clip norms.
      bit_noise: of the sum of bits.
    """

    noise_P: np.ndarray
    updates: mechanisms.MechanismState
    bit_noise: float
    bits: mechanisms.MechanismState | None


class NoiseAhead:
    """Noise of each round, drawn in a thread of its own while the devices of the round before train.

    Guarantee: the bits of ``Privatizer.draw``. Noise depends on key and round alone, so a failed draw tells of no
    device; it raises where its round asks for it, before that round's text is read. Checkpoints hold the state after
    their own round. Costs the memory of one more noise state.

    Args:
      last: rounds of the run; none is drawn beyond it.
    """

    def __init__(self, privatizer: "Privatizer", key: bytes, last: int) -> None:
        self.privatizer, self.key, self.last = privatizer, key, last
        self._thread = ThreadPoolExecutor(1, "noise")
        self._next: Future[RoundNoise] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def draw(self, state: PrivacyState) -> RoundNoise:
        """Return the noise of the coming round, and begin to draw that of the next; rounds must be in order."""
        drawn = self._next.result() if self._next else self.privatizer.draw(state, self.key)
        after = self.privatizer.after(state, drawn)
        self._next = self._thread.submit(self.privatizer.draw, after, self.key) if after.round < self.last else None
        return drawn


@dataclass(frozen=True)
class Privatizer:
    """A mechanism and, with adaptive clipping, its twin for the bits.

    Guarantee: the sequence of all released sums and clip norms is post-processing of one Gaussian
    release of the mechanism's strategy applied to the pairs (clipped update / clip norm, bit), with
    noise multiplier ``mechanism.noise_multiplier`` for the pair. Updates get more noise than that
    alone (theorem 1), bits get theirs, and together they cost what the mechanism alone would: account
    with ``mechanism``. Needs updates clipped to ``clip_norm(state)``, bits of +1/2 or -1/2 from devices that contribute
    and of 0 from all others (zero-out: the neighbour contributes nothing, to both sums), and rounds in order.

    Attributes:
      mechanism: what the run is accounted with.
      updates: the same strategy with the multiplier that is left for the updates.
      bits: the same strategy for the bits; None if the clip norm is fixed.
      sensitivity: of a round's sum, in clip norms.
    """

    config: MechanismConfig
    mechanism: mechanisms.Mechanism
    updates: NoiseStream
    bits: NoiseStream | None
    sensitivity: float = 1.0

    @property
    def noise_multiplier(self) -> float:
        """The noise of the released sums, in clip norms: more than the configured one where bits share it."""
        return self.updates.noise_multiplier * self.sensitivity

    def init(self, num_parameters: int) -> PrivacyState:
        """State before the first round, at the configured clip norm."""
        start = self.config.clip_norm
        bits = self.bits.init(1) if self.bits else None
        return PrivacyState(0, self.updates.init(num_parameters), bits, start, start, 0.0)

    def begin(self, state: PrivacyState) -> PrivacyState:
        """The state with the clip norm that the coming round must use.

        Correlated noise cancels noise of earlier rounds, which was scaled by the clip norm of its
        time; so the norm moves only where the noise begins anew.
        """
        if self.bits is None or not mechanisms.begins_anew(self.mechanism, state.round):
            return state
        return replace(state, clip_norm=state.estimate)

    def draw(self, state: PrivacyState, key: bytes) -> RoundNoise:
        """The noise of the coming round, before any text is read: what goes wrong here tells of no device.

        Args:
          key: 32 secret bytes, the same in every round of the run.
        """
        noise_P, updates = self.updates.noise(state.updates, state.round, key)
        if self.bits is None:
            return RoundNoise(noise_P, updates, 0.0, None)
        noise_1, bits = self.bits.noise(state.bits, state.round, noise.subkey(key, "clip bits"))
        return RoundNoise(noise_P, updates, _BIT_SENSITIVITY * float(noise_1[0]), bits)

    def after(self, state: PrivacyState, drawn: RoundNoise) -> PrivacyState:
        """The state after a round as far as noise goes, from which the next round's is drawn: no sum moves it."""
        return replace(state, round=state.round + 1, updates=drawn.updates, bits=drawn.bits)

    def privatize(
        self, unnoised_sum_P: np.ndarray, unnoised_below: float, drawn: RoundNoise, state: PrivacyState
    ) -> tuple[np.ndarray, PrivacyState]:
        """The released sum of one round, and the state after it.

        Args:
          unnoised_sum_P: int64 sum of updates clipped to ``state.clip_norm``, in units of it / 2^44.
          unnoised_below: sum over the devices that contribute of 1/2 if the update's norm is at most
            ``state.estimate``, else -1/2; not looked at if the clip norm is fixed.
          drawn: of this round and state.
          state: what ``begin`` gave.

        Returns:
          float64 ``[P]`` in units of the update.
        """
        noise_P = drawn.noise_P if self.sensitivity == 1 else drawn.noise_P * self.sensitivity
        released_P = release(unnoised_sum_P, noise_P, state.clip_norm, self.noise_multiplier)
        after = self.after(state, drawn)
        adaptive = self.config.adaptive_clipping
        if adaptive is None:
            return released_P, after
        below = float(noise.on_grid(np.array(unnoised_below + drawn.bit_noise), adaptive.bit_noise_std))
        # The denominator is fixed, so each place of the report goal that nobody fills counts as half a device below:
        # with a share e of them the norm settles where q + (q - 1/2) e / (1 - e) of the others lie below, q wanted.
        share = 0.5 + below / self.config.report_goal
        shares = state.shares + share
        estimate = self._estimate(adaptive, shares, after.round)
        return released_P, replace(after, shares=shares, estimate=estimate, released_bits=below)

    def _estimate(self, adaptive: AdaptiveClipping, shares: float, rounds: int) -> float:
        exponent = -adaptive.learning_rate * (shares - rounds * adaptive.target_quantile)
        # Noise alone must not end the run: far beyond any norm of use it is held where floats are finite.
        return self.config.clip_norm * math.exp(min(max(exponent, -50.0), 50.0))

    def save(self, state: PrivacyState) -> dict[str, np.ndarray]:
        """The state as arrays, for a private checkpoint."""
        arrays = {_UPDATES + name: array for name, array in self.updates.save(state.updates).items()}
        if self.bits:
            arrays |= {_BITS + name: array for name, array in self.bits.save(state.bits).items()}
        return arrays | {
            "round": np.asarray(state.round),
            "clip": np.array([state.clip_norm, state.estimate, state.shares, state.released_bits]),
        }

    def load(self, arrays: Mapping[str, np.ndarray]) -> PrivacyState:
        """The state from the arrays of a checkpoint."""
        bits = self.bits.load(_part(arrays, _BITS)) if self.bits else None
        clip_norm, estimate, shares, released_bits = (float(number) for number in arrays["clip"])
        updates = self.updates.load(_part(arrays, _UPDATES))
        return PrivacyState(int(arrays["round"]), updates, bits, clip_norm, estimate, shares, released_bits)


def privatizer(config: MechanismConfig, mechanism: mechanisms.Mechanism, sensitivity: float = 1.0) -> Privatizer:
    """The privatizer: clip norm, noise stream and adaptive clipping of a launch's mechanism.

    Args:
      mechanism: ``mechanisms.build(config)``, or the same from a mechanism file.
      sensitivity: how far one device moves a round's sum, in clip norms.

    Raises:
      ValueError: the mechanism's noise multiplier is not the configured one.
    """
    if mechanism.noise_multiplier != config.noise_multiplier:
        raise ValueError(
            f"mechanism: has noise_multiplier {mechanism.noise_multiplier:g}, but the launch file says "
            f"{config.noise_multiplier:g}; plan the launch again"
        )
    adaptive = config.adaptive_clipping
    if adaptive is None:
        return Privatizer(config, mechanism, mechanism, None, sensitivity)
    updates = replace(mechanism, noise_multiplier=update_multiplier(config.noise_multiplier, adaptive))
    bits = replace(mechanism, noise_multiplier=adaptive.bit_noise_std / _BIT_SENSITIVITY)
    return Privatizer(config, mechanism, updates, bits, sensitivity)


def update_multiplier(noise_multiplier: float, adaptive: AdaptiveClipping) -> float:
    """z_delta, what the updates get so that updates and bits together have ``noise_multiplier`` (theorem 1).

    ``(z^-2 - (2 sigma_b)^-2)^(-1/2)`` with sigma_b the standard deviation on the sum of bits.

    Raises:
      ValueError: the bits' noise is so small that nothing is left for the updates.
    """
    left = noise_multiplier**-2 - (adaptive.bit_noise_std / _BIT_SENSITIVITY) ** -2
    if left <= 0:
        raise ValueError(
            f"bit_noise_std: {adaptive.bit_noise_std:g} is not above half the noise_multiplier {noise_multiplier:g}; "
            f"raise it above {noise_multiplier / 2:g}"
        )
    return left**-0.5


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
