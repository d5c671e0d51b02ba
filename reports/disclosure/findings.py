"""Blocks of the disclosure about what was found: words, what the model remembers, what it is worth.

Counts of devices are rounded down to tens before they get here.
"""

import itertools
import math
from typing import Literal

from pydantic import Field, model_validator

from pretrain.config import Config

_SAME = 1e-6  # relative; what is further apart is a mistake, not rounding


class DiscoveryLayer(Config):
    """One layer of the trie. Messages are rounded down to whole tens of devices."""

    layer: int
    messages: int
    domain: int
    noise: float = Field(description="standard deviation of an estimate, in messages, for an item nobody holds")
    word_votes: int = Field(description="least votes that publish a word")
    one_holder_chance: float = Field(description="of publishing a word in one message, at most")
    anonymity: int = Field(description="a word in fewer messages is published with at most one chance in a million")
    lemma_1: float = Field(description="the same for that number by the paper's lemma 1")
    kept: int
    finished: int
    clones: float
    blanket: float
    attack: float


class ProjectedCoverage(Config):
    """One point of the projection on public text: how many of the words held out ``epsilon0`` would find."""

    epsilon0: float
    coverage: float
    words: int
    false_words: int


class NewWordAdaptation(Config):
    """New words in public text. Losses are nats per new word of held-out public text; None where it holds none."""

    new_words_in_text: int
    new_word_sentences: int
    copies: int
    new_word_loss_before: float | None
    new_word_loss_after: float | None


class DiscoveryGuarantee(Config):
    """The item-level guarantee of word discovery; never added to the device-level rho.

    ``epsilon_central`` is by the certificate named; ``epsilon_clones`` by the older one; ``epsilon_attack`` is
    what an attack reaches, so the truth lies between it and the certificates. ``device_epsilon_central`` is about
    all messages of a device at once, by group privacy. All count on ``honest_share`` of the other devices of a layer.
    """

    epsilon0: float
    messages_per_device: int
    secure_aggregation: bool = Field(default=False, description="votes were added without the server seeing an addend")
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
    words_found: int


class CentralGuarantee(Config):
    """The device-level guarantee of words that a trusted aggregator found; part of the whole launch's.

    But for an event of probability ``failure``, ``rho``-zCDP for one device under zero-out adjacency, whose words add
    a vector of length 1 at most to the sums; (``epsilon``, ``delta``) by the Gaussian curve at ``delta - failure``.
    """

    kind: Literal["central"] = "central"
    noise_multiplier: float
    words_per_device: int
    threshold: float = Field(description="least noisy weight of a word that is released")
    rho: float
    epsilon: float
    delta: float
    failure: float = Field(description="chance that a word of one device alone is released, at most")
    words_found: int
    forms_share: float = Field(description="of rho, what was spent on how the found words are written")
    filled_share: float = Field(description="of rho, what was spent on how much devices contributed")


class WordCoverage(Config):
    """Coverage by the new words on held-out devices, and its projection from public text."""

    reviewed: bool
    coverage: float | None = Field(description="share of unknown words on held-out devices that are now known")
    coverage_low: float | None
    coverage_high: float | None
    projection: tuple[ProjectedCoverage, ...] = Field(description="from public text alone: no device was asked")


class AddedWords(WordCoverage):
    """Words added to the vocabulary, and their coverage."""

    words_added: int
    words: tuple[str, ...] | None = Field(description="those that were added; None where the launch lists none")
    projected_words: int = Field(description="words that a pretended typist of the projection types")
    given_files: dict[str, str] = Field(
        description="digests of the blocklist and, under a secret key, of the sheet a person decided on"
    )
    adaptation: NewWordAdaptation


class CentralBlock(CentralGuarantee, AddedWords):
    """Word discovery by a trusted aggregator: its guarantee, and what became of the words."""

    @model_validator(mode="after")
    def _rho_is_that_of_the_noise(self) -> "CentralBlock":
        expected = 1 / (2 * self.noise_multiplier**2)
        if not math.isclose(self.rho, expected, rel_tol=_SAME):
            raise ValueError(f"rho: {self.rho}; noise of {self.noise_multiplier} sensitivities makes {expected}")
        if not 0 < self.failure < self.delta:
            raise ValueError(f"failure: {self.failure}; it is a part of delta {self.delta}")
        return self


