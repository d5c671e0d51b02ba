"""The optional ``planning:`` block of a launch file: what the planner and the rehearsal may choose from.

Nothing here changes a launch. The planner reads it, proposes a ``mechanism:`` block, and a person
puts that block into the file.
"""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from pretrain.config import Config, CorpusConfig, Fraction

Kind = Literal["tree", "blt", "banded"]


class RehearsalConfig(Config):
    """A small simulation on public text: Xu et al. 2023, section 2.5."""

    public_text: CorpusConfig | None = Field(
        default=None,
        description="text that reads like typing, not seen in pretraining; default: the launch's own public text",
    )
    pseudo_users: PositiveInt = Field(default=600, description="parts of the public text that play devices")
    words_per_user: Literal["heavy-tailed", "fixed"] = Field(
        default="heavy-tailed", description="word budgets: log-normal, as people type, or all the same"
    )
    median_words: PositiveInt = Field(default=150, description="median word budget of a pseudo-user, in words")
    report_goal: PositiveInt = Field(default=50, description="pseudo-users aggregated in a round")
    rounds: Annotated[int, Field(ge=2)] = Field(default=12, description="rounds of one simulation")
    start_clip_norm: PositiveFloat = Field(
        default=1.0, description="where adaptive clipping begins; it moves to the median norm of the updates"
    )
    server_learning_rates: tuple[PositiveFloat, ...] = Field(default=(0.5, 1.0, 2.0), min_length=1)
    noise_to_signal: tuple[PositiveFloat, ...] = Field(
        default=(0.0025, 0.005, 0.01, 0.02, 0.04),
        min_length=1,
        description="ratios to try: root-mean-square noise in a sum of mean updates, per coordinate, in clip norms",
    )
    max_accuracy_loss: Fraction = Field(
        default=0.002, description="accuracy that noise may cost against no noise: 0.002 is 0.2 percentage points"
    )


class PlanningConfig(Config):
    """What is known and what is wanted before a launch."""

    population_estimate: PositiveInt = Field(description="devices that may take part; a bucketed or public figure")
    max_report_goal: PositiveInt = Field(description="most devices that one round can aggregate")
    round_minutes: PositiveFloat = Field(description="minutes that a slow round takes; the device timer follows")
    target_rho: PositiveFloat | None = Field(default=None, description="zCDP of the run; or give target_epsilon")
    target_epsilon: PositiveFloat | None = Field(default=None, description="at mechanism.delta; or give target_rho")
    noise_to_signal: PositiveFloat | None = Field(
        default=None, description="what 'tacit rehearse' found; without it the ratio of the mechanism block is kept"
    )
    rounds: tuple[PositiveInt, ...] = Field(default=(), description="numbers of rounds to consider; default: as set")
    mechanisms: tuple[Kind, ...] = Field(default=("tree", "blt", "banded"), min_length=1)
    max_noise_copies: Annotated[int, Field(ge=2)] = Field(
        default=16, description="memory for the noise between rounds, in copies of the model"
    )
    spare_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        default=0.1, description="share of the population not counted on: estimates are rough, devices come and go"
    )
    rehearsal: RehearsalConfig = RehearsalConfig()

    @field_validator("rounds", "mechanisms")
    @classmethod
    def _no_value_twice(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(values)) != len(values):
            raise ValueError(f"got {list(values)}; name every value once")
        return values

    @model_validator(mode="after")
    def _one_target(self) -> "PlanningConfig":
        if (self.target_rho is None) == (self.target_epsilon is None):
            raise ValueError(
                f"target_rho {self.target_rho} and target_epsilon {self.target_epsilon}: give exactly one of the two"
            )
        return self

    @model_validator(mode="after")
    def _population_fills_a_round(self) -> "PlanningConfig":
        if self.usable_population < 1:
            raise ValueError(
                f"spare_fraction: {self.spare_fraction} of {self.population_estimate} devices leaves none; lower it"
            )
        return self

    @property
    def usable_population(self) -> int:
        """Devices that the plan counts on."""
        # Rounded before it is cut, or 0.9 of a round number could lose a device to binary fractions.
        return int(round(self.population_estimate * (1 - self.spare_fraction), 6))
