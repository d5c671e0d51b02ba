"""Blocks of the disclosure about its releases: one block each, with the release's loss and its own facts.

A disclosure lists them in the order in which they were made. ``templates/releases/NAME.md.j2`` holds the sentences
about a release. Counts of devices are rounded down to tens before they get here.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pretrain.config import Bearing, Config

ReleaseName = Literal["local_words", "central_words", "counts", "training", "evaluation"]
How = Literal["noise", "shuffled", "summed", "local"]
MECHANISMS = {
    "tree": "DP-FTRL, tree aggregation (Kairouz et al. 2021)",
    "blt": "DP-FTRL, buffered linear Toeplitz (McMahan et al. 2024)",
    "banded": "DP-FTRL, banded matrix factorisation (Choquette-Choo et al. 2023)",
    "independent": "DP-FedAvg, independent noise (McMahan et al. 2018)",
}
_SAME = 1e-6  # relative tolerance; a larger difference is a mistake, not rounding
Terms = Mapping[str, float | str]


class DataAccess(Config):
    """One use of data, covered by a guarantee or not."""

    stage: str
    data: Literal["public", "private"]
    covered: bool
    mechanism: str | None = None
    unit: str | None = None
    reason: str | None = Field(default=None, description="why a private access is not covered")

    @model_validator(mode="after")
    def _uncovered_needs_a_reason(self) -> "DataAccess":
        if self.data == "private" and not self.covered and not (self.reason or "").strip():
            raise ValueError(f"reason: stage {self.stage!r} uses private data outside the guarantee; say why")
        if self.covered and not (self.mechanism and self.unit):
            raise ValueError(f"mechanism, unit: stage {self.stage!r} counts as covered; say by what and for whom")
        return self


class Release(Config):
    """One release. A subclass fixes ``name``, the discriminator of the list.

    Attributes:
      split: split whose devices bear the loss.
    """

    split: ClassVar[Bearing] = "train"
    name: ReleaseName

    @property
    def called(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ")

    @property
    @abstractmethod
    def terms(self) -> Terms:
        """Terms by which a reader compares launches: values by their names in words."""

    @abstractmethod
    def adds(self, how: How) -> float:
        """Its addend in a part of the total: rho for ``noise``, epsilon otherwise."""

    @property
    def against_server(self) -> float | None:
        """Epsilon of a device against the server itself; None where the server is trusted."""
        return None


class Gaussian(Release):
    """A release under Gaussian noise; ``epsilon`` covers this release alone, at the launch's delta or its own."""

    rho: float
    epsilon: float

    def adds(self, how: How) -> float:
        """Rho, to which the other noised releases add theirs."""
        return self.rho


class DiscoveryLayer(Config):
    """One layer of the trie. Messages are rounded down to whole tens of devices."""

    layer: int
    messages: int
    domain: int
    noise: float = Field(description="standard deviation of an estimate, in messages, for an item that nobody holds")
    word_votes: int = Field(description="least votes that publish a word")
    one_holder_chance: float = Field(description="bound on the probability of publishing a word in one message")
    anonymity: int = Field(
        description="messages below which a word is published with probability at most one in a million"
    )
    lemma_1: float = Field(description="probability for that number of messages by lemma 1 of Sun & Sun 2024")
    kept: int
    finished: int
    clones: float
    blanket: float
    attack: float


class DiscoveryGuarantee(Config):
    """The item-level guarantee of local word discovery; never added to the device-level rho.

    ``epsilon_central`` follows from ``certificate``, ``epsilon_clones`` from hiding among the clones. An attack reaches
    ``epsilon_attack``, so the true value lies between it and the certificates. ``device_epsilon_central`` covers all
    messages of a device, by group privacy. All assume that ``honest_share`` of the other devices of a layer are honest.
    """

    epsilon0: float
    messages_per_device: int
    secure_aggregation: bool = Field(default=False, description="the server saw only sums of votes")
    device_level_epsilon0: float
    device_epsilon_central: float
    honest_share: float = Field(
        ge=0.0, le=1.0, description="share of the other devices of a layer that is assumed to answer honestly"
    )
    epsilon_central: float
    epsilon_clones: float
    epsilon_attack: float
    delta: float
    certificate: str
    layers: tuple[DiscoveryLayer, ...]


