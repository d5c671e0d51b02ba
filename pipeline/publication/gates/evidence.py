"""Evidence for the gates, and the result of one gate: a number, or a list of problems, against its limit."""

import math
from typing import TypeGuard

from pydantic import BaseModel, ConfigDict, Field

from pipeline.ledger.budget import ROUNDING
from pipeline.publication.gates.words import words_of
from reports.disclosure.document import GateResult
from reports.disclosure.findings import AuditVerdict, ControlBlock, ReleaseAudit
from reports.disclosure.utility import OtherFeature


class Evidence(BaseModel):
    """Evidence for the gates, under the names of the stages' results.

    Any field may be missing; missing evidence fails its gate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # The launch file and the ledger.
    counts_alone: bool = Field(default=False, description="the launch trains nothing on devices, so has no canaries")
    enforced_min_sep: int | None = None
    enforced_max_participations: int | None = None
    population_rho: float | None = Field(default=None, description="the ledger's total, this launch included")
    window_rho: float | None = Field(
        default=None, description="most that one device lost in any window of the budget, this launch included"
    )
    population_words_epsilon: float | None = Field(
        default=None, description="the ledger's total of words of one device, or the most in any window"
    )
    population_discovery_epsilon: float | None = Field(
        default=None, description="the ledger's item-level total, or the most in any window, this launch included"
    )
    ledger_problems: tuple[str, ...] | None = Field(default=None, description="problems found in the ledger")
    # fine_tune
    rho: float | None = None
    epsilon: float | None = Field(default=None, description="first accountant, at the policy's delta")
    epsilon_pld: float | None = Field(default=None, description="second accountant, at the same delta")
    observed_min_sep: int | None = Field(default=None, description="None if no device took part twice")
    observed_max_participations: int | None = None
    violations: int | None = Field(default=None, description="participations that broke an enforced bound")
    # all releases
    total_epsilon: float | None = Field(default=None, description="of one device; None if a release is missing")
    # discover
    epsilon0: float | None = None
    # audit
    worst_rank_single_user: int | None = Field(default=None, description="best-ranked canary known to one device")
    random_continuations: int | None = None
    found_single_user: int | None = Field(default=None, description="one device's canaries that a search found")
    broken_ceilings: int | None = Field(default=None, description="one device's canaries better known than allowed")
    pooled_p_value: float | None = Field(default=None, description="over all one-device canaries together")
    alpha: float | None = None
    noise_audit_passed: bool | None = Field(default=None, description="None if no noise was audited")
    audits: tuple[AuditVerdict, ...] = ()
    control: ControlBlock | None = Field(default=None, description="the attacks' result on a model without noise")
    # audit_releases
    releases: dict[str, tuple[str, ...]] | None = Field(
        default=None, description="verdicts that each release of the launch must have, by its stage"
    )
    release_audits: tuple[ReleaseAudit, ...] | None = None
    # ab_test
    top1_gain_low: float | None = Field(default=None, description="lower end of private minus starting point")
    top3_gain_low: float | None = None
    ngram_gain_low: float | None = Field(
        default=None, description="lower end of private minus public n-gram: the lower of alone and mixed"
    )
    new_word_top3_low: float | None = Field(
        default=None, description="lower end of top-3 recall where a discovered word is typed; None if never"
    )
    variety_private: float | None = Field(
        default=None, description="different words suggested first and rightly, expected in a fixed number of words"
    )
    variety_public: float | None = Field(
        default=None, description="the same of the starting point or the public n-gram, whichever has more"
    )
    session_words: int | None = Field(
        default=None, description="typed by all kinds of typists; 0: not asked for, no layout, or noisy"
    )
    judged_words: int | None = Field(default=None, description="typed under the arms that decide")
    broken_margins: tuple[str, ...] | None = Field(default=None, description="missed margins of simulated typing")
    missing_metrics: tuple[str, ...] | None = Field(default=None, description="metrics that have no interval")
    worse_than_champion: tuple[str, ...] | None = Field(
        default=None, description="metrics that are clearly worse than the users' model, or were not compared"
    )
    attempt: int | None = Field(default=None, description="attempt number on these held-out devices")
    confidence: float | None = Field(default=None, description="confidence of the gates' intervals")
    broken_typists: tuple[str, ...] | None = Field(
        default=None, description="metrics on which simulated typists contradict"
    )
    launched_for: tuple[str, ...] | None = Field(
        default=None, description="features of the launch file, the main one first"
    )
    others: dict[str, OtherFeature] | None = Field(default=None, description="evidence on the further features")
    leaks: tuple[str, ...] | None = Field(
        default=None, description="public figures that do not follow from where they say they come from"
    )
    uncovered: tuple[str, ...] | None = Field(default=None, description="uses of private text without a guarantee")


def at_most(name: str, title: str, value: float | None, threshold: float | None, what: str) -> GateResult:
    # Same tolerance as the ledger's, so that a sum that it accepted passes here.
    passed = finite(value) and finite(threshold) and value <= threshold * (1 + ROUNDING)
    return gate(name, title, value, threshold, passed, f"{what} is {show(value)}, at most {show(threshold)} allowed")


def at_least(
    name: str, title: str, value: float | None, threshold: float | None, what: str, *, strictly: bool = False
) -> GateResult:
    passed = finite(value) and finite(threshold) and (value > threshold if strictly else value >= threshold)
    need = "must exceed" if strictly else "must be at least"
    return gate(name, title, value, threshold, passed, f"{what} is {show(value)}, {need} {show(threshold)}")


def none_of(name: str, title: str, problems: tuple[str, ...] | None, otherwise: str) -> GateResult:
    """Gate that passes without problems; it fails if the check is missing."""
    text = "missing" if problems is None else "; ".join(problems) or otherwise
    return gate(name, title, None if problems is None else len(problems), 0, problems == (), text)


def gate(name: str, title: str, value: float | None, threshold: float | None, passed: bool, text: str) -> GateResult:
    return GateResult(
        id=name,
        title=title,
        asks=words_of(name).asks,
        value=value if finite(value) else None,
        threshold=threshold if finite(threshold) else None,
        passed=bool(passed),
        evidence=text,
    )


def finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def show(value: float | None) -> str:
    if not finite(value):
        return "missing" if value is None else "not a finite number"
    return f"{value:.6g}" if isinstance(value, float) else f"{value}"
