"""Blocks of the disclosure about findings: discovered words, memorisation, and audits.

Counts of devices are rounded down to tens before they get here.
"""

from typing import Literal

from pydantic import Field, model_validator

from pretrain.config import Config


class NewWordAdaptation(Config):
    """New words in public text. Losses are nats per new word of held-out public text; None where it holds none."""

    new_words_in_text: int
    new_word_sentences: int
    copies: int
    new_word_loss_before: float | None
    new_word_loss_after: float | None


class WordFilter(Config):
    """A filter that the launch applies to discovered words, or its blocklist, and the number of words it dropped."""

    name: str
    sentence: str = Field(description="the words that it drops, in words")
    dropped: int


class WordsDropped(Config):
    """Reasons for which discovered words were dropped, and their numbers."""

    reviewed: bool
    filters: tuple[WordFilter, ...] = Field(
        description="each dropped word counts at the first that matches it; where a person decides, filters drop none"
    )
    dropped_by_person: int | None = Field(description="None if nobody reviewed the words")


class AddedWords(WordsDropped):
    """Words added to the vocabulary, and their coverage."""

    coverage: float | None = Field(description="share of OOV tokens on held-out devices that the new words cover")
    coverage_low: float | None
    coverage_high: float | None
    words_found: int
    words_added: int
    words: tuple[str, ...] | None = Field(description="the added words; None where the launch does not list them")
    given_files: dict[str, str] = Field(
        description="digests of the blocklist and, under a secret key, of the reviewed word list"
    )
    adaptation: NewWordAdaptation


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
    """The verdict of one audit of the noise: no estimate, interval or p-value, which would reveal the noise."""

    type: str
    tested: str
    verdict: Literal["passed", "failed", "not run"]
    least_noise: float | None = Field(
        default=None, description="largest share of the noise that it rejects with 90% power"
    )
    least_clip: float | None = Field(
        default=None, description="smallest multiple of the clip norm that it rejects with 90% power"
    )


class ReleaseVerdict(Config):
    """One test of a release's audit; every field except ``passed`` and ``sentence`` is a constant."""

    name: str
    tested: str
    slack: str = Field(description="least fault that the test detects, in words")
    passed: bool
    sentence: str = Field(description="reason for a failure, or a note; empty: none")


class ReleaseAudit(Config):
    """Audit of a release: recomputed from the private store, the noise key and the kept values."""

    stage: str = Field(description="stage that made the release")
    made_by: str = Field(description="launch that made the audited release")
    cited: str | None = Field(description="launch whose audit is cited; None: this launch's own")
    verdicts: tuple[ReleaseVerdict, ...]


class StressBlock(Config):
    """Canaries on devices that are always available, outside timer and cap; no guarantee covers them."""

    canaries: int
    worst_rank_single_user: int | None
    max_exposure_bits: float
    max_exposure_bits_single_user: float | None
    found: int
    found_single_user: int


class TwinBlock(Config):
    """The twin: a model that holds the canaries which the launched model lacks, and never ships.

    It has the launch's starting model, vocabulary, mechanism, rounds, noise multiplier, clip norm, cohort rule and
    number of devices.
    """

    populations: tuple[Literal["compliant", "stress"], ...]
    pseudo_users: int = Field(description="pieces of public text used as devices")
    words_per_user: float
    weights_sha256: str


class ControlRow(Config):
    """Canaries of the control that have the same number of copies on a device."""

    n_e: int
    canaries: int = Field(gt=0)
    found: int = Field(ge=0, description="completed by a search and ranked among as many as it lists")
    worst_rank: int

    @model_validator(mode="after")
    def _no_more_than_there_are(self) -> "ControlRow":
        if self.found > self.canaries:
            raise ValueError(f"found: {self.found} of {self.canaries} canaries; one of them is wrong")
        return self

    @property
    def complete(self) -> bool:
        """Return whether all of them are found."""
        return self.found == self.canaries


class ControlBlock(Config):
    """Positive control: the same canaries trained without noise, which the attacks must find."""

    rounds: int = Field(description="rounds until the canaries with the most copies were found, or until the limit")
    devices: int
    rows: tuple[ControlRow, ...] = Field(min_length=1, description="by copies on a device, rising")

    @property
    def passed(self) -> bool:
        """Return whether every canary with the most copies is found."""
        return max(self.rows, key=lambda row: row.n_e).complete


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
