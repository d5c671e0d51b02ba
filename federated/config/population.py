"""Configuration of the private population: whose text, and how it is split."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from pretrain.config import Config, Fraction, Line

NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"
# Share of the devices that training is watched on.
VALIDATION_FRACTION = 0.1
# Of made-up typists: what there is to write about, and how much one writes on average.
TOPICS, MEAN_WORDS = 20, 200


@dataclass(frozen=True)
class Kept:
    """Which text of people is kept: what was typed in so many days before a day.

    Attributes:
      now: what is said to be typed later waits for its time: read now, it would count from now and be read for longer.
    """

    days: int
    as_of: date
    now: datetime

    @property
    def between(self) -> tuple[datetime, datetime]:
        """The first and the last moment."""
        return datetime.combine(self.as_of, time(), UTC) - timedelta(days=self.days), self.now


class _Population(Config):
    retired: ClassVar[Mapping[str, Any]] = {"validation_fraction": VALIDATION_FRACTION}

    name: str = Field(
        pattern=NAME,
        description="letters, digits, '.', '_' and '-'; the ledger adds up spends under this name",
    )
    max_words_per_device: PositiveInt = Field(
        le=10_000_000, description="words of one device that are kept, in the order typed"
    )
    test_fraction: Fraction = Field(default=0.1, description="share of the devices held out to compare on")


class FilePopulation(_Population):
    """Bring your own Parquet or JSON lines: ``client_id, text[, locale, ts]``; a budget in a window needs ``ts``."""

    source: Literal["files"] = Field(description="your own Parquet or JSON lines")
    paths: tuple[Line, ...] = Field(min_length=1, description="paths or globs")


class ChitchatPopulation(_Population):
    """The packaged demo: real typed chat of 1,315 senders (chitchat-dataset 0.9.0, MIT)."""

    source: Literal["chitchat"] = Field(description="the packaged demo, which simulates devices")


class SyntheticPopulation(_Population):
    """Made-up typists for locales without data; every report says so."""

    retired: ClassVar[Mapping[str, Any]] = {**_Population.retired, "topics": TOPICS, "mean_words": MEAN_WORDS}

    source: Literal["synthetic"] = Field(description="made-up typists")
    devices: PositiveInt = Field(le=10_000_000, description="made-up devices")


PopulationConfig = Annotated[FilePopulation | ChitchatPopulation | SyntheticPopulation, Field(discriminator="source")]
