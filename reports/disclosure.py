"""The machine-readable disclosure: everything a launch says about its privacy, in one value.

The report's renderings take every number from here. The blocks follow the checklist of
Ponomareva et al. 2023, section 5.3.3: setting, data accesses, output, unit, adjacency, and
accounting by type, assumptions, formal statement and transparency.
"""

from typing import Literal

from pydantic import Field, model_validator

from pretrain.config import Config

SCHEMA_VERSION = "1"


class Tool(Config):
    """What produced the launch."""

    name: str
    version: str
    git_commit: str | None
    lock_digests: dict[str, str]


class Launch(Config):
    """Which launch this is."""

    id: str
    name: str
    locale: str
    feature: str
    created_at: str
    contact: str
    intended_use: str
    synthetic_population: bool
    seeded_randomness: bool


class GateResult(Config):
    """One check of the policy."""

    id: str
    title: str
    value: float | None
    threshold: float | None
    passed: bool
    evidence: str


class DecisionBlock(Config):
    """Launch or hold, and why."""

    decision: Literal["launch", "hold"]
    reasons: tuple[str, ...]
    gates: tuple[GateResult, ...]


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
        if self.data == "private" and not self.covered and not self.reason:
            raise ValueError(f"reason: stage {self.stage!r} uses private data outside the guarantee; say why")
        return self


class PublicText(Config):
    """Where the public model came from."""

    source: str
    licence: str
    documents: int
    train_tokens: int


class Population(Config):
    """Who took part; counts are rounded down to tens."""

    name: str
    source: str
    synthetic: bool
    devices_at_least: int
    devices_by_split: dict[str, int]


class MechanismBlock(Config):
    """The mechanism as configured."""

    kind: str
    clip_norm: float
    noise_multiplier: float
    rounds: int
    report_goal: int
    delta: float
    randomness: str
    parameters: dict[str, str] = Field(default={}, description="what is particular to this mechanism")
    local_training: dict[str, float]
    server: dict[str, float]


class Participation(Config):
    """What was enforced, and what the records show for protected devices.

    ``min_sep`` is the difference of two rounds; the papers' MinS is ``min_sep - 1``.
    Histogram counts are rounded down to tens; 0 stands for fewer than ten.
    """

    enforced_min_sep: int
    enforced_max_participations: int
    observed_min_sep: int | None
    observed_mins: int | None
    observed_max_participations: int
    violations: int
    synthetic_devices: int
    participation_histogram: dict[str, int]
    separation_histogram: dict[str, int]


class Accounting(Config):
    """The device-level guarantee of training, from observed participation."""

    sensitivity_squared: float
    rho: float
    mu: float
    delta: float
    epsilon: float
    epsilon_pld: float
    agree: bool
    methods: tuple[str, ...]
    planned_rho: float
    curve: tuple[tuple[float, float], ...] = Field(description="(delta, epsilon) of the exact Gaussian curve")


class DiscoveryLayer(Config):
    """One layer of the trie."""

    layer: int
    messages: int
    domain: int
    kept: int
    finished: int
    epsilon_central: float


class DiscoveryBlock(Config):
    """The item-level guarantee of word discovery; never added to the device-level rho."""

    epsilon0: float
    messages_per_device: int
    device_level_epsilon0: float
    epsilon_central: float
    delta: float
    certificate: str
    layers: tuple[DiscoveryLayer, ...]
    words_found: int
    words_added: int
    words: tuple[str, ...] | None = Field(description="None until a person has reviewed them")


class PopulationSpend(Config):
    """One device-level entry of the ledger on this population."""

    launch_id: str
    stage: str
    kind: str
    rho: float


class Composition(Config):
    """All launches on this population so far."""

    spends: tuple[PopulationSpend, ...]
    total_rho: float
    ceiling_rho: float


class CanaryResult(Config):
    """One canary of the memorisation audit; its random words are in ``canaries.json``."""

    n_u: int
    n_e: int
    participations: int | None
    rank: int
    rank_standard_error: float
    exposure_bits: float
    ceiling_bits: float | None
    found_by_beam: bool
    loss: float


class AuditBlock(Config):
    """The memorisation audit (Ramaswamy et al. 2020)."""

    random_continuations: int
    worst_rank_single_user: int | None
    max_exposure_bits: float
    canaries: tuple[CanaryResult, ...]


class ArmMetric(Config):
    """One metric of one arm on held-out devices, with its interval."""

    arm: str
    metric: str
    value: float
    low: float
    high: float


class Difference(Config):
    """Candidate minus baseline, paired by device, with its interval."""

    candidate: str
    baseline: str
    metric: str
    value: float
    low: float
    high: float


class Utility(Config):
    """The offline comparison; plain aggregates over held-out devices, not differentially private."""

    devices_at_least: int
    words: int
    confidence: float
    arms: tuple[ArmMetric, ...]
    differences: tuple[Difference, ...]


class Curves(Config):
    """Training curves, each a list of points."""

    pretraining: tuple[dict[str, float], ...]
    adaptation: tuple[dict[str, float], ...]
    fine_tuning: tuple[dict[str, float], ...]


class Artifact(Config):
    """A public file of the launch."""

    stage: str
    file: str
    sha256: str


class Verification(Config):
    """How a reader checks this document."""

    ledger_head: str | None
    ledger_entries: int
    command: str


class Disclosure(Config):
    """One launch. Optional blocks are missing when their stage has not finished."""

    schema_version: Literal["1"] = SCHEMA_VERSION
    tool: Tool
    launch: Launch
    decision: DecisionBlock
    data_accesses: tuple[DataAccess, ...]
    unit: str
    adjacency: str
    output: str
    assumptions: tuple[str, ...]
    public_text: PublicText
    population: Population
    mechanism: MechanismBlock
    participation: Participation
    accounting: Accounting
    discovery: DiscoveryBlock
    composition: Composition
    audit: AuditBlock | None
    utility: Utility | None
    curves: Curves
    limitations: tuple[str, ...]
    artifacts: tuple[Artifact, ...]
    verification: Verification
