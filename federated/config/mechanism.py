"""The ``mechanism:`` block: every parameter of the privacy guarantee.

``federated.config.training`` holds the other parameters, including speed: a reviewer reads this block, and a platform
engineer tunes the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from pretrain.config import Amount, Config, Rate

# Far above every published run: 2,000 rounds, a few participations, cohorts of 6,500; more devices than
# ``MOST_COHORT`` overflow a round's fixed-point sum (``local_training.clipping``).
MOST_ROUNDS, MOST_PARTICIPATIONS, MOST_COHORT = 100_000, 100_000, 2**18 - 1
# Limits beyond which the exact sensitivity of a tree, and the search for a band, take minutes and gigabytes.
MOST_TREE_PARTICIPATIONS, MOST_MATRIX_ROUNDS, MOST_BANDED_ROUNDS = 200, 5_000, 10_000
MOST_DEVICES = 10_000_000_000
Delta = Annotated[float, Field(ge=1e-30, le=1e-3)]
Round = Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
# Largest number of rounds for banded noise with a column per round: the search takes a minute for 2,000.
MATRIX_ROUNDS = 2000


class AdaptiveClipping(Config):
    """Estimate the clip norm from the number of updates below it (Andrew et al. 2021; Xu et al. 2023, Alg. 1)."""

    target_quantile: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(description="share of updates to leave unclipped")
    learning_rate: Rate = Field(description="step of the geometric update; the papers use 0.2")
    bit_noise_std: Amount = Field(
        description="noise std of the number of updates below, in devices; report_goal / 20 in the papers"
    )


# Text is kept for months at most, and so is a device's memory of its participations.
MOST_TIMER_DAYS = 366


class AvailabilityConfig(Config):
    """Simulated availability: the duration of a round, or the rest of a device.

    In production, availability is a fact, not a setting. Here it determines the training devices, so it is part of the
    launch. Devices train by night, on a charger; some that are selected never report (Bonawitz et al. 2019). With a
    timer, a round ends when it is full, and ``min_sep`` is enforced in addition to the hours.
    """

    round_minutes: PositiveFloat | None = Field(
        default=None, ge=0.01, le=100_000, description="duration of every round, without a timer"
    )
    timer_days: PositiveInt | None = Field(
        default=None,
        le=MOST_TIMER_DAYS,
        description="whole days that a device rests by the clock; a round ends when it is full",
    )

    @model_validator(mode="after")
    def _rounds_or_hours(self) -> "AvailabilityConfig":
        if (self.round_minutes is None) == (self.timer_days is None):
            raise ValueError(
                f"round_minutes: {self.round_minutes}, timer_days: {self.timer_days}; give either the duration "
                "of a round, or the days that a device rests by the clock"
            )
        return self


class SecAggConfig(Config):
    """Devices send masked integers; the server sees only their sum (Bonawitz et al. 2017, Bell et al. 2020)."""

    bits: Annotated[int, Field(ge=8, le=62)] = Field(description="sums are modulo 2^bits")


def secagg_neighbours(report_goal: int) -> int:
    """Devices that each device shares masks with: an even number, two fifths of the report goal, at most 20.

    Bell et al. 2020: a number that grows with the logarithm of the cohort is enough. With 20 neighbours on a circle,
    the masks of the remaining devices split into groups only if ten in a row drop out at two places, and a round is
    lost only if ten of one device's neighbours drop out. Small cohorts need neighbours that remain when some drop out.
    """
    return min(20, 2 * -(-report_goal // 5))


def secagg_threshold(neighbours: int) -> int:
    """Shares that recover the masks of a dropped device: the smallest majority of its neighbours.

    A neighbour hands out a share of one of a device's two secrets. A server that told some neighbours that the device
    dropped and others that it did not could open its vector if half of the shares were enough (Bell et al. 2020).
    """
    return neighbours // 2 + 1


@dataclass(frozen=True)
class SecretSample:
    """Secret sampling of devices, the basis of a second, smaller epsilon: nobody learns the sampled devices.

    Attributes:
      kind: ``poisson``: every device by its own coin; ``fixed``: a fixed number without replacement.
      rate: probability of a device to be in a round.
      population: least number of devices that can be sampled.
    """

    kind: Literal["poisson", "fixed"]
    rate: float
    population: int


class _Mechanism(Config):
    noise_multiplier: Amount = Field(
        description="noise std per clip norm, before sensitivity; not comparable between mechanisms"
    )
    clip_norm: Amount = Field(description="L2 bound C of one device's whole update; adaptive clipping starts here")
    rounds: Round = Field(description="rounds of training; more rounds improve the model and cost more")
    report_goal: PositiveInt = Field(le=MOST_COHORT, description="devices aggregated in a round; the fixed denominator")
    delta: Delta = Field(description="delta at which every epsilon of the launch is stated")
    randomness: Literal["secure", "seeded"] = Field(
        description="'secure' draws a 256-bit key from the operating system; 'seeded' is for tests and is marked"
    )
    clipping: Literal["flat", "per-layer"] = Field(
        default="flat", description="one norm for the whole update, or C / sqrt(layers) for each layer"
    )
    adaptive_clipping: AdaptiveClipping | None = Field(
        default=None, description="adapt the clip norm where the noise restarts; left out: fixed"
    )
    secagg: SecAggConfig | None = Field(
        default=None, description="secure aggregation: the server sees only sums; left out: it sees updates"
    )

    # True if a timer separates a device's participations, and a cap limits their number.
    timed: ClassVar[bool] = True
    # True if the noise does not depend on min_sep.
    any_min_sep: ClassVar[bool] = False

    @property
    def secret_sample(self) -> SecretSample | None:
        """Secret sampling of devices; None if a timer selects them."""
        return None

    def reshaped(self, shape: Mapping[str, int], **changes: object) -> Self:
        """The mechanism over other rounds, report goal, separation or participations."""
        return self.model_copy(update={**shape, **changes})

    @model_validator(mode="after")
    def _noise_can_be_split(self) -> "_Mechanism":
        # Theorem 1 of Xu et al. 2023: z^-2 = z_delta^-2 + (2 sigma_b)^-2 has no solution otherwise.
        adaptive = self.adaptive_clipping
        if adaptive and self.noise_multiplier >= 2 * adaptive.bit_noise_std:
            raise ValueError(
                f"adaptive_clipping.bit_noise_std: {adaptive.bit_noise_std:g} leaves no noise for the updates at "
                f"noise_multiplier {self.noise_multiplier:g}; raise it above {self.noise_multiplier / 2:g}, "
                f"as in {max(self.report_goal / 20, self.noise_multiplier):g}"
            )
        return self


class _Correlated(_Mechanism):
    min_sep: Round = Field(description="least number of rounds from one participation to the next: MinS + 1")
    max_participations: PositiveInt = Field(le=MOST_PARTICIPATIONS, description="rounds one device may join; enforced")
    availability: AvailabilityConfig | None = Field(
        default=None, description="times of check-ins, and reports of selected devices; default: all devices, always"
    )

    @property
    def timer_days(self) -> int | None:
        """Whole days that a device rests; None without a clock, where rounds are counted."""
        return self.availability.timer_days if self.availability else None


class _Restarted(_Correlated):
    any_min_sep: ClassVar[bool] = True

    restarts: tuple[Round, ...] = Field(default=(), max_length=1_000, description="rounds at which the noise restarts")

    def reshaped(self, shape: Mapping[str, int], **changes: object) -> Self:
        """The same, with the restarts within the rounds, and without adaptive clipping in a shortened run."""
        rounds = shape.get("rounds", self.rounds)
        if rounds < self.rounds:
            restarts = tuple(restart for restart in self.restarts if restart < rounds)
            changes = {"restarts": restarts, "adaptive_clipping": None, **changes}
        return super().reshaped(shape, **changes)

    @model_validator(mode="after")
    def _restarts_lie_inside(self) -> "_Restarted":
        if list(self.restarts) != sorted(set(self.restarts)) or any(value >= self.rounds for value in self.restarts):
            raise ValueError(
                f"restarts: {list(self.restarts)} must rise and lie between 1 and {self.rounds - 1}, "
                "the rounds of this run"
            )
        if self.adaptive_clipping and not self.restarts:
            raise ValueError(
                "adaptive_clipping: the clip norm may change only where the noise restarts, and there are no "
                f"restarts; give some, as in restarts: [{max(1, self.rounds // 8)}]"
            )
        return self


class TreeMechanism(_Restarted):
    """DP-FTRL with tree aggregation and Honaker's variance reduction (Kairouz et al. 2021)."""

    kind: Literal["tree"] = Field(description="binary tree aggregation, for any min_sep")
    max_participations: PositiveInt = Field(
        le=MOST_TREE_PARTICIPATIONS, description="rounds one device may join; enforced"
    )


