"""The declared gates over the evidence of a launch.

``decide`` is pure. A gate without evidence fails, a number that is not finite fails, and one
failed gate holds the launch. Holding is a value, not an error: a held launch still gets its
report.
"""

import math
from collections.abc import Iterator
from typing import TypeGuard

from pydantic import BaseModel, ConfigDict, Field

from evaluation.comparison.intervals import confidence_of
from pipeline.ledger.room import ROUNDING
from pipeline.policy.config import PolicyConfig
from reports.disclosure.document import DecisionBlock, GateResult
from reports.disclosure.findings import AuditRow

# The two accountants compute the same exact curve; past this they do not agree (G1 asks for 1e-3).
EPSILON_TOLERANCE = 1e-3
# Rows of the audit about what was released, without which nothing shows that the noise is in the models.
RELEASED = (
    *("sequence", "noise_added", "update_lengths", "canary_lengths"),
    *("cohorts", "trained_rows", "noise_variance", "noise_values"),
)
# An audit that would not notice a tenth less noise, or updates a tenth too long, nine times out of ten says nothing.
LEAST_NOISE, LEAST_CLIP = 0.9, 1.1


class Evidence(BaseModel):
    """What the gates look at, by the names that the stages' results give it.

    Anything may be missing; what is missing fails its gate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # The launch file and the ledger.
    enforced_min_sep: int | None = None
    enforced_max_participations: int | None = None
    population_rho: float | None = Field(default=None, description="the ledger's total, this launch included")
    window_rho: float | None = Field(
        default=None, description="most that one device lost in any window of the budget, this launch included"
    )
    population_discovery_epsilon: float | None = Field(
        default=None, description="the ledger's item-level total, or the most in any window, this launch included"
    )
    ledger_problems: tuple[str, ...] | None = Field(default=None, description="what verifying the ledger found")
    # fine_tune
    rho: float | None = None
    epsilon: float | None = Field(default=None, description="first accountant, at the policy's delta")
    epsilon_pld: float | None = Field(default=None, description="second accountant, at the same delta")
    observed_min_sep: int | None = Field(default=None, description="None if no device took part twice")
    observed_max_participations: int | None = None
    violations: int | None = Field(default=None, description="participations that broke an enforced bound")
    # discover
    epsilon0: float | None = None
    # audit
    worst_rank_single_user: int | None = Field(default=None, description="best-ranked canary known to one device")
    random_continuations: int | None = None
    found_single_user: int | None = Field(default=None, description="one device's canaries that a search found")
    broken_ceilings: int | None = Field(default=None, description="one device's canaries better known than allowed")
    pooled_p_value: float | None = Field(default=None, description="of all one-device canaries together")
    alpha: float | None = None
    noise_audit_passed: bool | None = Field(default=None, description="None where no noise was audited")
    audits: tuple[AuditRow, ...] = ()
    # ab_test
    top1_gain_low: float | None = Field(default=None, description="lower end of private minus starting point")
    top3_gain_low: float | None = None
    ngram_gain_low: float | None = Field(
        default=None, description="lower end of private minus public n-gram, alone and mixed: the lower"
    )
    new_word_top3_low: float | None = Field(
        default=None, description="lower end of top-3 recall where a discovered word is typed; None: there is none"
    )
    distinct_private: int | None = Field(default=None, description="different words that the model ever puts first")
    session_words: int | None = Field(default=None, description="0: not asked for, or no layout; then no gate")
    broken_margins: tuple[str, ...] | None = Field(default=None, description="simulated typing that got worse")
    missing_metrics: tuple[str, ...] | None = Field(default=None, description="metrics that have no interval")
    attempt: int | None = Field(default=None, description="the how-manieth on these held-out devices")
    confidence: float | None = Field(default=None, description="of the intervals that gates look at")
    broken_typists: tuple[str, ...] | None = Field(default=None, description="where simulated typists contradict")
    uncovered: tuple[str, ...] | None = Field(default=None, description="uses of private text under no guarantee")


def decide(evidence: Evidence, policy: PolicyConfig) -> DecisionBlock:
    """Check every gate; launch only if all pass.

    Guarantee: a launch has device-level rho at most ``policy.max_rho`` by two accountants, takes
    the population to at most ``policy.population_max_rho`` and in no window above ``policy.budget``,
    kept to the participation that the accounting assumed, and added all the noise that it was accounted with to what it
    released.
    """
    gates = tuple(_gates(evidence, policy))
    failed = tuple(f"{gate.title}: {gate.evidence}" for gate in gates if not gate.passed)
    if failed:
        return DecisionBlock(decision="hold", gates=gates, reasons=failed)
    return DecisionBlock(decision="launch", gates=gates, reasons=(f"all {len(gates)} gates passed",))


def _gates(evidence: Evidence, policy: PolicyConfig) -> Iterator[GateResult]:
    yield _at_most("budget", "privacy budget of the launch", evidence.rho, policy.max_rho, "device-level rho")
    yield _accountants(evidence)
    if policy.population_max_rho is not None:
        yield _at_most(
            "population_budget",
            "privacy budget of the population",
            evidence.population_rho,
            policy.population_max_rho,
            "device-level rho over all launches in the ledger",
        )
    if policy.budget is not None:
        yield _at_most(
            "window_budget",
            f"privacy budget of the population in any {policy.budget.days} days",
            evidence.window_rho,
            policy.budget.rho,
            "most device-level rho of one device in any such window of the ledger",
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
    if policy.max_discovery_epsilon0 is not None:  # a launch without it discovers centrally, within its rho
        yield _at_most(
            "discovery",
            "local privacy of discovery",
            evidence.epsilon0,
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
        evidence.worst_rank_single_user,
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
        evidence.alpha,
        "chance of one-device canaries so well remembered, if the guarantee holds,",
    )
    yield _at_most(
        "noise_audit",
        "audits of the noise",
        _contradictions(evidence),
        0,
        "audits that speak against the claimed noise, clipping, separation or accounting",
    )
    yield _released(evidence)
    yield _power(evidence)
    yield _attempts(evidence)
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
    if policy.min_ngram_gain is not None:
        yield _at_least(
            "ngram",
            "top-1 recall beside public n-grams",
            evidence.ngram_gain_low,
            policy.min_ngram_gain,
            "lower end of the interval, private minus an n-gram of the same public text or that n-gram mixed with the "
            "starting point, whichever is better",
        )
    if policy.min_new_word_top3 is not None:
        yield _at_least(
            "new_words",
            "discovered words among the suggestions",
            evidence.new_word_top3_low,
            policy.min_new_word_top3,
            "lower end of the interval of top-3 recall where a discovered word is typed",
        )
    if policy.min_distinct_first_words is not None:
        yield _at_least(
            "variety",
            "different first suggestions",
            evidence.distinct_private,
            policy.min_distinct_first_words,
            "number of different words that stood first on held-out text",
        )
    if evidence.session_words != 0 or evidence.broken_margins is not None:
        yield _typing(evidence)
    if evidence.session_words != 0:
        yield _none_of(
            "typists",
            "simulated typing, whoever types",
            evidence.broken_typists,
            "no kind of typist contradicts another or is clearly worse off",
        )
    if policy.cover_everything:
        yield _none_of("covered", "uses of private text", evidence.uncovered, "each is under a guarantee")
    yield _none_of("ledger", "privacy ledger", evidence.ledger_problems, "the hash chain is whole")


def _contradictions(evidence: Evidence) -> int | None:
    """Audits that failed; None where the verdict or the rows behind it are missing."""
    if evidence.noise_audit_passed is None or not evidence.audits:
        return None
    return max(sum(row.passed is False for row in evidence.audits), int(not evidence.noise_audit_passed))


def _released(evidence: Evidence) -> GateResult:
    """Each row about what was released must be there, and pass."""
    rows = {row.type: row for row in evidence.audits if row.type in RELEASED}
    problems = [rows[kind].reason or kind for kind in rows if rows[kind].passed is not True]
    missing = [kind.replace("_", " ") for kind in RELEASED if kind not in rows]
    if missing:
        problems.append(f"missing: {', '.join(missing)}")
    text = "; ".join(problems) or "models follow from released sums, and these from recorded devices and all the noise"
    count = None if missing else len(problems)
    return _gate("released", "noise in what was released", count, 0, not problems, text)


def _power(evidence: Evidence) -> GateResult:
    """Some audit must notice little less noise, and some a clip norm that is little too loose."""
    noise = max((row.least_noise for row in evidence.audits if row.least_noise is not None), default=None)
    clip = min((row.least_clip for row in evidence.audits if row.least_clip is not None), default=None)
    passed = _finite(noise) and _finite(clip) and noise >= LEAST_NOISE and clip <= LEAST_CLIP
    text = (
        f"with 90% power they notice {_show(noise)} of the noise, {LEAST_NOISE} needed, "
        f"and {_show(clip)} clip norms, {LEAST_CLIP} needed"
    )
    return _gate("audit_power", "what the audits would notice", noise, LEAST_NOISE, passed, text)


def _attempts(evidence: Evidence) -> GateResult:
    """Intervals of a later attempt on the same held-out devices must be surer, or one of many would pass by luck."""
    attempt, confidence = evidence.attempt, evidence.confidence
    needed = confidence_of(attempt) if attempt is not None and attempt > 0 else None
    passed = _finite(confidence) and _finite(needed) and confidence >= needed
    text = (
        f"attempt {_show(attempt)} on these held-out devices against what users have: intervals at "
        f"{_show(confidence)}, at least {_show(needed)} needed"
    )
    return _gate("attempts", "luck over repeated attempts", confidence, needed, passed, text)


def _at_most(name: str, title: str, value: float | None, threshold: float | None, what: str) -> GateResult:
    # A sum that the ledger let through is no more here.
    passed = _finite(value) and _finite(threshold) and value <= threshold * (1 + ROUNDING)
    return _gate(name, title, value, threshold, passed, f"{what} is {_show(value)}, at most {_show(threshold)} allowed")


def _at_least(
    name: str, title: str, value: float | None, threshold: float | None, what: str, *, strictly: bool = False
) -> GateResult:
    passed = _finite(value) and _finite(threshold) and (value > threshold if strictly else value >= threshold)
    need = "must exceed" if strictly else "must be at least"
    return _gate(name, title, value, threshold, passed, f"{what} is {_show(value)}, {need} {_show(threshold)}")


def _accountants(evidence: Evidence) -> GateResult:
    first, second = evidence.epsilon, evidence.epsilon_pld
    difference = abs(first - second) if _finite(first) and _finite(second) else None
    passed = difference is not None and difference <= EPSILON_TOLERANCE
    text = f"epsilon is {_show(first)} by the exact curve and {_show(second)} by privacy loss distributions"
    return _gate("accountants", "two accountants agree", difference, EPSILON_TOLERANCE, passed, text)


def _separation(evidence: Evidence) -> GateResult:
    observed, enforced = evidence.observed_min_sep, evidence.enforced_min_sep
    once = observed is None and evidence.observed_max_participations in (0, 1)
    passed = _finite(enforced) and (once or (_finite(observed) and observed >= enforced))
    seen = "no device took part twice" if once else f"closest two participations are {_show(observed)} rounds apart"
    return _gate(
        "min_sep", "separation of participations", observed, enforced, passed, f"{seen}, {_show(enforced)} needed"
    )


def _typing(evidence: Evidence) -> GateResult:
    broken = evidence.broken_margins
    if broken is not None and evidence.session_words is not None and evidence.missing_metrics is not None:
        broken = (*broken, *(f"{name}: could not be estimated" for name in evidence.missing_metrics))
    else:
        broken = None
    # Under a budget nothing is typed again: then it is recall that must not be worse.
    what = "recall" if evidence.session_words == 0 else "simulated typing"
    title = f"{what}, against the starting point and what users have"
    return _none_of("typing", title, broken, f"no metric of {what} breaks its margin")


def _none_of(name: str, title: str, problems: tuple[str, ...] | None, otherwise: str) -> GateResult:
    """Nobody found a problem; where nobody looked, the gate fails."""
    text = "missing" if problems is None else "; ".join(problems) or otherwise
    return _gate(name, title, None if problems is None else len(problems), 0, problems == (), text)


def _gate(name: str, title: str, value: float | None, threshold: float | None, passed: bool, text: str) -> GateResult:
    return GateResult(
        id=name,
        title=title,
        value=value if _finite(value) else None,
        threshold=threshold if _finite(threshold) else None,
        passed=bool(passed),
        evidence=text,
    )


def _finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _show(value: float | None) -> str:
    if not _finite(value):
        return "missing" if value is None else "not a finite number"
    return f"{value:.6g}" if isinstance(value, float) else f"{value}"
