"""The declared gates over the evidence of a launch.

``decide`` is pure. A gate without evidence fails, a number that is not finite fails, and one
failed gate holds the launch. Holding is a value, not an error: a held launch still gets its
report.
"""

import math
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.config import PolicyConfig

# The two accountants compute the same exact curve; past this they do not agree (G1 asks for 1e-3).
EPSILON_TOLERANCE = 1e-3


class Evidence(BaseModel):
    """What the stages found. Anything may be missing; what is missing fails its gate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rho: float | None = None
    epsilon: float | None = Field(default=None, description="first accountant, at the policy's delta")
    epsilon_second: float | None = Field(default=None, description="second accountant, at the same delta")
    population_rho: float | None = Field(default=None, description="the ledger's total, this launch included")
    enforced_min_sep: int | None = None
    observed_min_sep: int | None = Field(default=None, description="None if no device took part twice")
    enforced_max_participations: int | None = None
    observed_max_participations: int | None = None
    violations: int | None = Field(default=None, description="participations that broke an enforced bound")
    discovery_epsilon0: float | None = None
    population_discovery_epsilon: float | None = Field(
        default=None, description="the ledger's item-level total, this launch included"
    )
    worst_canary_rank: int | None = Field(default=None, description="best-ranked canary known to one device")
    random_continuations: int | None = None
    found_single_user: int | None = Field(default=None, description="one device's canaries that a search found")
    broken_ceilings: int | None = Field(default=None, description="one device's canaries better known than allowed")
    pooled_p_value: float | None = Field(default=None, description="of all one-device canaries together")
    audit_alpha: float | None = None
    noise_audits_failed: int | None = Field(default=None, description="audits that speak against the claimed noise")
    top1_gain_low: float | None = Field(default=None, description="lower end of private minus starting point")
    top3_gain_low: float | None = None
    broken_margins: tuple[str, ...] | None = Field(default=None, description="simulated typing that got worse")
    typing_simulated: bool | None = Field(default=None, description="False: not asked for, or no layout; then no gate")
    ledger_problems: tuple[str, ...] | None = Field(default=None, description="what verifying the ledger found")
    export_agreement: float | None = Field(default=None, description="top-1 agreement of the exported model")


class Gate(BaseModel):
    """One check, its numbers, and what they rest on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    title: str
    value: float | None
    threshold: float | None
    passed: bool
    evidence: str


