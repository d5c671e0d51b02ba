"""Configuration of the private population and of federated fine-tuning.

``MechanismConfig`` holds what the privacy guarantee depends on; ``RuntimeConfig`` holds
what only speed depends on. They are apart so that a reviewer reads one and a platform
engineer tunes the other.
"""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from pretrain.config import Config, Fraction


class _Population(Config):
    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$", description="the ledger adds up spends under this name")
    max_words_per_device: PositiveInt
    validation_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.1


class FilePopulation(_Population):
    """Bring your own Parquet or JSON lines: ``client_id, text[, locale, ts]``."""

    source: Literal["files"]
    paths: tuple[str, ...] = Field(min_length=1, description="paths or globs")


class ChitchatPopulation(_Population):
    """The packaged demo: real typed chat of 1,315 senders (chitchat-dataset 0.9.0, MIT)."""

    source: Literal["chitchat"]


class SyntheticPopulation(_Population):
    """Made-up typists for locales without data; every report says so."""

    source: Literal["synthetic"]
    devices: PositiveInt
    topics: PositiveInt = 20
    mean_words: PositiveInt = 200


PopulationConfig = Annotated[FilePopulation | ChitchatPopulation | SyntheticPopulation, Field(discriminator="source")]


class _Mechanism(Config):
    noise_multiplier: PositiveFloat = Field(
        description="noise std per clip norm, before sensitivity; not comparable between mechanisms"
    )
    clip_norm: PositiveFloat = Field(description="L2 bound C of one device's whole update")
    rounds: PositiveInt
    report_goal: PositiveInt = Field(description="devices aggregated in a round; the fixed denominator")
    min_sep: PositiveInt = Field(description="rounds from one participation to the next, at least: MinS + 1")
    max_participations: PositiveInt = Field(description="rounds one device may join; enforced")
    delta: Annotated[float, Field(gt=0.0, lt=1.0)]
    randomness: Literal["secure", "seeded"] = Field(
        description="'secure' draws a 256-bit key from the operating system; 'seeded' is for tests and is marked"
    )


class TreeMechanism(_Mechanism):
    """DP-FTRL with tree aggregation and Honaker's variance reduction (Kairouz et al. 2021)."""

    kind: Literal["tree"]
    restarts: tuple[PositiveInt, ...] = Field(default=(), description="rounds at which a new tree begins")

    @model_validator(mode="after")
    def _restarts_lie_inside(self) -> "TreeMechanism":
        if list(self.restarts) != sorted(set(self.restarts)) or any(value >= self.rounds for value in self.restarts):
            raise ValueError(
                f"restarts: {list(self.restarts)} must rise and lie between 1 and {self.rounds - 1}, "
                "the rounds of this run"
            )
        return self


class BltMechanism(_Mechanism):
    """DP-FTRL with a buffered linear Toeplitz mechanism (McMahan et al. 2024)."""

    kind: Literal["blt"]
    preset: Literal["min-sep-100", "min-sep-400", "min-sep-1000"] | None = Field(
        default=None, description="parameters that ran in production; give this, or theta and omega"
    )
    theta: tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...] = ()
    omega: tuple[PositiveFloat, ...] = ()

    @model_validator(mode="after")
    def _one_set_of_parameters(self) -> "BltMechanism":
        if (self.preset is None) == (not self.theta) or len(self.theta) != len(self.omega):
            raise ValueError(
                f"got {self.preset or 'no'} preset, {len(self.theta)} theta and {len(self.omega)} omega; "
                "give either a preset, or as many theta as omega"
            )
        if sum(self.omega) > 1:
            raise ValueError(
                f"omega: the scales add up to {sum(self.omega):.6g}; scale them down to a sum of at most 1, "
                "or the sensitivity formula does not hold"
            )
        return self


MechanismConfig = Annotated[TreeMechanism | BltMechanism, Field(discriminator="kind")]


class LocalTrainingConfig(Config):
    """What one device does in one round: one or more epochs of plain SGD."""

    learning_rate: PositiveFloat
    batch_sentences: PositiveInt
    sequence_words: PositiveInt
    epochs: PositiveInt = 1
    max_words: PositiveInt = Field(description="words of one device used in one round, from a per-round offset")


class ServerConfig(Config):
    """The server's step on the noisy mean update."""

    learning_rate: PositiveFloat
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9


class RuntimeConfig(Config):
    """Speed and safety nets; changing these changes neither the guarantee nor the launch id."""

    workers: PositiveInt = 1
    device: Literal["cpu", "cuda"] = "cpu"
    chunk_devices: PositiveInt = 8
    checkpoint_every_rounds: PositiveInt = 5
    evaluate_every_rounds: PositiveInt = 5
    keep_checkpoints: PositiveInt = 2
    stage_timeout_minutes: PositiveFloat = 720.0
