"""The block of the disclosure about the offline comparison: aggregates over held-out devices, plain or under noise."""

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from pretrain.config import Config
from reports.disclosure.releases import ReleaseBlock, ReleaseName
from reports.disclosure.total import Total

NON_PRIVATE = "non_private"


class EarlierLaunch(Config):
    """Loss and size of the launch of the current model, from its own disclosure.

    Attributes:
      releases: the terms of each of its releases, by their names in words.
    """

    created_at: str
    loss: Total
    devices_at_least: int
    words_added: int
    releases: dict[ReleaseName, dict[str, float | str]]


_RELEASES: TypeAdapter[tuple[ReleaseBlock, ...]] = TypeAdapter(
    tuple[ReleaseBlock, ...], config=ConfigDict(defer_build=True)
)


def earlier(stated: Mapping[str, Any]) -> EarlierLaunch | None:
    """The block for the content of a ``disclosure.json``; None where a field is missing."""
    flat = dict[str, Any]()
    for name in ("words", "population", "accounting", "launch"):
        flat |= stated.get(name) or {}
    flat |= {"loss": flat.get("total")}
    try:
        terms = {release.name: release.terms for release in _RELEASES.validate_python(stated.get("releases"))}
        return EarlierLaunch.model_validate(
            {name: flat.get(name) for name in EarlierLaunch.model_fields} | {"releases": terms}
        )
    except ValidationError:
        return None


class Champion(Config):
    """The current model of users, at the time of the comparison."""

    registered_model: str
    version: int
    launch_id: str
    bundle_sha256: str
    left_out: str = Field(default="", description="reason why it is no arm; empty if it is one")
    arm: str = Field(default="champion", description="name of its arm, if it is one")
    earlier: EarlierLaunch | None = Field(default=None, description="figures from its disclosure; none: not stated")


class OtherFeature(Config):
    """Champion of a feature beside the main one, and the findings against the launch; the model is the same.

    Attributes:
      attempt: number, from 1, of the comparison with this feature's current model on these held-out devices.
      broken_margins, missing_metrics: None where nothing was judged.
      worse_than_champion: metrics that are clearly worse than the current model's, or the reason why it could not be
        compared.
    """

    champion: Champion | None
    attempt: int
    broken_margins: tuple[str, ...] | None
    missing_metrics: tuple[str, ...] | None
    worse_than_champion: tuple[str, ...]


class ArmMetric(Config):
    """One metric of one arm on held-out devices: a ratio of two sums, with its interval."""

    arm: str
    metric: str
    numerator: float
    denominator: float
    value: float
    low: float
    high: float


class Pair(Config):
    """One metric by which a candidate is compared with a baseline."""

    candidate: str
    baseline: str
    metric: str


class Beginning(Config):
    """First suggestions after an everyday beginning, by arm.

    Attributes:
      suggested: words by arm, likeliest first; a discovered word is not named.
      expected: of these, the number among the words that are expected next, by arm.
    """

    text: str
    suggested: dict[str, tuple[str, ...]]
    expected: dict[str, int]


class Difference(Pair):
    """Candidate minus baseline, paired by device, with its interval."""

    value: float
    low: float
    high: float
    relative: dict[str, float] | None = None


class SliceMetric(Config):
    """One metric of one arm on some of the words or devices."""

    part: str
    arm: str
    metric: str
    value: float
    low: float
    high: float


class Verdict(Config):
    """Verdict on non-inferiority of a candidate: the metrics that fail, and those that have no interval."""

    candidate: str
    baseline: str
    feature: str = Field(default="", description="feature of the primary metric; empty: the launch's only feature")
    primary: str
    passes: bool
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    margin: float | None = Field(default=None, description="relative loss of the primary metric that counts as neutral")
    standard_error: float | None = Field(default=None, description="standard error of that relative change")
    power: float | None = Field(default=None, description="chance that an arm as good as the baseline passes")


class SecondOpinion(Pair):
    """Standard errors of one difference by three methods; ``agree`` if within a factor of 1.5."""

    jackknife: float
    delta: float
    bootstrap: float
    agree: bool


class HeadWords(Config):
    """Shares of the ``words`` most frequent words: of typed words, of first candidates, of right first candidates."""

    arm: str
    words: int
    typed: float
    predicted: float
    right: float


class Utility(Config):
    """The offline comparison; aggregates over held-out devices, plain or under noise.

    Attributes:
      champion: of the main feature; None where no earlier launch of this locale and feature was published.
      others: the launch's further features.
      simulation_without_privacy: an arm was trained without noise, which only a simulation may do.
      features: metrics of each feature (Xu et al. 2023, section 3).
      judged_words: words typed again under the arms that decide this launch.
      confidence: of each interval, after the correction for ``attempt``.
      attempt: number, from 1, of the comparison with the current model on these held-out devices; 0: not counted.
      beginnings: from a fixed list of the language; empty where there is none.
      variety: different words that an arm suggests first and people typed, expected in 300 typed words.
      unstable_signs: differences on which simulated typists contradict each other.
    """

    devices_at_least: int
    words: int
    session_words: int
    judged_words: int
    confidence: float
    attempt: int = 0
    champion: Champion | None
    others: dict[str, OtherFeature] = Field(default={}, description="by name")
    simulation_without_privacy: bool = Field(description="never true where the text is people's own")
    features: dict[str, tuple[str, ...]]
    compose_at_rate: tuple[str, ...] | None = Field(
        default=None,
        description="the deciding arms, if all match the first's rate of offers because one never reaches its "
        "precision; empty: all match its precision; none: nothing was typed",
    )
    arms: tuple[ArmMetric, ...]
    differences: tuple[Difference, ...]
    verdicts: tuple[Verdict, ...]
    slices: tuple[SliceMetric, ...]
    unstable_signs: tuple[Pair, ...]
    drowned: bool = Field(
        default=False,
        description="noise exceeds the contributions of test devices, so intervals hold every possible value",
    )
    second_opinions: tuple[SecondOpinion, ...]
    head_words: tuple[HeadWords, ...]
    variety: dict[str, float]
    beginnings: tuple[Beginning, ...]

    @model_validator(mode="after")
    def _an_arm_without_privacy_is_declared(self) -> "Utility":
        if self.simulation_without_privacy != any(row.arm == NON_PRIVATE for row in self.arms):
            raise ValueError(
                f"simulation_without_privacy: {self.simulation_without_privacy}, which contradicts the arms"
            )
        return self

    def value(self, arm: str, metric: str) -> ArmMetric | None:
        """One metric of one arm; None if it has none."""
        return next((row for row in self.arms if (row.arm, row.metric) == (arm, metric)), None)

    def part(self, part: str, arm: str, metric: str) -> SliceMetric | None:
        """One metric of one arm on some of the words or devices; None if it has none."""
        return next((row for row in self.slices if (row.part, row.arm, row.metric) == (part, arm, metric)), None)
