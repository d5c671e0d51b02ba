"""Configuration of the private population: the source of its text, and its split.

Populations are of two kinds with two name spaces. People's text comes from ``files``; every other source is a
simulation, of text that is public or made up. ``PopulationKey`` holds both kind and name, and is all that the ledger,
caches and registered models know a population by: a simulation is never found under the name of people, nor people
under a simulation's, so its budget, its secret and its seeded noise protect nobody else.
"""

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, ClassVar, Literal, NewType

from pydantic import Field, PositiveInt

from pretrain.config import Config, Fraction, Line
from pretrain.reading.paths import shown

NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"
# ``NAME`` of people; ``SOURCE:NAME`` of a simulation, which no name of people can be.
PopulationKey = NewType("PopulationKey", str)
# Share of the devices that training is validated on.
VALIDATION_FRACTION = 0.1
# Of made-up typists: number of topics, and mean number of words.
TOPICS, MEAN_WORDS = 20, 200


@dataclass(frozen=True)
class Retention:
    """Retention window of people's text: the days before one day on which it was typed.

    Attributes:
      now: text with a later time stamp is not read yet: it would be read for longer than its window.
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
    """Split of a population: shares of the devices that may take part; the devices that are left train.

    Attributes:
      test: held out, to compare on.
      validation: held out, to watch training on.
    """

    test: float
    validation: float = VALIDATION_FRACTION

    def expected(self, population: int) -> dict[str, int]:
        """Expected numbers of devices that train, validate and test, of those that may take part."""
        parts = {"test": math.floor(population * self.test), "validation": math.floor(population * self.validation)}
        return {"train": population - sum(parts.values()), **parts}

    def training(self, population: int) -> int:
        """Expected number of devices that train, of those that may take part: rounds draw from them."""
        return self.expected(population)["train"]


# Where nobody is held out, as in a measurement on devices that all train.
EVERYBODY_TRAINS = Splits(0.0, 0.0)


class _Population(Config):
    """Fields that all sources have.

    Attributes:
      simulated: its text is public or made up, nobody's; only then may noise be seeded.
      synthetic: nobody typed it; every report says so.
      registers_itself: we make its text ourselves, so that a launch file cannot put people's in its place; any other
        population is registered by a person.
    """

    simulated: ClassVar[bool] = True
    synthetic: ClassVar[bool] = False
    registers_itself: ClassVar[bool] = False

    name: str = Field(
        pattern=NAME,
        description="letters, digits, '.', '_' and '-'; the ledger adds up spends under this name",
    )
    max_words_per_device: PositiveInt = Field(
        le=10_000_000, description="words of one device that are kept, in the order typed"
    )
    test_fraction: Fraction = Field(default=0.1, description="share of the devices held out to compare on")

    @property
    def splits(self) -> Splits:
        """Split of its devices."""
        return Splits(self.test_fraction)


class _Files(_Population):
    """Parquet or JSON lines: ``client_id, text[, locale, ts]``; a budget in a window needs ``ts``."""

    paths: tuple[Line, ...] = Field(min_length=1, description="paths or globs")


class FilePopulation(_Files):
    """Bring your own Parquet or JSON lines: ``client_id, text[, locale, ts]``; a budget in a window needs ``ts``."""

    simulated: ClassVar[bool] = False

    source: Literal["files"] = Field(description="your own Parquet or JSON lines, people's text")


class MadeUpFilePopulation(_Files):
    """The same files of text that nobody typed, for tests: a person registers it, and its devices never change."""

    synthetic: ClassVar[bool] = True

    source: Literal["made_up_files"] = Field(description="Parquet or JSON lines of text that is nobody's")


class ChitchatPopulation(_Population):
    """The packaged demo: real typed chat of 1,315 senders (chitchat-dataset 0.9.0, MIT)."""

    registers_itself: ClassVar[bool] = True

    source: Literal["chitchat"] = Field(description="the packaged demo, which simulates devices")


class SyntheticPopulation(_Population):
    """Made-up typists for locales without data; every report says so."""

    synthetic: ClassVar[bool] = True
    registers_itself: ClassVar[bool] = True

    source: Literal["synthetic"] = Field(description="made-up typists")
    devices: PositiveInt = Field(le=10_000_000, description="made-up devices")


# Both kinds are read alike.
Files = FilePopulation | MadeUpFilePopulation
_Source = FilePopulation | MadeUpFilePopulation | ChitchatPopulation | SyntheticPopulation
PopulationConfig = Annotated[_Source, Field(discriminator="source")]
SIMULATIONS = frozenset(("made_up_files", "chitchat", "synthetic"))


def key_of(population: _Source) -> PopulationKey:
    """The key of a launch file's population: its kind, by its source, and its name.

    Guarantee: no population of people has the key of a simulation, whatever either is called.
    """
    return PopulationKey(f"{population.source}:{population.name}" if population.simulated else population.name)


def population_key(text: str) -> PopulationKey:
    """Parse a population's key, as typed by a person.

    Raises:
      ValueError: it can be no population's.
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