class LaunchDecision(BaseModel):
    """Launch, or hold with the reasons."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decision: Literal["launch", "hold"]
    gates: tuple[Gate, ...]
    reasons: tuple[str, ...]


def decide(evidence: Evidence, policy: PolicyConfig) -> LaunchDecision:
    """Check every gate; launch only if all pass.

    Guarantee: a launch has device-level rho at most ``policy.max_rho`` by two accountants, takes
    the population to at most ``policy.population_max_rho``, kept to the participation that
    the accounting assumed, and added all the noise that it was accounted with.
    """
    gates = tuple(_gates(evidence, policy))
    failed = tuple(f"{gate.title}: {gate.evidence}" for gate in gates if not gate.passed)
    if failed:
        return LaunchDecision(decision="hold", gates=gates, reasons=failed)
    return LaunchDecision(decision="launch", gates=gates, reasons=(f"all {len(gates)} gates passed",))


def _gates(evidence: Evidence, policy: PolicyConfig) -> Iterator[Gate]:
    yield _at_most("budget", "privacy budget of the launch", evidence.rho, policy.max_rho, "device-level rho")
    yield _accountants(evidence)
    yield _at_most(
        "population_budget",
        "privacy budget of the population",
        evidence.population_rho,
        policy.population_max_rho,
        "device-level rho over all launches in the ledger",
    )
    yield _separation(evidence)
    yield _at_most(
        "max_participations",
        "participations of one device",
        evidence.observed_max_participations,
        evidence.enforced_max_participations,
        "most rounds of one device, from the participation records",
    )
    yield _at_most("violations", "participation violations", evidence.violations, 0, "participations out of bounds")
    yield _at_most(
        "discovery",
        "local privacy of discovery",
        evidence.discovery_epsilon0,
        policy.max_discovery_epsilon0,
        "epsilon of one randomised message",
    )
    if policy.population_max_discovery_epsilon is not None:
        yield _at_most(
            "population_discovery",
            "local privacy of discovery over all launches",
            evidence.population_discovery_epsilon,
            policy.population_max_discovery_epsilon,
            "epsilon of one typed word over all launches in the ledger",
        )
    among = f" among {evidence.random_continuations} continuations" if evidence.random_continuations else ""
    yield _at_least(
        "canaries",
        "memorisation of one device's canary",
        evidence.worst_canary_rank,
        policy.min_canary_rank,
        f"rank of the best-remembered canary on one device{among}",
    )
    yield _at_most(
        "extraction",
        "extraction of one device's canary",
        evidence.found_single_user,
        0,
        "canaries on one device that beam search or exact search completes",
    )
    yield _at_most(
        "ceilings",
        "exposure within what the guarantee allows",
        evidence.broken_ceilings,
        0,
        "canaries on one device above their ceiling",
    )
    yield _at_least(
        "pooled",
        "exposure of all canaries together",
        evidence.pooled_p_value,
        evidence.audit_alpha,
        "chance of one-device canaries so well remembered, if the guarantee holds,",
    )
    yield _at_most(
        "noise_audit",
        "audits of the noise",
        evidence.noise_audits_failed,
        0,
        "audits that speak against the claimed noise, clipping, separation or accounting",
    )
    yield _at_least(
        "utility",
        "gain in top-1 recall",
        evidence.top1_gain_low,
        policy.min_top1_gain,
        "lower end of the interval, private minus starting point",
        strictly=True,
    )
    yield _at_least(
        "top3_guardrail",
        "loss of top-3 recall",
        evidence.top3_gain_low,
        0.0 - policy.max_top3_loss,  # not -0.0
        "lower end of the interval, private minus starting point",
    )
    if evidence.typing_simulated is not False:
        yield _typing(evidence)
    yield _ledger(evidence)
    # Exported at publication, so there may be no such number yet; publication itself checks it again.
    if evidence.export_agreement is not None:
        yield _at_least("export", "exported model", evidence.export_agreement, 0.99, "top-1 agreement with the model")


def _at_most(name: str, title: str, value: float | None, threshold: float | None, what: str) -> Gate:
    known = _known(value) and _known(threshold)
    passed = known and value <= threshold
    return _gate(name, title, value, threshold, passed, f"{what} is {_show(value)}, at most {_show(threshold)} allowed")


def _at_least(
    name: str, title: str, value: float | None, threshold: float | None, what: str, *, strictly: bool = False
) -> Gate:
    known = _known(value) and _known(threshold)
    passed = known and (value > threshold if strictly else value >= threshold)
    need = "must exceed" if strictly else "must be at least"
    return _gate(name, title, value, threshold, passed, f"{what} is {_show(value)}, {need} {_show(threshold)}")


def _accountants(evidence: Evidence) -> Gate:
    first, second = evidence.epsilon, evidence.epsilon_second
    difference = abs(first - second) if _known(first) and _known(second) else None
    passed = difference is not None and difference <= EPSILON_TOLERANCE
    text = f"epsilon is {_show(first)} by the exact curve and {_show(second)} by privacy loss distributions"
    return _gate("accountants", "two accountants agree", difference, EPSILON_TOLERANCE, passed, text)


def _separation(evidence: Evidence) -> Gate:
    observed, enforced = evidence.observed_min_sep, evidence.enforced_min_sep
    once = observed is None and evidence.observed_max_participations in (0, 1)
    passed = _known(enforced) and (once or (_known(observed) and observed >= enforced))
    seen = "no device took part twice" if once else f"closest two participations are {_show(observed)} rounds apart"
    return _gate(
        "min_sep", "separation of participations", observed, enforced, passed, f"{seen}, {_show(enforced)} needed"
    )


def _typing(evidence: Evidence) -> Gate:
    broken = evidence.broken_margins if evidence.typing_simulated else None
    text = "missing" if broken is None else "; ".join(broken) or "no metric of simulated typing breaks its margin"
    count = None if broken is None else len(broken)
    title = "simulated typing, against the starting point and what users have"
    return _gate("typing", title, count, 0, broken == (), text)


def _ledger(evidence: Evidence) -> Gate:
    problems = evidence.ledger_problems
    text = "missing" if problems is None else "; ".join(problems) or "the hash chain is whole"
    count = None if problems is None else len(problems)
    return _gate("ledger", "privacy ledger", count, 0, problems == (), text)


def _gate(name: str, title: str, value: float | None, threshold: float | None, passed: bool, text: str) -> Gate:
    return Gate(
        id=name,
        title=title,
        value=value if _known(value) else None,
        threshold=threshold if _known(threshold) else None,
        passed=bool(passed),
        evidence=text,
    )


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _show(value: float | None) -> str:
    if not _known(value):
        return "missing" if value is None else "not a finite number"
    return f"{value:.6g}" if isinstance(value, float) else f"{value}"
