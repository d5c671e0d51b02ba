"""Configuration of the memorisation audit and of the offline A/B comparison."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from pretrain.config import Amount, Config, SpendingBlock

# Probability that a stress device joins a round: 1,150 of 2,000 in Ramaswamy et al. 2020.
STRESS_RATE = 0.575
# False alarm rate of each family of tests.
ALPHA = 0.01
# Probability at most that audits stop an honest training while it runs.
STOP_ALPHA = 0.001
# Least number of direction canaries for a meaningful audit of a run. At a claimed mu of 1 and with 90% power, 64 notice
# a device that is 2.6 times as distinguishable, 16 a factor of 7, 8 a factor of 23.
LEAST_DIRECTIONS = 64
# Continuations among which each canary is ranked.
RANDOM_CONTINUATIONS = 2_000_000
# Number of continuations that an attacker requests from a model.
BEAM_WIDTH = 5

NGRAM_ORDER = 3
# Confidence of each interval.
CONFIDENCE = 0.95
# Share of words before which the baseline may offer a phrase.
COMPOSE_RATE = 0.05
# Largest share of the user's own history in the arms that have one.
HISTORY_WEIGHT = 0.2
# Public words beyond this many are rare.
RARE_AFTER = 1000
# Typed words in which different right suggestions are counted: few enough for every comparison.
VARIETY_WORDS = 300
# Simulated typing is planned for this standard error of the relative change of the primary metric.
PLANNED_ERROR = 0.005
# Upper bound on the words typed again, for any precision.
MOST_TYPED = 300_000
# Relative losses that still count as neutral: for the primary metric the resolution of the sessions, up to this bound;
# for a guardrail.
WIDEST_MARGIN, GUARDRAIL_MARGIN = 0.05, 0.01
# Default grid: devices that share a canary, and copies of it.
GridCount = Annotated[int, Field(ge=1, le=100_000)]


class AuditConfig(Config):
    """Federated Secret Sharer (Ramaswamy et al. 2020, section IV).

    The paper's grid is ``users [1, 4, 16] x examples [1, 14, 200] x 3``; small populations
    use a smaller one, because synthetic devices take places in the cohorts.
    """

    users: tuple[GridCount, ...] = Field(
        min_length=1, max_length=16, description="n_u: synthetic devices that share a canary"
    )
    examples: tuple[GridCount, ...] = Field(
        min_length=1,
        max_length=16,
        description="n_e: copies of it on each device; public sentences fill the device up to the largest number",
    )
    repeats: PositiveInt = Field(le=100, description="canaries in each cell of the grid")
    populations: tuple[Literal["compliant", "stress"], ...] = Field(
        default=("compliant",),
        min_length=1,
        description="one grid each: devices that obey the timer, and devices that are always available",
    )
    in_launch: tuple[Literal["compliant", "stress"], ...] | None = Field(
        default=None,
        max_length=2,
        description="populations whose canaries the launched model holds; a twin of public text holds the others. "
        "Left out: all. Direction canaries are no words, and are always in the launch",
    )
    directions: PositiveInt = Field(
        default=1000,
        ge=LEAST_DIRECTIONS,
        le=1_000_000,
        description="direction canaries of the noise audit, in the launch where it trains",
    )

    @model_validator(mode="after")
    def _populations_agree(self) -> "AuditConfig":
        if len(set(self.populations)) != len(self.populations):
            raise ValueError(f"populations: {list(self.populations)} names one twice; give each once")
        if "compliant" not in self.populations:
            raise ValueError(
                f"populations: {list(self.populations)} leaves out compliant, the devices that the guarantee and the "
                "gates are about; add it"
            )
        launched = self.in_launch or ()
        if not set(launched) <= set(self.populations) or len(set(launched)) != len(launched):
            raise ValueError(
                f"in_launch: {list(launched)} is not a part of populations {list(self.populations)}; leave out what is "
                "not there, and what is there twice"
            )
        return self

    @property
    def sentences_per_device(self) -> int:
        """Sentences of a synthetic device, canaries included: the largest number of copies."""
        return max(self.examples)

    @property
    def launched(self) -> tuple[Literal["compliant", "stress"], ...]:
        """Populations whose canaries the launched model holds."""
        return self.populations if self.in_launch is None else self.in_launch

    @property
    def on_twin(self) -> tuple[Literal["compliant", "stress"], ...]:
        """Populations whose canaries the twin holds."""
        return tuple(each for each in self.populations if each not in self.launched)


class AbTestConfig(Config):
    """Comparison of arms on held-out test devices."""

    buckets: Annotated[int, Field(ge=2, le=10_000)] = Field(
        default=20,
        description="least number of test devices; the jackknife leaves out one device, or one of 1,000 parts",
    )
    session_words: NonNegativeInt = Field(
        default=4000,
        le=100_000_000,
        description="least number of words typed again under the deciding arms; 0: none. Under a budget any other "
        "number means up to 50 words of each of at most 6,000 devices",
    )
    non_private_upper_bound: bool = Field(
        default=False,
        description="also train without noise, to measure the cost of privacy; only if private_text is a simulation",
    )


class EvaluationConfig(SpendingBlock):
    """Budget of evaluation on held-out devices: one release of noisy sums, for gates and headline figures.

    Nothing else about held-out devices leaves: no slice, no other kind of typist; training is validated on public text.
    """

    split: ClassVar = "test"
    noise_multiplier: Amount = Field(
        description="standard deviation of the noise, in bounds of one device's vector: rho is "
        "1 / (2 noise_multiplier^2), on test devices, which lose nothing to training"
    )
