"""The machine-readable disclosure: all statements of a launch about its privacy, in one value.

The report's renderings take every number from here. The blocks follow the checklist of
Ponomareva et al. 2023, section 5.3.3: setting, data accesses, output, unit, adjacency, and
accounting by type, assumptions, formal statement and transparency.
"""

import math
from collections import Counter
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from pretrain.config import BEARING, Config
from reports.disclosure.findings import AddedWords, AuditBlock, ReleaseAudit
from reports.disclosure.guarantee import Accounting, Composition, Curves, Population, PublicText, ReusedRelease
from reports.disclosure.releases import DataAccess, Release, ReleaseBlock
from reports.disclosure.utility import Utility

# Version of the shape: a new optional field raises the minor number, any other change the major one. See ``schemas/``.
VERSION: Literal["2.0"] = "2.0"
_SAME = 1e-6  # relative tolerance; a larger difference is a mistake, not rounding
_R = TypeVar("_R", bound=Release)


class Tool(Config):
    """Version, commit and locked environments of the software that ran the launch."""

    name: str
    version: str
    git_commit: str | None
    lock_digests: dict[str, str]


class Launch(Config):
    """Identity of the launch, its contact and reviewers, and the validity of its numbers."""

    id: str
    name: str
    locale: str
    feature: str
    features: tuple[str, ...] = Field(min_length=1, description="all, the main one first")
    created_at: str
    contact: str
    intended_use: str
    reviewers: tuple[str, ...] = Field(default=(), description="persons who may approve; empty: gates alone decide")
    approvals: int = Field(default=1, description="number of different reviewers who must approve")
    synthetic_population: bool
    seeded_randomness: bool
    ships: Literal["network", "mixture", "counts"] = Field(description="the model: a network, private counts, or both")
    trust: Literal["server", "secure sum"] = Field(description="who sees what a device sends before noise is added")
    tuning: Literal["public text", "this population", "earlier launches"] = Field(
        description="text on which rates, rounds and sizes were chosen"
    )

    @property
    def named(self) -> str:
        """Its features, joined by commas."""
        return ", ".join(self.features)

    @property
    def void(self) -> str:
        """Reason why no bound holds for this launch; empty if the bounds hold."""
        return "noise was seeded" if self.seeded_randomness else ""


class GateResult(Config):
    """One check of the policy."""

    id: str
    title: str
    asks: str = Field(default="", description="the condition, as a sentence; empty for a gate of other code")
    value: float | None
    shown: str = Field(
        description="the value as every page states it, rounded once: losses up, others against the launch"
    )
    threshold: float | None
    passed: bool
    evidence: str


class DecisionBlock(Config):
    """Decision to launch or hold, with its reasons."""

    decision: Literal["launch", "hold"]
    reasons: tuple[str, ...]
    gates: tuple[GateResult, ...] = Field(min_length=1)
    not_repeated: tuple[str, ...] = Field(
        default=(),
        description="stages, or parts of them, that follow from public text and were not repeated before the decision",
    )

    @model_validator(mode="after")
    def _follows_from_the_gates(self) -> "DecisionBlock":
        failed = [gate.id for gate in self.gates if not gate.passed]
        if self.decision == "launch" and failed:
            raise ValueError(f"decision: 'launch' although {', '.join(failed)} failed; it must be 'hold'")
        return self


class Artifact(Config):
    """A public file of the launch."""

    stage: str
    file: str
    sha256: str
    made_by: str | None = Field(default=None, description="launch from which it is reused; none: this launch made it")


class Verification(Config):
    """Ledger head and command for checking this document."""

    ledger_head: str | None
    ledger_entries: int
    command: str


class Disclosure(Config):
    """One launch. Optional blocks are missing when their stage has not finished."""

    schema_version: Literal["2.0"] = VERSION
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
    accounting: Accounting
    releases: tuple[ReleaseBlock, ...] = Field(description="in the order in which they were made")
    words: AddedWords
    composition: Composition
    reused: tuple[ReusedRelease, ...] = ()
    audit: AuditBlock | None
    release_audits: tuple[ReleaseAudit, ...] | None
    utility: Utility | None
    curves: Curves
    limitations: tuple[str, ...]
    artifacts: tuple[Artifact, ...]
    verification: Verification

    @model_validator(mode="after")
    def _a_launch_has_its_evidence(self) -> "Disclosure":
        missing = [name for name in ("audit", "release_audits", "utility") if getattr(self, name) is None]
        if self.decision.decision == "launch" and missing:
            raise ValueError(f"decision: 'launch' without {' and '.join(missing)}; missing evidence means 'hold'")
        return self

    @model_validator(mode="after")
    def _training_without_noise_is_measured_or_forecast(self) -> "Disclosure":
        if self.accounting.without_privacy and self.utility and self.utility.simulation_without_privacy:
            raise ValueError("accounting.without_privacy: a forecast of what the comparison measures; leave it out")
        return self

    @property
    def forecast_is_passed(self) -> bool:
        """True if this launch gained more than the forecast of training without noise, by two standard deviations."""
        free, made = self.accounting.without_privacy, self.utility
        start, reached = (made and made.value(arm, "top1_recall") for arm in ("start", "private"))
        if free is None or not start or not reached:
            return False
        return 100 * (reached.value - start.value) > free.points + 2 * free.error

    def release(self, kind: type[_R]) -> _R | None:
        """The release of one kind; None where the launch makes none."""
        return next((release for release in self.releases if isinstance(release, kind)), None)

    @model_validator(mode="after")
    def _every_release_is_in_the_total(self) -> "Disclosure":
        parts, made = self.accounting.total.parts, {release.name: release for release in self.releases}
        listed = [(each.name, split) for each in self.releases for split in BEARING if each.split == split]
        added = [(name, part.split) for part in parts for name in part.releases]
        if Counter(listed) != Counter(added):
            raise ValueError(f"accounting.total: {sorted(added)}, but the releases are {sorted(listed)}; add each once")
        for part in parts:
            lost = math.fsum(made[name].adds(part.how) for name in part.releases)
            said = part.epsilon if part.rho is None else part.rho
            if not math.isclose(said, lost, rel_tol=_SAME):
                raise ValueError(f"accounting.total: {part.named} at {said}; the releases make {lost}")
        return self

    @model_validator(mode="after")
    def _warnings_match_what_was_run(self) -> "Disclosure":
        seeded, synthetic = self.accounting.randomness == "seeded", self.population.synthetic
        if (self.launch.seeded_randomness, self.launch.synthetic_population) != (seeded, synthetic):
            raise ValueError(
                f"launch: seeded_randomness {self.launch.seeded_randomness} and synthetic_population "
                f"{self.launch.synthetic_population}, but its noise is {self.accounting.randomness!r} "
                f"and population.synthetic is {synthetic}; they must say the same"
            )
        return self
