"""What each stage returns: small, public, JSON.

Nothing here may hold a client's word, an id or a number of one device. Lists are curves and
tables that the report draws.
"""

from typing import Any, Literal

from pipeline.stage import StageResult


class IngestPublic(StageResult):
    source: str
    licence: str
    documents: int
    train_tokens: int
    validation_tokens: int
    digest: str
    vocabulary_size: int
    vocabulary_digest: str


class IngestPrivate(StageResult):
    population: str
    source: str
    synthetic: bool
    devices_at_least: int
    devices_by_split: dict[str, int]
    digest: str


class Pretrain(StageResult):
    parameters: int
    steps: int
    validation_loss: float
    validation_top1: float


class Discover(StageResult):
    words_found: int
    epsilon0: float
    messages_per_device: int
    device_level_epsilon0: float
    epsilon_central: float | None
    delta: float
    certificate: str
    layers: list[dict[str, float]]
    dropped_by_filter: dict[str, int]


class BuildVocabulary(StageResult):
    base_size: int
    added: int
    size: int
    digest: str


class Adapt(StageResult):
    parameters: int
    steps: int
    validation_loss: float
    validation_top1: float


class Plan(StageResult):
    feasible: bool
    reasons: list[str]
    sensitivity_squared: float
    rho: float
    epsilon: dict[str, float]
    alternatives: list[dict[str, Any]]


class FineTune(StageResult):
    rounds: int
    report_goal: int
    sensitivity_squared: float
    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float
    accountants_agree: bool
    observed_min_sep: int | None
    observed_max_participations: int
    violations: int
    participation_histogram: dict[str, int]
    separation_histogram: dict[str, int]
    synthetic_devices: int
    canary_participations: dict[str, int]


class Audit(StageResult):
    worst_rank_single_user: int | None
    max_exposure_bits: float
    found_by_beam: int
    random_continuations: int
    canaries: list[dict[str, Any]]


class AbTest(StageResult):
    devices: int
    words: int
    top1_private: float
    top1_start: float
    top1_gain: float
    top1_gain_low: float
    top1_gain_high: float
    top3_gain_low: float
    arms: list[dict[str, Any]]
    differences: list[dict[str, Any]]


class Decide(StageResult):
    decision: Literal["launch", "hold"]
    reasons: list[str]
    gates: list[dict[str, Any]]


class Report(StageResult):
    files: list[str]
    disclosure_sha256: str


class Publish(StageResult):
    published: bool
    reason: str
    registered_model: str | None
    version: int | None
    alias: str | None
    parity_max_difference: float | None
    files: list[str]
