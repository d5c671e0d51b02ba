"""Configuration of the private population: the source of its text, and its split.

Populations are of two kinds with two name spaces. People's text comes from ``files``; every other source is a
simulation, of text that is public or made up. ``PopulationKey`` holds both kind and name, and is the only
identifier of a population in the ledger, in caches and in registered models. A simulation thus never shares a key with
people, and its budget, secret and seeded noise apply to nobody else.
"""

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, ClassVar, Literal, NewType

from pydantic import Field, PositiveInt, field_validator

from pretrain.config import Config, LaunchPath
from pretrain.reading.objects import require_address
from pretrain.reading.paths import shown

NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"
# ``NAME`` of people; ``SOURCE:NAME`` of a simulation, which no name of people can be.
PopulationKey = NewType("PopulationKey", str)
# Share of the validation devices.
VALIDATION_FRACTION = 0.1
# Made-up typists: number of topics, and mean number of words.
TOPICS, MEAN_WORDS = 20, 200


@dataclass(frozen=True)
class Retention:
    """Retention window of people's text: the days before one day on which it was typed.

    Attributes:
      now: text with a later time stamp is not read yet, as it would stay readable beyond its window.
    """

    days: int
    as_of: date
    now: datetime

    @property
    def between(self) -> tuple[datetime, datetime]:
        """The first and the last moment."""
        return datetime.combine(self.as_of, time(), UTC) - timedelta(days=self.days), self.now


@dataclass(frozen=True)
class Splits:
    """Split of a population: held-out shares of the eligible devices; the remaining devices train.

    Attributes:
      test: held out for the comparison.
      validation: held out for validating training.
    """

    test: float
    validation: float = VALIDATION_FRACTION

    def expected(self, population: int) -> dict[str, int]:
        """Expected numbers of train, validation and test devices among eligible devices."""
        parts = {"test": math.floor(population * self.test), "validation": math.floor(population * self.validation)}
        return {"train": population - sum(parts.values()), **parts}

    def training(self, population: int) -> int:
        """Expected number of training devices among eligible devices: rounds draw from them."""
        return self.expected(population)["train"]


# No held-out devices, as in a benchmark in which all devices train.
EVERYBODY_TRAINS = Splits(0.0, 0.0)


class _Population(Config):
    """Fields that all sources have.

    Attributes:
      simulated: its text is public or made up, not people's; only then may noise be seeded.
      synthetic: nobody typed its text; every report says so.
      registers_itself: tacit makes its text, so a launch file cannot replace it by people's text; a person registers
        any other population.
    """

    simulated: ClassVar[bool] = True
    synthetic: ClassVar[bool] = False
    registers_itself: ClassVar[bool] = False

    name: str = Field(
        pattern=NAME,
        description="letters, digits, '.', '_' and '-'; the ledger adds up spends under this name",
    )
    max_words_per_device: PositiveInt = Field(
        le=10_000_000, description="largest number of kept words of one device, in the order typed"
    )
    test_fraction: float = Field(
        default=0.1,
        gt=0.0,
        lt=1 - VALIDATION_FRACTION,
        description=f"share of the devices held out for the comparison; {VALIDATION_FRACTION:g} of all validate",
    )

    @property
    def splits(self) -> Splits:
        """Split of its devices."""
        return Splits(self.test_fraction)


class _Files(_Population):
    """Parquet, JSON lines or CSV: ``client_id, text[, locale, ts]``; a budget in a window needs ``ts``."""

    paths: tuple[LaunchPath, ...] = Field(
        min_length=1,
        description="paths or globs, from the launch file's folder, or addresses as in s3://BUCKET/FOLDER/*.parquet",
    )

    @field_validator("paths")
    @classmethod
    def _addresses(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            require_address(path)
        return paths


class FilePopulation(_Files):
    """Your own Parquet, JSON lines or CSV: ``client_id, text[, locale, ts]``; a budget in a window needs ``ts``."""

    simulated: ClassVar[bool] = False

    source: Literal["files"] = Field(description="your own Parquet, JSON lines or CSV, people's text")


class MadeUpFilePopulation(_Files):
    """The same files of text that nobody typed, for tests: a person registers it, and its devices never change."""

    synthetic: ClassVar[bool] = True

    source: Literal["made_up_files"] = Field(description="Parquet, JSON lines or CSV of text that is nobody's")


class ChitchatPopulation(_Population):
    """The packaged demo: real typed chat of 1,315 senders (chitchat-dataset 0.9.0, MIT).

    Attributes:
      devices: a sender is a device.
    """

    registers_itself: ClassVar[bool] = True
    devices: ClassVar[int] = 1_315

    source: Literal["chitchat"] = Field(description="the packaged demo, which simulates devices")


class SyntheticPopulation(_Population):
    """Made-up typists for locales without data; every report says so."""

    synthetic: ClassVar[bool] = True
    registers_itself: ClassVar[bool] = True

    source: Literal["synthetic"] = Field(description="made-up typists")
    devices: PositiveInt = Field(le=10_000_000, description="made-up devices")


# Both kinds have the same reader.
Files = FilePopulation | MadeUpFilePopulation
_Source = FilePopulation | MadeUpFilePopulation | ChitchatPopulation | SyntheticPopulation
PopulationConfig = Annotated[_Source, Field(discriminator="source")]
SIMULATIONS = frozenset(("made_up_files", "chitchat", "synthetic"))


def key_of(population: _Source) -> PopulationKey:
    """The key of a launch file's population: its kind, by its source, and its name.

    Guarantee: no population of people has the key of a simulation, for any names.
    """
    return PopulationKey(f"{population.source}:{population.name}" if population.simulated else population.name)


def population_key(text: str) -> PopulationKey:
    """Parse a population's key, as typed by a person.

    Raises:
      ValueError: it is not a valid key.
    """
    source, colon, name = text.rpartition(":")
    if not re.fullmatch(NAME, name) or name.endswith("\n") or (colon and source not in SIMULATIONS):
        raise ValueError(
            f"population: {shown(repr(text))} can be none; give a NAME of letters, digits, '.', '_' and '-', or "
            f"SOURCE:NAME of a simulation, whose source is {', '.join(sorted(SIMULATIONS))}; 'tacit ledger show' lists "
            "those that there are"
        )
    return PopulationKey(text)


def is_simulation(key: PopulationKey) -> bool:
    """True for a simulation: text that is public or made up."""
    return ":" in key
