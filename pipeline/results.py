"""What each stage returns: small, public, JSON.

Nothing here may hold a client's word, an id or a number of one device. Counts of devices are
rounded down to tens.
"""

from typing import Literal

from pydantic import BaseModel

from pipeline.stage import StageResult
from pipeline.stages.gates import Gate
from reports.disclosure.findings import StressBlock


class IngestPublic(StageResult):
    """The public corpus and the base vocabulary."""

    source: str
    licence: str
    documents: int
    train_tokens: int
    validation_tokens: int
    vocabulary_size: int
    corpus_digest: str
    vocabulary_digest: str


class IngestPrivate(StageResult):
    """The device store, as far as it may be shown."""

    population: str
    source: str
    synthetic: bool
    devices_at_least: int
    devices_by_split: dict[str, int]
    store_digest: str


class Training(StageResult):
    """Public training: pretraining or adaptation."""

    parameters: int
    steps: int
    validation_loss: float
    validation_top1: float


class Adaptation(Training):
    """Public training in the grown vocabulary. Losses are nats per new word of held-out public text, if it has any."""

    new_words: int
    new_words_in_text: int
    new_word_sentences: int
    copies: int
    new_word_loss_before: float | None
    new_word_loss_after: float | None


class Discover(StageResult):
    """The words' guarantee; the words are in ``words.json``."""

    words_found: int
    epsilon0: float
    messages_per_device: int
    device_level_epsilon0: float
    epsilon_central: float
    epsilon_clones: float
    epsilon_attack: float
    delta: float
    certificate: str
    layers: list[dict]


class BuildVocabulary(StageResult):
    """Base words and discovered words."""

    base_size: int
    added: int
    size: int
    vocabulary_digest: str
    dropped: dict[str, int]
    reviewed: bool
    coverage: float
    coverage_low: float
    coverage_high: float
    projection: list[dict[str, float]]


class Plan(StageResult):
    """The worst case that the enforced limits allow."""

    feasible: bool
    reasons: list[str]
    rounds_below_goal: int | None
    sensitivity_squared: float
    rho: float
    delta: float
    epsilon: float
    alternatives: list[dict[str, float]]


class Amplified(BaseModel):
    """What secret sampling adds to the guarantee of independent noise; counts in no ledger and no gate."""

    sampling: Literal["poisson", "fixed"]
    sampling_rate: float
    epsilon: float
    epsilon_second: float | None
    methods: list[str]
    adjacency: str
    assumption: str


class FineTune(StageResult):
    """Training and its guarantee, from the participation records of protected devices."""

    rounds: int
    precision: str
    report_goal: int
    sensitivity_squared: float
    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float
    accountants_agree: bool
    accounting_methods: list[str]
    norm_inflation: float
    secagg: dict[str, int | float | None] | None
    amplified: Amplified | None
    observed_min_sep: int | None
    observed_mins: int | None
    observed_max_participations: int
    violations: int
    participation_histogram: dict[str, int]
    separation_histogram: dict[str, int]
    synthetic_devices: int
    rounds_below_goal: int | None
    mean_devices: int | None
    check_ins: int | None
    fewest_check_ins: int | None
    synthetic_participations: list[int]
    validation_recall_before: float
    validation_recall_after: float


class Audit(StageResult):
    """What the model remembers of compliant canaries, of ``stress`` apart, and the audits of the noise."""

    worst_rank_single_user: int | None
    max_exposure_bits: float
    found_by_beam: int
    found_single_user: int
    stress: StressBlock | None
    broken_ceilings: int | None
    pooled_p_value: float | None
    random_continuations: int
    alpha: float
    canaries: list[dict]
    noise_audit_passed: bool | None
    seed_commitment: str | None
    audits: list[dict]


class Decide(StageResult):
    """The decision and its gates."""

    decision: Literal["launch", "hold"]
    reasons: list[str]
    gates: list[Gate]


class Report(StageResult):
    """The files of the report."""

    files: list[str]
    disclosure_sha256: str


class Publish(StageResult):
    """What was registered, or why nothing was."""

    published: bool
    reason: str
    registered_model: str | None
    version: int | None
    alias: str | None
    parity_max_difference: float | None
    files: list[str]