class DiscoveryBlock(DiscoveryGuarantee, AddedWords):
    """Local word discovery: its guarantee, and what became of the words."""

    kind: Literal["ldp-triehh"] = "ldp-triehh"

    @property
    def least_anonymous(self) -> DiscoveryLayer | None:
        """The layer whose words may be those of the fewest people; None where no layer can publish a word."""
        publishing = [row for row in self.layers if row.word_votes <= row.messages]
        return min(publishing, key=lambda row: (row.anonymity, -row.one_holder_chance), default=None)

    @model_validator(mode="after")
    def _a_device_sends_all_its_messages(self) -> "DiscoveryBlock":
        expected = self.messages_per_device * self.epsilon0
        if not math.isclose(self.device_level_epsilon0, expected, rel_tol=_SAME):
            raise ValueError(
                f"device_level_epsilon0: {self.device_level_epsilon0}; {self.messages_per_device} messages at epsilon0 "
                f"{self.epsilon0} make {expected}"
            )
        return self

    @model_validator(mode="after")
    def _certificates_are_in_order(self) -> "DiscoveryBlock":
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


class CanaryResult(Config):
    """One canary of the memorisation audit; its random words are in ``canaries.json``."""

    population: Literal["compliant", "stress"]
    n_u: int
    n_e: int
    participations: int | None
    rank: int
    rank_standard_error: float
    exposure_bits: float
    ceiling_bits: float | None
    exposure_low_bits: float
    exposure_high_bits: float
    found_by_beam: bool
    found_by_best_first: bool | None
    loss: float


class AuditVerdict(Config):
    """The verdict of one audit of the noise: no estimate, interval or p-value, which would tell of the noise."""

    type: str
    tested: str
    verdict: Literal["passed", "failed", "not run"]
    least_noise: float | None = Field(default=None, description="share of the noise that it would notice, at 90% power")
    least_clip: float | None = Field(default=None, description="multiple of the clip norm that it would notice, so too")


class StressBlock(Config):
    """Canaries on devices that are always available, outside timer and cap: no guarantee is about them."""

    canaries: int
    worst_rank_single_user: int | None
    max_exposure_bits: float
    max_exposure_bits_single_user: float | None
    found: int
    found_single_user: int


class TwinBlock(Config):
    """The model that holds the canaries which the launched one does not.

    Of the launch's starting model, vocabulary, mechanism, rounds, noise, clip norm, cohort rule and number of devices.
    """

    populations: tuple[Literal["compliant", "stress"], ...]
    pseudo_users: int = Field(description="pieces of public text that played the devices")
    words_per_user: float
    weights_sha256: str


class ControlRow(Config):
    """Canaries of the control with the same number of copies on a device."""

    n_e: int
    canaries: int = Field(gt=0)
    found: int = Field(ge=0, description="completed by a search and ranked among as many as it lists")
    worst_rank: int

    @model_validator(mode="after")
    def _no_more_than_there_are(self) -> "ControlRow":
        if self.found > self.canaries:
            raise ValueError(f"found: {self.found} of {self.canaries} canaries; one of them is wrong")
        return self


class ControlBlock(Config):
    """The same canaries learnt without noise: what the attacks find where there is something to find."""

    rounds: int = Field(description="until those of most copies were found, or it was given up")
    devices: int
    rows: tuple[ControlRow, ...] = Field(min_length=1, description="by copies on a device, rising")

    @property
    def passed(self) -> bool:
        """Return whether every canary with the most copies is found."""
        most = max(self.rows, key=lambda row: row.n_e)
        return most.found == most.canaries


class AuditBlock(Config):
    """The memorisation audit (Ramaswamy et al. 2020) and the audits of the noise.

    Every number but those in ``stress`` and its canaries is about compliant devices alone.
    """

    in_launch: tuple[Literal["compliant", "stress"], ...] | None = Field(
        default=None, description="populations whose canaries the launched model holds; None: all, and no control"
    )
    twin: TwinBlock | None = Field(default=None, description="None: the launched model holds all canaries")
    control: ControlBlock | None = Field(default=None, description="None where nothing was trained on devices")

    random_continuations: int
    alpha: float
    worst_rank_single_user: int | None
    max_exposure_bits: float
    found_single_user: int
    stress: StressBlock | None
    broken_ceilings: int | None
    pooled_p_value: float | None
    seed_commitment: str | None
    canaries: tuple[CanaryResult, ...]
    audits: tuple[AuditVerdict, ...]

    @model_validator(mode="after")
    def _stress_is_told_apart(self) -> "AuditBlock":
        if (self.stress is None) != all(row.population == "compliant" for row in self.canaries):
            raise ValueError("stress: it must be given exactly where canaries of that population are")
        return self

    @model_validator(mode="after")
    def _each_canary_is_somewhere(self) -> "AuditBlock":
        if self.in_launch is None:
            return self
        apart = self.twin.populations if self.twin else ()
        nowhere = {row.population for row in self.canaries} - {*self.in_launch, *apart}
        if nowhere or set(self.in_launch) & set(apart):
            raise ValueError(
                f"in_launch: {list(self.in_launch)}, and {list(apart)} on the twin; each population is at one place"
            )
        return self

    def of(self, population: str) -> tuple[CanaryResult, ...]:
        """The canaries of one population."""
        return tuple(row for row in self.canaries if row.population == population)
