"""The sums of a training run before noise, for a population and for the same with one device emptied."""

import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from federated.rounds.privatize import Drawn, PrivacyState, Privatizer
from federated.rounds.rule import RoundRule
from pretrain.randomness import noise
from pretrain.randomness.noise import FIXED_POINT
from pretrain.vocabulary import TokenStream, join_owners
from tests.helpers.audits.mechanism_kinds import ADAPTIVE, DRAWN, KINDS, PARSER
from tests.helpers.launches.small_run import DEVICES, Launch, run

ROUNDS = 5
CLIPPED = DRAWN | {"sampling": "poisson", "estimator": "clipped"}
# Bits that take most of the noise: there a bit that moves too far costs most.
QUIET_BITS = ADAPTIVE | {"bit_noise_std": 0.3}
EVERY_KIND = KINDS | {
    "tree, adaptive, quiet bits": KINDS["tree, adaptive"] | {"adaptive_clipping": QUIET_BITS},
    "tree, adaptive, per layer": KINDS["tree, adaptive"] | {"clipping": "per-layer"},
    "tree, adaptive, who checks in": KINDS["tree, adaptive"] | {"availability": {"round_minutes": 30}},
    "poisson, per layer": KINDS["poisson"] | {"clipping": "per-layer"},
    "fixed, adaptive": DRAWN | {"sampling": "fixed", "adaptive_clipping": QUIET_BITS},
    "clipped estimator, adaptive": CLIPPED | {"weight_words": 6, "adaptive_clipping": QUIET_BITS},
    "clipped estimator, alike": CLIPPED,
    "fixed, weighted": DRAWN | {"sampling": "fixed", "weight_words": 6},
    # Small cohorts, some of which are too small to hide in and send nothing.
    "poisson, secagg, few": DRAWN | {"sampling": "poisson", "secagg": {"bits": 24}, "report_goal": 3},
}


def launch_of(kind: str) -> Launch:
    """A short run of a mechanism on the small model, whose updates are longer than the clip norm.

    Devices train one by one, as a device's low bits may depend on those that are trained side by side with it.
    """
    short = {"rounds": ROUNDS, "clip_norm": 0.05} | ({"restarts": [2]} if "restarts" in EVERY_KIND[kind] else {})
    launch = Launch(mechanism=PARSER.validate_python(EVERY_KIND[kind] | short))
    return replace(launch, runtime=launch.runtime.model_copy(update={"chunk_devices": 1}))


def without(devices: TokenStream, emptied: int) -> TokenStream:
    """The same devices, of which one typed nothing."""
    nothing = np.empty(0, dtype=devices.tokens_N.dtype)
    return join_owners([nothing if device == emptied else devices.owner(device) for device in range(len(devices))])


@dataclass
class Rounds:
    """A run's sums, in which every later run releases what the first one released.

    Composition asks how far a round's sum moves while all that was released before it is the same.

    Attributes:
      launch: of the run.
      more: further fields of ``TrainingData``.
      released: of each round, by the first run.
    """

    launch: Launch
    more: dict[str, object] = field(default_factory=dict)
    released: list[tuple[np.ndarray, PrivacyState]] = field(default_factory=list)

    @cached_property
    def whole(self) -> np.ndarray:
        """The sums with all devices there."""
        return self.sums()

    def sums(self, emptied: int | None = None) -> np.ndarray:
        """Updates and bit of every round, ``[T, P + 1]``, in units of the sensitivity that is accounted.

        Each is divided by the standard deviation of the noise that it really gets, and multiplied by the one noise
        multiplier that the accountant is told of.
        """
        launch, first, rows = self.launch, not self.released, list[np.ndarray]()
        if emptied is not None:
            launch = replace(launch, devices=without(launch.devices, emptied))
        rule, privatize = RoundRule(launch.mechanism, launch.seed, launch.key), Privatizer.privatize

        def recorded(
            privatizer: Privatizer, unnoised_sum_P: np.ndarray, below: float, drawn: Drawn, state: PrivacyState
        ) -> tuple[np.ndarray, PrivacyState]:
            unit_P = unit_noise(rule, len(unnoised_sum_P), rule.key)[state.round]
            deviation = np.mean(drawn.noise_P / unit_P) * privatizer.sensitivity
            bit = 0.0
            if privatizer.bits is not None:
                (unit,) = unit_noise(rule, 1, noise.subkey(rule.key, "clip bits"))[state.round]
                bit = below * unit / drawn.bit_noise
            rows.append(np.append(unnoised_sum_P / FIXED_POINT / deviation, bit) * rule.config.noise_multiplier)
            if first:
                self.released.append(privatize(privatizer, unnoised_sum_P, below, drawn, state))
            return self.released[len(rows) - 1]

        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
            patch.setattr(Privatizer, "privatize", recorded)
            encoding = run(launch, Path(directory), **self.more)[1].encoding
        return np.array(rows) / (1.0 if encoding is None else encoding.inflated_norm)

    def moved(self, emptied: int) -> np.ndarray:
        """How far one device moves the sums of every round."""
        return np.linalg.norm(self.whole - self.sums(emptied), axis=1)


def unit_noise(rule: RoundRule, size: int, key: bytes) -> list[np.ndarray]:
    """The mechanism's noise of every round at a noise multiplier of 1."""
    one = replace(rule.mechanism, noise_multiplier=1.0)
    state, rows = one.init(size), []
    for number in range(rule.config.rounds):
        row, state = one.noise(state, number, key)
        rows.append(row)
    return rows


def stressed(kind: str = "tree, adaptive, quiet bits") -> Rounds:
    """A run in which one of the synthetic devices is outside timer and cap."""
    return Rounds(launch_of(kind), {"stress_D": np.arange(DEVICES) == DEVICES - 1, "stress_rate": 0.7})
