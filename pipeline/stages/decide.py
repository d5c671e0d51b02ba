"""Stage ``decide``: the declared gates over what the stages found; a hold is a value, not an error."""

from typing import Literal

from pipeline.errors import StageInputMissing
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.stage import StageContext, StageResult
from pipeline.stages import gates
from pipeline.stages.gates import Gate
from pipeline.stages.spends import SPENDS


class Decide(StageResult):
    """The decision and its gates."""

    decision: Literal["launch", "hold"]
    reasons: list[str]
    gates: list[Gate]


def decide(ctx: StageContext) -> Decide:
    """The declared gates over the evidence; a hold is a value, not an error."""
    decided = gates.decide(for_gates(ctx), ctx.config.policy)
    return Decide(**dict(decided), headline={"decision": decided.decision})


def for_gates(ctx: StageContext) -> gates.Evidence:
    """Evidence from the stages that finished; what is missing stays missing and fails its gate."""
    trained, compared, audited, found = (optional(ctx, name) for name in ("fine_tune", "ab_test", "audit", "discover"))
    ledger = PrivacyLedger(ctx.settings.ledger_url)
    mechanism = ctx.config.mechanism
    return gates.Evidence(
        rho=trained.get("rho"),
        epsilon=trained.get("epsilon"),
        epsilon_second=trained.get("epsilon_pld"),
        population_rho=ledger.total(ctx.config.private_text.name),
        enforced_min_sep=mechanism.min_sep,
        observed_min_sep=trained.get("observed_min_sep"),
        enforced_max_participations=mechanism.max_participations,
        observed_max_participations=trained.get("observed_max_participations"),
        violations=trained.get("violations"),
        discovery_epsilon0=found.get("epsilon0"),
        population_discovery_epsilon=ledger.discovery_total(ctx.config.private_text.name),
        worst_canary_rank=audited.get("worst_rank_single_user"),
        random_continuations=audited.get("random_continuations"),
        found_single_user=audited.get("found_single_user"),
        broken_ceilings=audited.get("broken_ceilings"),
        pooled_p_value=audited.get("pooled_p_value"),
        audit_alpha=audited.get("alpha"),
        noise_audits_failed=_failed_audits(audited),
        top1_gain_low=compared.get("top1_gain_low"),
        top3_gain_low=compared.get("top3_gain_low"),
        typing_simulated=None if compared.get("session_words") is None else compared["session_words"] > 0,
        broken_margins=_broken(compared),
        ledger_problems=tuple(ledger.verify(_receipts(ctx))),
    )


def optional(ctx: StageContext, stage: str) -> dict:
    try:
        return ctx.run.result(stage)
    except StageInputMissing:
        return {}


def _receipts(ctx: StageContext) -> list[str]:
    """Hashes of the ledger's entries that this launch's stages were given; a ledger written anew lacks them."""
    records = [record for name in SPENDS if (record := ctx.run.record(name))]
    return [receipt for record in records for receipt in record.ledger.values()]


def _broken(compared: dict) -> tuple[str, ...] | None:
    if compared.get("broken_margins") is None:
        return None
    return (*compared["broken_margins"], *(f"{name}: could not be estimated" for name in compared["missing_metrics"]))


def _failed_audits(audited: dict) -> int | None:
    if audited.get("noise_audit_passed") is None:
        return None
    return sum(row["passed"] is False for row in audited["audits"])
