"""The rule of a round: all behaviour that depends on the mechanism of a launch.

Shape legend: D devices, P parameters.
"""

import functools
import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from federated import mechanisms
from federated.config.mechanism import IndependentMechanism, MechanismConfig, secagg_neighbours
from federated.local_training.clipping import Clip, check_clip_norm, check_report_goal
from federated.participation.availability import Availability
from federated.participation.clock_cohorts import ROUND_MINUTES, ClockCohorts
from federated.participation.cohorts import Cohorts
from federated.participation.secret_sample import SampledCohorts
from federated.rounds.privatize import PrivacyState, Privatizer, privatizer
from federated.secagg.bounds import Encoding, plan_encoding
from federated.secagg.protocol import check_graph, opens
from pretrain.randomness.noise import subkey

# A Poisson cohort is larger than its mean by this many standard deviations about never (1e-33).
_DEVIATIONS = 12


@dataclass(frozen=True)
class RoundRule:
    """Rules of a launch's rounds, from its mechanism: who joins, how updates are clipped, summed and released.

    Guarantee: a function of its fields alone, so a retried round is the same release.

    Attributes:
      config: the launch's mechanism block.
      seed: the launch's public seed.
      key: the secret of noise and of who takes part; may be left out if nothing is drawn.
      stored: the mechanism from a mechanism file; None to build it.
    """

    config: MechanismConfig
    seed: int
    key: bytes = field(default=b"", repr=False)
    stored: mechanisms.Mechanism | None = None

    @cached_property
    def mechanism(self) -> mechanisms.Mechanism:
        """Mechanism that makes the noise, and with which the run is accounted."""
        return self.stored or mechanisms.build(self.config)

    @cached_property
    def privatizer(self) -> Privatizer:
        """The privatizer: clip norm, noise stream and adaptive clipping of this mechanism.

        Raises:
          ValueError: the mechanism file's noise multiplier is not the configured one.
        """
        return privatizer(self.config, self.mechanism, self.sensitivity)

    @property
    def sensitivity(self) -> float:
        """Most by which one device moves the sum that is released, in clip norms.

        2 for the clipped estimator (McMahan et al. 2018, lemma 1): one device changes the sum and the weight
        that it is divided by.
        """
        clipped = isinstance(self.config, IndependentMechanism) and self.config.estimator == "clipped"
        return 2.0 if clipped else 1.0

    @property
    def denominator(self) -> float:
        """Divisor of every round's released sum, fixed for any number of arriving devices."""
        return float(self.config.report_goal)

    @cached_property
    def turn_seed(self) -> int:
        """Seed of who checks in, joins and reports, secret unless the launch declares its randomness seeded.

        By a public seed, the stated participation of canary devices alone would tell the exact number of devices:
        anyone could draw the cohorts of every number that its tens allow.
        """
        if self.config.randomness == "seeded":
            return self.seed
        return int.from_bytes(subkey(self.key, "turns")[:8], "big")

    @property
    def availability(self) -> Availability | None:
        """Devices that check in and report; None for everybody, always. A secret sample has no availability."""
        block = None if isinstance(self.config, IndependentMechanism) else self.config.availability
        if block is None:
            return None
        # By the clock, a round's hour is when it opens, and nobody asks for its minutes.
        return Availability(round_minutes=block.round_minutes or ROUND_MINUTES, seed=self.turn_seed)

    def cohorts(
        self, synthetic_D: np.ndarray, stress_D: np.ndarray | None = None, stress_rate: float = 0.0
    ) -> Cohorts | SampledCohorts:
        """Cohorts under the timer and cap of correlated noise, or secret samples for independent noise.

        Args:
          synthetic_D: bool, devices made for the audit among all.
          stress_D: bool, which of them are outside timer and cap; ``stress_rate`` is their chance of a round.

        Raises:
          ValueError: fewer devices than a sampling rate was accounted for, or stress devices where there is no timer.
        """
        config, num_devices, sum_opens = self.config, len(synthetic_D), None
        if config.secagg is not None:
            sum_opens = functools.partial(opens, secagg_neighbours(config.report_goal), self.seed)
        stressed = stress_D is not None and bool(np.any(stress_D))
        if stress_D is not None and (np.any(stress_D & ~synthetic_D) or (stressed and not config.timed)):
            raise ValueError("stress_D: only synthetic devices may be outside a timer, and only where there is one")
        if not isinstance(config, IndependentMechanism):
            limits = (config.report_goal, config.min_sep, config.max_participations)
            outside = (stress_D, stress_rate) if stressed else (None, 0.0)
            assigned_D = synthetic_D if stress_D is None else synthetic_D & ~stress_D
            turns = (assigned_D if np.any(assigned_D) else None, config.rounds)
            shared = (num_devices, *limits, self.turn_seed, self.availability, *outside, sum_opens, *turns)
            days = config.timer_days
            return Cohorts(*shared) if days is None else ClockCohorts(*shared, timer_days=days)
        if num_devices - int(np.sum(synthetic_D)) < config.population:
            # Fewer devices would be sampled at a higher rate than accounted (fixed rounds), or the mean be off.
            raise ValueError(
                f"mechanism.population: {config.population} devices are accounted for, but there are fewer to train "
                "on; lower it to a number that is surely reached"
            )
        rate, poisson = config.report_goal / config.population, config.sampling == "poisson"
        return SampledCohorts(
            num_devices, config.report_goal, rate, poisson, self.key, config.rounds, sum_opens=sum_opens
        )

    def largest_cohort(self, num_devices: int) -> int:
        """Most devices that a round may hold."""
        config = self.config
        if not isinstance(config, IndependentMechanism) or config.sampling == "fixed":
            return config.report_goal
        mean = config.report_goal / config.population * num_devices
        return min(num_devices, math.ceil(mean + _DEVIATIONS * math.sqrt(mean) + _DEVIATIONS))

    def require_sums(self, num_devices: int) -> None:
        """Raise ValueError if a round of ``report_goal`` devices could overflow a sum, or the clip norm is no bound."""
        check_report_goal(self.largest_cohort(num_devices))
        check_clip_norm(self.config.clip_norm)

    def encoding(self, num_parameters: int, people: int, synthetic: int) -> Encoding | None:
        """Integer encoding of device updates; None without secure aggregation.

        It is public, and the same for all numbers of people in one ten.

        Args:
          people: training devices, besides ``synthetic`` ones.

        Raises:
          ValueError: ``secagg.bits`` cannot hold such a sum, or the graph cannot be made.
        """
        block = self.config.secagg
        if block is None:
            return None
        cohort = self.largest_cohort((people // 10 + 1) * 10 + synthetic)
        check_graph(cohort, secagg_neighbours(self.config.report_goal))
        return plan_encoding(num_parameters, cohort, block.bits)

    def clip(self, privacy: PrivacyState) -> Clip:
        """Clipping and counting rules of the coming round."""
        return Clip(
            norm=privacy.clip_norm,
            per_layer=self.config.clipping == "per-layer",
            below=privacy.estimate if self.config.adaptive_clipping else None,
            weight_words=self.config.weight_words if isinstance(self.config, IndependentMechanism) else None,
        )

    def to_release(self, unnoised_sum_P: np.ndarray, weight: float) -> np.ndarray:
        """The sum that gets the noise, int64 ``[P]``.

        With the clipped estimator of McMahan et al. 2018 (section 2) it is scaled down where more weight
        arrived than the fixed denominator, which makes it ``sensitivity`` clip norms sensitive.

        Args:
          weight: of all devices that arrived.
        """
        if self.sensitivity == 1:
            return unnoised_sum_P
        factor = self.denominator / max(self.denominator, weight)
        return np.trunc(unnoised_sum_P * factor).astype(np.int64)

    def eager_limits(self, rounds: int, joined: int) -> tuple[int, int]:
        """``min_sep`` and ``max_participations`` of a device that joined as often as allowed, in a number of rounds.

        Args:
          joined: rounds that it really joined; counts where nothing is enforced.
        """
        config = self.config
        if not config.timed:
            return 1, max(joined, 1)
        return min(config.min_sep, rounds), min(config.max_participations, -(-rounds // config.min_sep))
