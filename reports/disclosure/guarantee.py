"""Blocks of the disclosure that hold what the stages measured.

Counts of devices are rounded down to tens before they get here. Privacy losses are per launch.
"""

import math
from typing import Literal

from pydantic import Field, model_validator

from pretrain.config import Config, TextPart
from reports.disclosure.total import Total

_SAME = 1e-6  # relative; what is further apart is a mistake, not rounding


class Selection(Config):
    """The released model that chose among public sentences."""

    registered_model: str
    version: int
    launch_id: str
    effective_share: float


class PublicText(Config):
    """Provenance of the public model's training text."""

    source: str
    licence: str
    parts: tuple[TextPart, ...] = ()
    selection: Selection | None = None
    documents: int
    train_tokens: int


class Population(Config):
    """Participating population; counts are rounded down to tens."""

    name: str
    source: str
    synthetic: bool
    devices_at_least: int
    devices_by_split: dict[str, int]
    split: str | None = Field(
        default=None, description="which devices train; launches of one population and split hold out the same ones"
    )
    split_rule: str | None = Field(default=None, description="the same, with the fractions that are held out")
    other_locales: int = Field(default=0, description="rows of other locales, left out; rounded down to hundreds")
    days_kept: int | None = Field(default=None, description="text is kept so long; None where nothing is deleted")
    as_of: str | None = Field(default=None, description="the day from which they are counted back")
    older: int = Field(default=0, description="rows typed at no time of these days, deleted; rounded down to hundreds")


class MechanismBlock(Config):
    """The mechanism as configured."""

    kind: Literal["tree", "blt", "banded", "independent"]
    clip_norm: float
    noise_multiplier: float
    rounds: int
    report_goal: int
    delta: float
    randomness: str
    parameters: dict[str, str] = Field(default={}, description="what is particular to this mechanism")
    local_training: dict[str, float | str]
    server: dict[str, float | str]


class Timetable(Config):
    """Duration of rounds by the clock; minutes in two digits, as exact ones would tell how many devices wait."""

    run_days: float
    shortest_minutes: float
    median_minutes: float
    longest_minutes: float
    median_minutes_by_part: tuple[float, ...] = Field(description="of each tenth of the run")


class ObservedParticipation(Config):
    """Observed participation of the protected devices, from the records.

    ``min_sep`` is the difference of two rounds; the papers' MinS is ``min_sep - 1``.
    Histogram counts are rounded down to tens; 0 stands for fewer than ten.
    """

    observed_min_sep: int | None
    observed_mins: int | None
    observed_max_participations: int
    violations: int
    synthetic_devices: int
    participation_histogram: dict[str, int]
    separation_histogram: dict[str, int]
    rounds_below_goal: int | None = Field(default=None, description="rounds with fewer devices than the report goal")
    mean_devices: int | None = Field(default=None, description="devices in a round, rounded down to tens")
    check_ins: int | None = Field(default=None, description="expected in a round's hour, as a mean; in tens")
    fewest_check_ins: int | None = Field(default=None, description="the same in the worst round")
    timetable: Timetable | None = Field(default=None, description="by the clock; none where rounds are counted")


class Participation(ObservedParticipation):
    """Enforced limits on participation, and the participation that the records show."""

    enforced_min_sep: int
    enforced_max_participations: int

    @model_validator(mode="after")
    def _mins_is_one_less(self) -> "Participation":
        expected = None if self.observed_min_sep is None else self.observed_min_sep - 1
        if self.observed_mins != expected:
            raise ValueError(
                f"observed_mins: {self.observed_mins} with observed_min_sep {self.observed_min_sep}; MinS counts the "
                f"rounds strictly between, so it is {expected}"
            )
        return self


class SecAgg(Config):
    """Encoding of device updates under secure aggregation, and its cost."""

    bits: int
    neighbours: int
    threshold: int
    inflated_norm: float = Field(ge=1.0, description="a device's contribution in clip norms, at most")
    wrap_probability: float = Field(ge=0.0, le=1.0, description="a round; 0, as every element is bounded")
    clipped_fraction: float
    rounding_std: float = Field(description="of each parameter of the sum, in clip norms")


class Amplified(Config):
    """Second guarantee of independent noise, under secret sampling; no gate and no ledger entry counts on it."""

    sampling: str
    sampling_rate: float
    epsilon: float
    epsilon_second: float | None
    methods: tuple[str, ...]
    adjacency: str
    assumption: str = Field(min_length=1)


class ReleasedCounts(Config):
    """One Gaussian release of every device's counts of words and pairs of words."""

    ships: Literal["network", "mixture", "counts"]
    noise_multiplier: float
    clip_norm: float = Field(description="bound on a device's counts of all cells together, in weighted occurrences")
    start_weight: float = Field(
        description="how many times as much a pair at the start of a sentence weighs under the clip norm as one after "
        "a word",
    )
    cells: int
    contexts: int = Field(description="words whose next word is counted, the start of a sentence among them")
    rho: float
    epsilon: float


class ReleasedEvaluation(Config):
    """One Gaussian release of sums over test devices, from which every figure about them follows."""

    noise_multiplier: float
    clip_norm: float = Field(description="bound on one device's weighted vector")
    most_words: int = Field(description="as which a device counts at most, by its own rates")
    rho: float = Field(description="for a test device, which loses nothing to training")
    epsilon: float


class PrivacyLoss(Config):
    """The device-level guarantee of noised releases in numbers, from observed participation."""

    sensitivity_squared: float
    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float
    amplified: Amplified | None = None