class CentralGuarantee(Config):
    """The device-level guarantee of words that a trusted aggregator found; part of the launch's guarantee.

    Except with probability ``failure``, ``rho``-zCDP for one device under zero-out adjacency, whose words add
    a vector of length 1 at most to the sums; (``epsilon``, ``delta``) by the Gaussian curve at ``delta - failure``.
    """

    noise_multiplier: float
    words_per_device: int
    threshold: float = Field(description="least noisy weight of a word that is released")
    rho: float
    epsilon: float
    delta: float
    failure: float = Field(description="bound on the probability that a word of one device alone is released")
    forms_share: float = Field(description="share of rho spent on the written forms (capitals) of found words")
    filled_share: float = Field(description="share of rho spent on the total contribution of all devices")


class LocalWords(DiscoveryGuarantee, Release):
    """Words found locally: each device randomises its own messages."""

    name: Literal["local_words"] = "local_words"

    @property
    def terms(self) -> Terms:
        """Messages and their epsilon."""
        return {"ε₀ of a message": self.epsilon0, "messages of a device": self.messages_per_device}

    def adds(self, how: How) -> float:
        """Epsilon of all messages of a device: against their collector (``local``), or by the certificate."""
        return self.device_level_epsilon0 if how == "local" else self.device_epsilon_central

    @property
    def against_server(self) -> float | None:
        """Epsilon of all messages of a device against their collector."""
        return self.device_level_epsilon0

    @property
    def least_anonymous(self) -> DiscoveryLayer | None:
        """The layer whose words may come from the fewest people; None where no layer can publish a word."""
        publishing = [row for row in self.layers if row.word_votes <= row.messages]
        return min(publishing, key=lambda row: (row.anonymity, -row.one_holder_chance), default=None)

    @model_validator(mode="after")
    def _a_device_sends_all_its_messages(self) -> "LocalWords":
        expected = self.messages_per_device * self.epsilon0
        if not math.isclose(self.device_level_epsilon0, expected, rel_tol=_SAME):
            raise ValueError(
                f"device_level_epsilon0: {self.device_level_epsilon0}; {self.messages_per_device} messages at epsilon0 "
                f"{self.epsilon0} make {expected}"
            )
        return self

    @model_validator(mode="after")
    def _certificates_are_in_order(self) -> "LocalWords":
        device = self.device_epsilon_central
        if not (self.epsilon_central <= device * (1 + _SAME) and device <= self.device_level_epsilon0 * (1 + _SAME)):
            raise ValueError(
                f"device_epsilon_central: {device}; it lies between epsilon_central {self.epsilon_central} and "
                f"device_level_epsilon0 {self.device_level_epsilon0}"
            )
        order = (self.epsilon_attack, self.epsilon_central, self.epsilon_clones, self.epsilon0)
        if any(low > high * (1 + _SAME) for low, high in itertools.pairwise(order)):
            raise ValueError(
                f"epsilon_central: attack {self.epsilon_attack}, certificate {self.epsilon_central}, clones "
                f"{self.epsilon_clones} and epsilon0 {self.epsilon0} must rise; one of them is wrong"
            )
        return self


class CentralWords(CentralGuarantee, Gaussian):
    """Words found by an aggregator that is trusted: noisy sums that pass a threshold."""

    name: Literal["central_words"] = "central_words"

    @property
    def terms(self) -> Terms:
        """Noise multiplier, and the number of words that a device contributes."""
        return {"noise multiplier": self.noise_multiplier, "words of a device": self.words_per_device}

    @model_validator(mode="after")
    def _rho_is_that_of_the_noise(self) -> "CentralWords":
        expected = 1 / (2 * self.noise_multiplier**2)
        if not math.isclose(self.rho, expected, rel_tol=_SAME):
            raise ValueError(f"rho: {self.rho}; noise of {self.noise_multiplier} sensitivities makes {expected}")
        if not 0 < self.failure < self.delta:
            raise ValueError(f"failure: {self.failure}; it is a part of delta {self.delta}")
        return self


