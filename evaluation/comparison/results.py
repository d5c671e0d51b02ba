"""Results of an offline comparison. Aggregates only: no device, no word."""

from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from evaluation.comparison.intervals import AbResult, Estimate
from evaluation.comparison.slices import HeadShare
from evaluation.comparison.verdicts import SecondOpinion, SignCheck, Verdict


@dataclass(frozen=True)
class SliceRow:
    """A metric of one slice: of an arm, or of its difference from a baseline."""

    part: str
    arm: str
    baseline: str | None
    metric: str
    estimate: Estimate


@dataclass(frozen=True)
class ComposeSetting:
    """Smart Compose threshold of a deciding arm, set on other devices; None: no threshold, or no phrases.

    Attributes:
      equal: the property that matches the first arm: precision of phrases, or rate of offers.
    """

    arm: str
    threshold_nats: float | None
    right_share: float | None
    trigger_rate: float
    equal: Literal["precision", "rate"]


@dataclass(frozen=True)
class Comparison:
    """Findings of an offline comparison: intervals, verdicts, slices, second opinions.

    Attributes:
      table: recall of all arms, metrics of typing of those that decide, and paired differences, with intervals.
      second_opinions: of the first pair.
      variety: different right first candidates of each arm, expected in ``VARIETY_WORDS`` words (``slices.variety``).
      session_words: words typed again by every kind of typist; 0 if none typed, or under a budget.
      judged_words: words typed again under the arms of the decisive pairs.
    """

    table: AbResult
    verdicts: tuple[Verdict, ...]
    second_opinions: tuple[SecondOpinion, ...]
    slices: tuple[SliceRow, ...]
    head_words: tuple[HeadShare, ...]
    variety: dict[str, float]
    compose: tuple[ComposeSetting, ...]
    signs: tuple[SignCheck, ...]
    session_words: int
    judged_words: int

    @staticmethod
    def from_json(text: str) -> "Comparison":
        """Read what ``to_json`` wrote.

        Raises:
          ValueError: it is not a comparison.
        """
        return TypeAdapter(Comparison).validate_json(text)

    def to_json(self) -> str:
        """The comparison as JSON, one field per line."""
        return TypeAdapter(Comparison).dump_json(self, indent=1).decode()