class GroupLoss(Config):
    """Privacy loss of a person with several devices: sums of each release may change by as many contributions."""

    devices: int = Field(ge=2)
    rho: float
    epsilon: float


class Accounting(PrivacyLoss):
    """The device-level guarantee of training, of counts too where there are any, and how it was computed."""

    agree: bool
    methods: tuple[str, ...]
    planned_rho: float
    secagg: SecAgg | None = None
    counts: ReleasedCounts | None = None
    evaluation: ReleasedEvaluation | None = Field(default=None, description="on other devices than training")
    training_rho: float | None = Field(default=None, description="what of rho is training's, beside other releases")
    words_rho: float | None = Field(default=None, description="what of rho is that of words found centrally")
    failure: float = Field(default=0.0, description="part of delta for which rho does not hold")
    total: Total = Field(description="over all releases, words that were found locally among them")
    curve: tuple[tuple[float, float], ...] = Field(description="(delta, epsilon) of the exact Gaussian curve")
    group: tuple[GroupLoss, ...] = Field(default=(), description="of several devices; empty: not stated")

    @property
    def bound(self) -> float:
        """The launch's one epsilon at ``delta``."""
        return self.total.epsilon

    @property
    def trains(self) -> float:
        """Loss of a device that trains: to words and counts, where there are any, and to training."""
        if self.training_rho is None:
            return self.rho
        return math.fsum((self.training_rho, self.words_rho or 0.0, self.counts.rho if self.counts else 0.0))

    @model_validator(mode="after")
    def _releases_add_up(self) -> "Accounting":
        more = any(part is not None for part in (self.counts, self.words_rho, self.evaluation))
        if more != (self.training_rho is not None):
            raise ValueError("training_rho: it stands beside what else makes up rho, and only there")
        # A device either trains or is held out.
        larger = max(self.trains, self.evaluation.rho if self.evaluation else 0.0)
        if self.training_rho is not None and not math.isclose(self.rho, larger, rel_tol=_SAME):
            raise ValueError(f"rho: {self.rho}, but its parts add up to {larger}")
        return self

    @model_validator(mode="after")
    def _the_total_is_of_this_launch(self) -> "Accounting":
        if not math.isclose(self.total.delta, self.delta, rel_tol=_SAME):
            raise ValueError(f"total: at delta {self.total.delta}; the launch's is {self.delta}")
        shown: dict[str, bool] = {
            "counts": self.counts is not None,
            "evaluation": self.evaluation is not None,
        }
        named = {name for part in self.total.parts for name in part.releases}
        if wrong := [name for name, stated in shown.items() if stated != (name in named)]:
            raise ValueError(
                f"total: {sorted(named)}, beside which {', '.join(wrong)} would stand alone; add all of it"
            )
        noised = self.total.noised
        if noised is not None and not math.isclose(noised.rho or 0.0, self.trains, rel_tol=_SAME):
            raise ValueError(f"total: rho {noised.rho} of devices that train; the releases make {self.trains}")
        return self

    @model_validator(mode="after")
    def _groups_lose_by_the_square(self) -> "Accounting":
        for group in self.group:
            if not math.isclose(group.rho, group.devices**2 * self.rho, rel_tol=_SAME):
                raise ValueError(
                    f"group: rho {group.rho} of {group.devices} devices; rho {self.rho} of one makes "
                    f"{group.devices**2 * self.rho}"
                )
        if self.group and self.failure:
            raise ValueError("group: a chance of failing does not grow by the square; leave it out")
        return self

    @model_validator(mode="after")
    def _mu_follows_from_rho(self) -> "Accounting":
        expected = math.sqrt(2 * self.rho) if self.rho >= 0 else math.nan
        if not math.isclose(self.mu, expected, rel_tol=_SAME):
            raise ValueError(f"mu: {self.mu} with rho {self.rho}; it is sqrt(2 rho) = {expected}")
        return self


class PopulationSpend(Config):
    """One device-level entry of the ledger on this population."""

    launch_id: str
    stage: str
    kind: str
    rho: float
    split: str = Field(default="train", description="whose devices lose")
    failure: float = Field(default=0.0, description="probability with which rho does not hold")
    reserved: str | None = Field(default=None, description="day from which on it counts")


class ReusedRelease(Config):
    """A release that another launch on this population made and paid for, used again as it was; it costs no more."""

    stage: str
    launch_id: str
    unit: str
    rho: float | None = Field(description="that launch's spend; None where the unit is no device")
    epsilon: float = Field(description="that launch's spend, stated in full, as it covers both launches")


class WindowLoss(Config):
    """Most rho that one device lost in any window of ``days`` days."""

    days: int
    ceiling_rho: float
    most_rho: float = Field(description="in the window in which it lost most")


class Composition(Config):
    """All launches on this population so far.

    Attributes:
      total_rho: of one device: under one rule of the split the largest split counts, over rules they add up.
      total_failure: probability with which that does not hold.
    """

    spends: tuple[PopulationSpend, ...]
    total_rho: float
    total_failure: float = 0.0
    ceiling_rho: float | None = Field(description="for ever; None where a window alone bounds it")
    window: WindowLoss | None = None


class Curves(Config):
    """Training curves, each a list of points."""

    pretraining: tuple[dict[str, float], ...]
    adaptation: tuple[dict[str, float], ...]
    fine_tuning: tuple[dict[str, float], ...]
