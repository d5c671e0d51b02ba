"""What the comparison of arms returns: aggregates over held-out devices, small, public, JSON.

Rows are those of the disclosure: what is reported is what was found.
"""

from pipeline.stage import StageResult
from reports.disclosure.utility import (
    ArmMetric,
    Champion,
    Difference,
    HeadWords,
    Pair,
    SecondOpinion,
    SliceMetric,
    Verdict,
)


class AbTest(StageResult):
    """Arms on held-out test devices; ``top1_gain`` is private minus starting point."""

    devices_at_least: int
    words: int
    session_words: int
    confidence: float
    margin: float
    champion: Champion | None
    simulation_without_privacy: bool
    top1_recall: dict[str, float]
    top3_recall: dict[str, float]
    top1_gain: float
    top1_gain_low: float
    top1_gain_high: float
    top3_gain_low: float
    broken_margins: list[str] | None
    missing_metrics: list[str] | None
    unstable_signs: list[Pair]
    features: dict[str, list[str]]
    arms: list[ArmMetric]
    differences: list[Difference]
    verdicts: list[Verdict]
    slices: list[SliceMetric]
    second_opinions: list[SecondOpinion]
    head_words: list[HeadWords]
    distinct_first_words: dict[str, int]
