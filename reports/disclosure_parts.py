"""Blocks of the disclosure that hold what the stages measured.

Counts of devices are rounded down to tens before they get here. Privacy losses are per launch.
"""

import itertools
import math
from typing import Literal

from pydantic import Field, model_validator

from pretrain.config import Config

_SAME = 1e-6  # relative; what is further apart is a mistake, not rounding


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
    """How devices wrote their updates under secure aggregation, and what that costs."""

    bits: int
    neighbours: int
    threshold: int
    inflated_norm: float = Field(ge=1.0, description="a device's contribution in clip norms, at most")
    wrap_probability: float = Field(ge=0.0, le=1.0, description="a round; taken off delta for every round")
    clipped_fraction: float
    rounding_std: float = Field(description="of each parameter of the sum, in clip norms")


class Amplified(Config):
    """What secret sampling adds to the guarantee of independent noise; no gate and no ledger entry counts on it."""

    sampling: str
    sampling_rate: float
    epsilon: float
    epsilon_second: float | None
    methods: tuple[str, ...]
    adjacency: str
    assumption: str = Field(min_length=1)


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
    secagg: SecAgg | None = None
    amplified: Amplified | None = None
    curve: tuple[tuple[float, float], ...] = Field(description="(delta, epsilon) of the exact Gaussian curve")

    @model_validator(mode="after")
    def _mu_follows_from_rho(self) -> "Accounting":
        expected = math.sqrt(2 * self.rho) if self.rho >= 0 else math.nan
        if not math.isclose(self.mu, expected, rel_tol=_SAME):
            raise ValueError(f"mu: {self.mu} with rho {self.rho}; it is sqrt(2 rho) = {expected}")
        return self


class DiscoveryLayer(Config):
    """One layer of the trie, of one pass. Messages are rounded down to whole tens of devices."""

    pass_number: int
    layer: int
    messages: int
    domain: int
    noise: float = Field(description="standard deviation of an estimate, in messages, for an item nobody holds")
    word_votes: int = Field(description="least votes that publish a word")
    kept: int
    finished: int
    clones: float
    blanket: float
    attack: float


class DiscoveryBlock(Config):
    """The item-level guarantee of word discovery; never added to the device-level rho.

    ``epsilon_central`` is by the certificate named; ``epsilon_clones`` by the older one; ``epsilon_attack`` is
    what an attack reaches, so the truth lies between it and the certificates.
    """

    epsilon0: float
    messages_per_device: int
    device_level_epsilon0: float
    epsilon_central: float
    epsilon_clones: float
    epsilon_attack: float
    delta: float
    certificate: str
    layers: tuple[DiscoveryLayer, ...]
    words_found: int
    words_added: int
    reviewed: bool
    coverage: float | None = Field(description="share of unknown words on held-out devices that are now known")
    coverage_low: float | None
    coverage_high: float | None
    words: tuple[str, ...] | None = Field(description="None until a person has reviewed them")

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
        order = (self.epsilon_attack, self.epsilon_central, self.epsilon_clones, self.epsilon0)
        if any(low > high * (1 + _SAME) for low, high in itertools.pairwise(order)):
            raise ValueError(
                f"epsilon_central: attack {self.epsilon_attack}, certificate {self.epsilon_central}, clones "
                f"{self.epsilon_clones} and epsilon0 {self.epsilon0} must rise; one of them is wrong"
            )
        return self


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


class AuditRow(Config):
    """One audit of the noise; ``passed`` is None where it decides nothing."""

    type: str
    quantity: str
    estimate: float
    low: float
    high: float
    claim: float | None
    p_value: float | None
    n: int
    passed: bool | None
    reason: str


class AuditBlock(Config):
    """The memorisation audit (Ramaswamy et al. 2020) and the audits of the noise."""

    random_continuations: int
    alpha: float
    worst_rank_single_user: int | None
    max_exposure_bits: float
    found_single_user: int
    broken_ceilings: int | None
    pooled_p_value: float | None
    seed_commitment: str | None
    canaries: tuple[CanaryResult, ...]
    audits: tuple[AuditRow, ...]


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
