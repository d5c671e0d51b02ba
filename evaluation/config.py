"""Configuration of the memorisation audit and of the offline A/B comparison."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from pretrain.config import Amount, Config, SpendingBlock

# Chance of a stress device to join a round: 1,150 of 2,000 in Ramaswamy et al. 2020.
STRESS_RATE = 0.575
# Chance of each family of tests to alarm although everything is right.
ALPHA = 0.01
# Direction canaries below which the audit of a whole run says nothing: where mu 1 is claimed, 64 notice a device that
# is told apart 2.6 times as well nine times out of ten, 16 notice 7 times, 8 notice 23 times.
LEAST_DIRECTIONS = 64
# Continuations that an attacker asks a model for.
BEAM_WIDTH = 5

NGRAM_ORDER = 3
# Of each interval.
CONFIDENCE = 0.95
# Share of words before which the baseline may offer a phrase.
COMPOSE_RATE = 0.05
# Largest share of the user's own history in the arms that have one.
HISTORY_WEIGHT = 0.2
# Public words beyond this many are rare.
RARE_AFTER = 1000
# Simulated typing is to be so long that the relative change of the primary metric has this standard error.
PLANNED_ERROR = 0.005
# More words than this nobody types again, whatever is left to be told.
MOST_TYPED = 300_000
# Relative losses that still count as neutral: of the primary metric what sessions can tell, at most this; of a
# guardrail.
WIDEST_MARGIN, GUARDRAIL_MARGIN = 0.05, 0.01
# Devices that share a canary, copies of it.
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
        description="n_e: copies of it on each device, whose other sentences up to the most are public",
    )
    repeats: PositiveInt = Field(le=100, description="canaries in each cell of the grid")
    populations: tuple[Literal["compliant", "stress"], ...] = Field(
        default=("compliant",),
        min_length=1,
        description="a grid for each: devices that obey the timer, and devices that are always available",
    )
    in_launch: tuple[Literal["compliant", "stress"], ...] | None = Field(
        default=None,
        max_length=2,
        description="populations whose canaries the launched model holds; the others' live on a twin of public text. "
        "Left out: all. Direction canaries are no words, and stay in the launch whatever it says",
    )
    directions: PositiveInt = Field(
        default=1000,
        ge=LEAST_DIRECTIONS,
        le=1_000_000,
        description="direction canaries of the noise audit, in the launch where it trains",
    )
    random_continuations: PositiveInt = Field(
        default=2_000_000, le=100_000_000, description="continuations among which each canary is ranked"
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
        """Sentences of a synthetic device, canaries included: of the most copies there is nothing else."""
        return max(self.examples)

    @property
    def launched(self) -> tuple[Literal["compliant", "stress"], ...]:
        """Populations whose canaries the launched model holds."""
        return self.populations if self.in_launch is None else self.in_launch

    @property
    def on_twin(self) -> tuple[Literal["compliant", "stress"], ...]:
        """Populations whose canaries live on a twin."""
        return tuple(each for each in self.populations if each not in self.launched)


class AbTestConfig(Config):
    """Comparison of arms on held-out test devices."""

    buckets: Annotated[int, Field(ge=2, le=10_000)] = Field(
        default=20, description="test devices needed, at least; the jackknife leaves out one, or one of 1,000 parts"
    )
    session_words: NonNegativeInt = Field(
        default=4000,
        le=100_000_000,
        description="words typed again under every arm; what decides is typed at more length; 0: none",
    )
    non_private_upper_bound: bool = Field(
        default=False,
        description="also train without noise, to see what privacy costs; only where private_text is a simulation",
    )


class EvaluationConfig(SpendingBlock):
    """The budget of what held-out devices tell: one release of noisy sums, for gates and headlines alike.

    With it nothing else of held-out devices leaves: no slice, no simulated typing; training is watched on public text.
    """

    split: ClassVar = "test"
    noise_multiplier: Amount = Field(
        description="standard deviation of the noise, in bounds of one device's vector: rho is "
        "1 / (2 noise_multiplier^2), on test devices, which lose nothing to training"
    )
