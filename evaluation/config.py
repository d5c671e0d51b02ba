"""Configuration of the memorisation audit and of the offline A/B comparison."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from pretrain.config import Config


class AuditConfig(Config):
    """Federated Secret Sharer (Ramaswamy et al. 2020, section IV).

    The paper's grid is ``users [1, 4, 16] x examples [1, 14, 200] x 3``; small populations
    use a smaller one, because synthetic devices take places in the cohorts.
    """

    users: tuple[PositiveInt, ...] = Field(min_length=1, description="n_u: synthetic devices that share a canary")
    examples: tuple[PositiveInt, ...] = Field(min_length=1, description="n_e: copies of it on each device")
    repeats: PositiveInt = Field(description="canaries in each cell of the grid")
    populations: tuple[Literal["compliant", "stress"], ...] = Field(
        default=("compliant",),
        min_length=1,
        description="a grid for each: devices that obey the timer, and devices that are always available",
    )
    stress_rate: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        default=0.575, description="chance of a stress device to join a round; 1,150 of 2,000 in the paper"
    )
    directions: NonNegativeInt = Field(default=1000, description="direction canaries of the noise audit; 0: none")
    alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = Field(
        default=0.01, description="chance of each family of tests to alarm although everything is right"
    )
    sentences_per_device: PositiveInt = 200
    random_continuations: PositiveInt = 2_000_000
    beam_width: PositiveInt = 5

    @model_validator(mode="after")
    def _copies_fit(self) -> "AuditConfig":
        if max(self.examples) > self.sentences_per_device:
            raise ValueError(
                f"examples: {max(self.examples)} copies do not fit on a device of {self.sentences_per_device} "
                f"sentences; lower it or raise sentences_per_device"
            )
        if len(set(self.populations)) != len(self.populations):
            raise ValueError(f"populations: {list(self.populations)} names one twice; give each once")
        if "compliant" not in self.populations:
            raise ValueError(
                f"populations: {list(self.populations)} leaves out compliant, the devices that the guarantee and the "
                "gates are about; add it"
            )
        return self


class AbTestConfig(Config):
    """Comparison of arms on held-out test devices."""

    ngram_order: Annotated[int, Field(ge=1, le=5)] = 3
    buckets: Annotated[int, Field(ge=2)] = Field(default=20, description="user buckets of the jackknife")
    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.95
    max_devices: PositiveInt | None = Field(default=None, description="evaluate this many test devices at most")
    session_words: NonNegativeInt = Field(default=4000, description="words typed again by each calibration; 0: none")
    compose_rate: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        default=0.05, description="share of words before which the baseline may offer a phrase"
    )
    history_weight: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        default=0.2, description="largest share of the user's own history in the arms that have one; 0: no such arms"
    )
    non_private_upper_bound: bool = Field(
        default=False,
        description="also train without noise, to see what privacy costs; only where private_text is a simulation",
    )
    rare_after: PositiveInt = Field(default=1000, description="public words beyond this many are rare")
    margin: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        default=0.005, description="relative loss of the primary metric that still counts as neutral"
    )
    guardrail_margin: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.01
