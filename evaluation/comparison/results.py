"""What an offline comparison says, as values to store and to show. Aggregates only: no device, no word."""

from pydantic import BaseModel, ConfigDict

from evaluation.comparison.intervals import AbResult, ArmMetric, Estimate
from evaluation.comparison.slices import HeadShare
from evaluation.comparison.verdicts import FEATURE_METRICS, SecondOpinion, Verdict


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SliceRow(_Row):
    """A metric of one slice: of an arm, or of its difference to a baseline."""

    part: str
    arm: str
    baseline: str | None
    metric: str
    estimate: Estimate


class ComposeSetting(_Row):
    """Where Smart Compose speaks up, set on devices that are not compared; None: never, or nothing to say."""

    arm: str
    threshold_nats: float | None
    right_share: float | None
    trigger_rate: float


class SignCheck(_Row):
    """A difference under each calibration; a conclusion needs ``stable``."""

    candidate: str
    baseline: str
    metric: str
    changes: dict[str, float]
    stable: bool


class Comparison(_Row):
    """Everything.

    Attributes:
      table: metrics of all arms and paired differences, with intervals.
      second_opinions: of the first pair.
      distinct_first_words: how many different words each arm ever put first.
      session_words: words typed again; 0 if no session was simulated.
    """

    table: AbResult
    verdicts: tuple[Verdict, ...]
    second_opinions: tuple[SecondOpinion, ...]
    slices: tuple[SliceRow, ...]
    head_words: tuple[HeadShare, ...]
    distinct_first_words: dict[str, int]
    compose: tuple[ComposeSetting, ...]
    signs: tuple[SignCheck, ...]
    session_words: int

    def of_feature(self, feature: str) -> tuple[ArmMetric, ...]:
        """The metrics that a launch of ``NWP``, ``SC`` or ``OTF`` is told by (Xu et al. 2023, tables 1 and 2).

        Raises:
          ValueError: another feature.
        """
        if feature not in FEATURE_METRICS:
            raise ValueError(f"feature: {feature!r} is none of {', '.join(FEATURE_METRICS)}")
        return tuple(row for row in self.table.arms if row.metric in FEATURE_METRICS[feature])

    def slice_of(self, part: str, arm: str, metric: str, baseline: str | None = None) -> Estimate:
        """One slice's estimate; KeyError if that slice was too small."""
        for row in self.slices:
            if (row.part, row.arm, row.metric, row.baseline) == (part, arm, metric, baseline):
                return row.estimate
        raise KeyError(f"{part}, {arm}, {metric}, {baseline}")