class BltMechanism(_Restarted):
    """DP-FTRL with a buffered linear Toeplitz mechanism (McMahan et al. 2024)."""

    kind: Literal["blt"] = Field(description="a buffered linear Toeplitz mechanism, for many rounds")
    theta: tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...] = Field(
        default=(), max_length=64, description="decays of buffers"
    )
    omega: tuple[PositiveFloat, ...] = Field(default=(), max_length=64, description="scales of their outputs")

    @model_validator(mode="after")
    def _a_scale_for_each_decay(self) -> "BltMechanism":
        if not self.theta or len(self.theta) != len(self.omega):
            raise ValueError(
                f"got {len(self.theta)} theta and {len(self.omega)} omega; give one of each a buffer, as "
                "'tacit optimize blt' prints them"
            )
        if sum(self.omega) > 1:
            raise ValueError(
                f"omega: the scales add up to {sum(self.omega):.6g}; scale them down to a sum of at most 1, "
                "or the sensitivity formula does not hold"
            )
        return self


class BandedMechanism(_Correlated):
    """DP-FTRL with a banded strategy (Choquette-Choo et al. 2023) that is searched for a server with momentum."""

    kind: Literal["banded"] = Field(description="a banded strategy, for few rounds")
    rounds: Annotated[int, Field(ge=1, le=MOST_BANDED_ROUNDS)] = Field(description="rounds of training")
    bands: Round = Field(description="rounds of remembered noise, each a copy of the model; <= min_sep")

    @property
    def form(self) -> Literal["matrix", "toeplitz"]:
        """One column per round (BandMF), or one for all (BandToep) where the search for BandMF would take too long."""
        return "matrix" if self.rounds <= MATRIX_ROUNDS else "toeplitz"

    def reshaped(self, shape: Mapping[str, int], **changes: object) -> Self:
        """The same, with at most as many bands as the separation allows."""
        bands = min(self.bands, shape.get("min_sep", self.min_sep))
        return super().reshaped(shape, **{"bands": bands, **changes})

    @model_validator(mode="after")
    def _columns_stay_apart(self) -> "BandedMechanism":
        most = min(self.min_sep, self.rounds)
        if self.bands > most:
            raise ValueError(
                f"bands: {self.bands} at min_sep {self.min_sep} and {self.rounds} rounds would let two participations "
                f"of a device share noise; lower it to {most}"
            )
        if self.adaptive_clipping:
            raise ValueError("adaptive_clipping: needs restarts, which banded noise lacks; use kind tree or blt")
        return self


