"""Gates on the results of attacks and audits, and on the audits' power."""

from collections.abc import Iterator

from pydantic import Field

from evaluation.audit.released.rows import TRAINED
from pipeline.launch.policy import PolicyConfig
from pipeline.publication.gates.gate import Part, at_least, at_most, finite, gate, rounded
from reports.disclosure.document import GateResult
from reports.disclosure.findings import AuditVerdict, ControlBlock, ReleaseAudit

# An audit must notice a tenth less noise, or updates a tenth too long, with probability 0.9.
LEAST_NOISE, LEAST_CLIP = 0.9, 1.1


class AttackEvidence(Part):
    """Results of the canaries, the noise audits and the audits of releases."""

    counts_alone: bool = Field(default=False, description="the launch trains nothing on devices, so has no canaries")
    worst_rank_single_user: int | None = Field(default=None, description="best-ranked canary known to one device")
    random_continuations: int | None = None
    found_single_user: int | None = Field(default=None, description="one device's canaries that a search found")
    broken_ceilings: int | None = Field(default=None, description="one device's canaries better known than allowed")
    pooled_p_value: float | None = Field(default=None, description="over all one-device canaries together")
    alpha: float | None = None
    noise_audit_passed: bool | None = Field(default=None, description="None if no noise was audited")
    audits: tuple[AuditVerdict, ...] = ()
    control: ControlBlock | None = Field(default=None, description="the attacks' result on a model without noise")
    releases: dict[str, tuple[str, ...]] | None = Field(
        default=None, description="verdicts that each must have, by stage"
    )
    release_audits: tuple[ReleaseAudit, ...] | None = None


def of_attacks(evidence: AttackEvidence, policy: PolicyConfig) -> Iterator[GateResult]:
    """Yield gates on canaries and noise audits, if the launch trains on devices, and on audits of every release."""
    if not evidence.counts_alone:
        yield from _of_canaries(evidence, policy)
        yield at_most(
            "noise_audit",
            "audits of the noise",
            _contradictions(evidence),
            0,
            "audits that contradict the claimed noise, clipping, separation or accounting",
        )
        yield _released(evidence)
        yield _power(evidence)
    yield _release_audits(evidence)


def _of_canaries(evidence: AttackEvidence, policy: PolicyConfig) -> Iterator[GateResult]:
    among = f" among {evidence.random_continuations} continuations" if evidence.random_continuations else ""
    yield at_least(
        "canaries",
        "memorisation of one device's canary",
        evidence.worst_rank_single_user,
        policy.min_canary_rank,
        f"rank of the best-remembered canary on one device{among}",
    )
    yield at_most(
        "extraction",
        "extraction of one device's canary",
        evidence.found_single_user,
        0,
        "canaries on one device that beam search or exact search completes",
    )
    yield at_most(
        "ceilings",
        "exposure within the guarantee",
        evidence.broken_ceilings,
        0,
        "canaries on one device above their ceiling",
    )
    yield at_least(
        "pooled",
        "exposure of all canaries together",
        evidence.pooled_p_value,
        evidence.alpha,
        "p-value of the memorisation of one-device canaries under the guarantee",
    )
    yield _control(evidence)


def _control(evidence: AttackEvidence) -> GateResult:
    """Gate on the control: the attack must find canaries that were learnt without noise."""
    name, title = "control", "canaries that were learnt are found"
    control = evidence.control
    if control is None:
        return gate(name, title, None, None, False, "missing")
    most = max(control.rows, key=lambda row: row.n_e)
    text = (
        f"after {control.rounds} rounds without noise, searches complete {most.found} of {most.canaries} canaries with "
        f"{most.n_e} copies and rank them first; all are needed"
    )
    return gate(name, title, most.found, most.canaries, control.passed, text)


def _contradictions(evidence: AttackEvidence) -> int | None:
    """Number of failed audits; None if the verdict or its rows are missing."""
    if evidence.noise_audit_passed is None or not evidence.audits:
        return None
    return max(sum(row.verdict == "failed" for row in evidence.audits), int(not evidence.noise_audit_passed))


def _released(evidence: AttackEvidence) -> GateResult:
    """Gate on the audits of released models: each must exist and pass; evidence has no figures of theirs."""
    rows = {row.type: row.verdict for row in evidence.audits}
    verdicts = {kind: rows.get(kind, "not run") for kind in TRAINED}
    problems = [f"{kind.replace('_', ' ')}: {verdict}" for kind, verdict in verdicts.items() if verdict != "passed"]
    whole = "models follow from released sums, and the sums from recorded devices and the full noise"
    count = None if "not run" in verdicts.values() else len(problems)
    return gate("released", "noise in the released models", count, 0, not problems, "; ".join(problems) or whole)


def _power(evidence: AttackEvidence) -> GateResult:
    """Gate on power: an audit must notice slightly too little noise, and one a slightly too large clip norm."""
    noise = max((row.least_noise for row in evidence.audits if row.least_noise is not None), default=None)
    clip = min((row.least_clip for row in evidence.audits if row.least_clip is not None), default=None)
    passed = finite(noise) and noise >= LEAST_NOISE and finite(clip) and clip <= LEAST_CLIP
    text = (
        f"with 90% power they notice {rounded(noise, LEAST_NOISE, passed=passed)} of the noise, {LEAST_NOISE} needed, "
        f"and {rounded(clip, LEAST_CLIP, passed=passed)} clip norms, {LEAST_CLIP} needed"
    )
    return gate("audit_power", "power of the audits", noise, LEAST_NOISE, passed, text)


def _release_audits(evidence: AttackEvidence) -> GateResult:
    """Gate on release audits: each release must have and pass each verdict of its audit."""
    name, title = "release_audits", "each release made again from its key"
    if not evidence.releases or evidence.release_audits is None:
        return gate(name, title, None, 0, False, "missing")
    passed = {
        audit.stage: {verdict.name: verdict.passed for verdict in audit.verdicts} for audit in evidence.release_audits
    }
    absent = [
        f"{stage}: {verdict} was not tested"
        for stage, verdicts in evidence.releases.items()
        for verdict in verdicts
        if verdict not in passed.get(stage, {})
    ]
    wrong = [
        f"{audit.stage}: {verdict.sentence or verdict.name}"
        for audit in evidence.release_audits
        for verdict in audit.verdicts
        if not verdict.passed
    ]
    whole = f"{', '.join(evidence.releases)}: bounded contributions and the full noise, each derived again"
    text = "; ".join((*absent, *wrong)) or whole
    return gate(name, title, None if absent else len(wrong), 0, not (absent or wrong), text)
