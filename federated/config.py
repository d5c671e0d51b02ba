"""Configuration of the private population and of federated fine-tuning.

``MechanismConfig`` holds what the privacy guarantee depends on; ``RuntimeConfig`` holds
what only speed depends on. They are apart so that a reviewer reads one and a platform
engineer tunes the other.
"""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

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


class TreeMechanism(Config):
    """DP-FTRL with tree aggregation and Honaker's variance reduction (Kairouz et al. 2021)."""

    kind: Literal["tree"]
    noise_multiplier: PositiveFloat = Field(description="noise std per clip norm, before sensitivity")
    clip_norm: PositiveFloat = Field(description="L2 bound C of one device's whole update")
    rounds: PositiveInt
    report_goal: PositiveInt = Field(description="devices aggregated in a round; the fixed denominator")
    min_sep: PositiveInt = Field(description="rounds from one participation to the next, at least: MinS + 1")
    max_participations: PositiveInt = Field(description="rounds one device may join; enforced")
    delta: Annotated[float, Field(gt=0.0, lt=1.0)]
    randomness: Literal["secure", "seeded"] = Field(
        description="'secure' draws a 256-bit key from the operating system; 'seeded' is for tests and is marked"
    )


MechanismConfig = TreeMechanism


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
