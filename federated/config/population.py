"""Configuration of the private population: whose text, and how it is split."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

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