class Counts(Gaussian):
    """Counts of words and of pairs of words, of every device that trains."""

    name: Literal["counts"] = "counts"
    noise_multiplier: float
    clip_norm: float = Field(description="bound on the length of a device's vector of counts, in weighted occurrences")
    start_weight: float = Field(
        description="weight of a pair at the start of a sentence under the clip norm, relative to a pair after a word",
    )
    cells: int
    contexts: int = Field(description="words whose next word is counted, including the start of a sentence")

    @property
    def terms(self) -> Terms:
        """Noise and bound."""
        return {"noise multiplier": self.noise_multiplier, "clip norm": self.clip_norm, "sums": self.cells}


class Evaluation(Gaussian):
    """Sums over test devices, the source of every figure about them; a test device loses nothing to training."""

    split: ClassVar[Bearing] = "test"
    name: Literal["evaluation"] = "evaluation"
    noise_multiplier: float
    clip_norm: float = Field(description="bound on one device's weighted vector")
    most_words: int = Field(description="largest number of words as which a device counts, at its own rates")

    @property
    def terms(self) -> Terms:
        """Noise and bound."""
        return {"noise multiplier": self.noise_multiplier, "clip norm": self.clip_norm}


class PrivacyLoss(Config):
    """The device-level guarantee of noised releases in numbers."""

    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float


class Amplification(Config):
    """Second guarantee of independent noise, under secret sampling; no gate and no ledger entry uses it."""

    sampling: str
    sampling_rate: float
    epsilon: float
    epsilon_second: float | None
    methods: tuple[str, ...]
    adjacency: str
    assumption: str = Field(min_length=1)


class TrainingLoss(PrivacyLoss):
    """Privacy loss of training alone, from observed participation."""

    sensitivity_squared: float
    amplified: Amplification | None = None
    rounds_root: str | None = Field(
        default=None,
        description="root of a Merkle tree (RFC 6962) over all rounds' cohort, released sum and model, by which any "
        "round can be challenged; None without training",
    )


class Mechanism(Config):
    """The mechanism as configured; training on the device and on the server."""

    kind: Literal["tree", "blt", "banded", "independent"]
    clip_norm: float
    noise_multiplier: float
    rounds: int
    report_goal: int
    parameters: dict[str, str] = Field(default={}, description="parameters of this kind of mechanism only")
    local_training: dict[str, float | str]
    server: dict[str, float | str]


class Timetable(Config):
    """Duration of rounds by the clock; minutes have two digits, as exact ones would reveal how many devices wait."""

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


class Training(TrainingLoss, Gaussian):
    """Federated training under DP-FTRL: the models after every round."""

    name: Literal["training"] = "training"
    planned_rho: float = Field(description="the worst case within the enforced limits")
    mechanism: Mechanism
    participation: Participation
    secagg: SecAgg | None = None

    @property
    def terms(self) -> Terms:
        """Mechanism, rounds, cohorts, noise and bound."""
        made = self.mechanism
        return {
            "mechanism": MECHANISMS[made.kind],
            "rounds": made.rounds,
            "report goal, devices a round": made.report_goal,
            "noise multiplier, per clip norm": made.noise_multiplier,
            "clip norm": made.clip_norm,
        }

    @model_validator(mode="after")
    def _only_a_secret_sample_amplifies(self) -> "Training":
        if self.amplified is not None and "sampling" not in self.mechanism.parameters:
            raise ValueError(
                f"amplified: given for {self.mechanism.kind} noise, whose devices are not sampled in secret; leave it "
                "out"
            )
        return self


ReleaseBlock = Annotated[LocalWords | CentralWords | Counts | Training | Evaluation, Field(discriminator="name")]