class IndependentMechanism(_Mechanism):
    """DP-FedAvg: fresh noise every round, amplified by sampling (McMahan et al. 2018).

    Any device may join any round, so there is no ``min_sep`` or ``max_participations`` to enforce.
    """

    timed: ClassVar[bool] = False

    kind: Literal["independent"] = Field(description="fresh noise every round, on a secret sample")
    sampling: Literal["poisson", "fixed"] = Field(
        description="each device joins by its own coin, or rounds of exactly report_goal devices"
    )
    population: PositiveInt = Field(
        le=MOST_DEVICES,
        description="least number of devices that can be sampled; report_goal / population is the sampling rate",
    )
    estimator: Literal["fixed", "clipped"] = Field(
        default="fixed", description="divide by report_goal, or by the sum of received weights if that is larger"
    )
    weight_words: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        default=None, description="a device weighs min(words / weight_words, 1); without it every device weighs 1"
    )

    @model_validator(mode="after")
    def _a_rate_below_one(self) -> "IndependentMechanism":
        if self.report_goal > self.population:
            raise ValueError(
                f"population: {self.population} devices cannot fill rounds of {self.report_goal}; "
                f"lower report_goal to {self.population} or less"
            )
        if self.secagg and self.estimator == "clipped":
            raise ValueError("estimator: 'clipped' needs the sum of weights, which secagg does not add up; use 'fixed'")
        return self

    @model_validator(mode="before")
    @classmethod
    def _sampling_is_secret(cls, block: object) -> object:
        if isinstance(block, dict) and "availability" in block:
            raise ValueError(
                "availability: independent noise assumes a secret uniform sample of the whole population, and the "
                "devices that check in are neither secret nor uniform; remove it, or use kind tree, blt or banded"
            )
        return block

    @property
    def secret_sample(self) -> SecretSample:
        """The sample that the amplified epsilon assumes."""
        return SecretSample(self.sampling, self.report_goal / self.population, self.population)

    @property
    def timer_days(self) -> None:
        """None: no device rests."""
        return None

    @property
    def min_sep(self) -> int:
        """Least difference between two rounds of a device: 1, as there is no timer."""
        return 1

    @property
    def max_participations(self) -> int:
        """Most rounds a device may join: all of them."""
        return self.rounds


MechanismConfig = Annotated[
    TreeMechanism | BltMechanism | BandedMechanism | IndependentMechanism, Field(discriminator="kind")
]
