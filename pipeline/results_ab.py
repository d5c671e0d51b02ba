"""What the comparison of arms returns: aggregates over held-out devices, small, public, JSON."""

from pydantic import BaseModel

from pipeline.stage import StageResult


class Champion(BaseModel):
    """What users had when the launch was compared with it, as the registry named it."""

    registered_model: str
    version: int
    launch_id: str
    bundle_sha256: str


class Metric(BaseModel):
    """One metric of one arm: the ratio of two sums over devices, with its interval."""

    arm: str
    metric: str
    numerator: float
    denominator: float
    value: float
    low: float
    high: float


class Difference(BaseModel):
    """One paired difference; ``relative`` is the same over the baseline, where that is not 0."""

    candidate: str
    baseline: str
    metric: str
    value: float
    low: float
    high: float
    relative: dict[str, float] | None


class Pair(BaseModel):
    """A metric of two arms."""

    candidate: str
    baseline: str
    metric: str


class Slice(BaseModel):
    """One metric of one arm on some of the words or devices."""

    part: str
    arm: str
    metric: str
    value: float
    low: float
    high: float


class Verdict(BaseModel):
    """Whether a candidate is not inferior; the metrics that say no, and those without an interval."""

    candidate: str
    baseline: str
    primary: str
    passes: bool
    failed: list[str]
    missing: list[str]


class SecondOpinion(BaseModel):
    """Standard errors of one difference by three methods."""

    candidate: str
    baseline: str
    metric: str
    jackknife: float
    delta: float
    bootstrap: float
    agree: bool


class HeadWords(BaseModel):
    """How far an arm leans on the ``words`` most frequent (McMahan et al. 2018, table 3)."""

    arm: str
    words: int
    typed: float
    predicted: float
    right: float


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
    arms: list[Metric]
    differences: list[Difference]
    verdicts: list[Verdict]
    slices: list[Slice]
    second_opinions: list[SecondOpinion]
    head_words: list[HeadWords]
    distinct_first_words: dict[str, int]
