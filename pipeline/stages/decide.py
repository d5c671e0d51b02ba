"""Stage ``decide``: evaluate the declared gates on the results of the stages; a hold is a value, not an error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.ground.errors import LaunchError, StageInputMissing
from pipeline.ledger.entries import SPENDING as SPENDS
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.gates.budgets import overspent, understated
from pipeline.publication.gates.decide import Evidence, concluded
from pipeline.publication.gates.decide import decide as decided
from pipeline.releases.release import EVERY_RELEASE
from pipeline.releases.spent import is_sum, launch_loss, spent
from pipeline.releases.total import total
from pipeline.releases.training import TRAINING
from pipeline.releases.uses import releases, uncovered
from pipeline.run.population import require_allowed, require_population
from pipeline.run.public_fields import Source, require_listed
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.second_run import differences
from pipeline.run.stage import StageContext, StageResult, Stages
from pipeline.stages.audit_releases import VOCABULARY
from pipeline.stages.graph import SPENDING, STAGES, before
from pipeline.stages.remade import Elsewhere, of_launch, repeated
from pipeline.stages.report import disclosure
from reports.disclosure.document import DecisionBlock, GateResult
from reports.disclosure.total import Total
from reports.losses import up

# Gates whose result later launches of the population change.
_MOVING_GATES = {"population_budget", "window_budget", "population_words"}
_MOVING_GATES |= {"population_discovery", "ledger"}


class Decide(StageResult, DecisionBlock):
    """The decision and its gates."""


def decide(ctx: StageContext) -> Decide:
    """Evaluate the declared gates on the evidence; a hold is a value, not an error.

    Raises:
      RulesBroken: the launch file's gates are looser than its population's registration allows.
    """
    require_allowed(ctx.config, require_population(ctx.config, PrivacyLedger.of(ctx.settings)))
    place = (ctx.config, ctx.run, ctx.settings, _before_the_decision())
    differing, not_repeated = repeated(*place)
    found = evidence(ctx, (*of_launch(*place), *differing))
    decision = decided(found, ctx.config.policy).model_copy(update={"not_repeated": not_repeated})
    # The report states the decision; one that could not be written would otherwise be found after it.
    if unwritable := tuple(_undisclosed(ctx, decision)):
        found = found.model_copy(update={"leaks": (*(found.leaks or ()), *unwritable)})
        decision = decided(found, ctx.config.policy).model_copy(update={"not_repeated": not_repeated})
    headline: dict[str, float | str] = {"decision": decision.decision, **_one_number(ctx)}
    return Decide(**dict(decision), headline=headline)


def _before_the_decision() -> Stages:
    """Stages whose public half the decision holds against its sources; later stages follow from it."""
    return {name: stage for name, stage in STAGES.items() if name in before("decide")}


def _undisclosed(ctx: StageContext, decision: DecisionBlock) -> Iterator[str]:
    """Yield why the disclosure of this decision could not be written; nothing if it can."""
    try:
        require_listed(disclosure(ctx, decision))
    except (LaunchError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        yield f"report: the disclosure cannot be written: {type(error).__name__}: {error}"


def evidence(ctx: StageContext, leaks: tuple[str, ...] | None = None) -> Evidence:
    """Collect evidence from finished stages and the ledger; missing evidence stays missing and fails its gate.

    Args:
      leaks: public figures without the source that they state (``stages.remade``).
    """
    ledger, population = PrivacyLedger.of(ctx.settings), ctx.config.population
    policy, public = ctx.config.policy, _public(ctx)
    days = policy.budget.days if policy.budget else None
    of_ledger = {
        "population_rho": ledger.total(population),
        "window_rho": ledger.total(population, "device", days),
        "population_words_epsilon": ledger.total(population, "words", days),
        "population_discovery_epsilon": ledger.total(population, "item", days),
        "ledger_problems": (
            *ledger.verify(_receipts(ctx)),
            *overspent(ledger.entries(population), ctx.run.launch_id, policy),
            *understated(ledger.entries_of_launch(ctx.run.launch_id), ctx.config, public["total_epsilon"]),
        ),
        "releases": dict.fromkeys(_spent(ledger, ctx.run.launch_id), EVERY_RELEASE) | public["releases"],
    }
    return Evidence.model_validate(public | of_ledger | {"leaks": leaks}, extra="ignore")


def _spent(ledger: PrivacyLedger, launch_id: str) -> list[str]:
    """Stages whose releases the decision waits for, by the ledger: those that spent, or reuse a spend."""
    last = {each.stage: each.does for each in ledger.entries_of_launch(launch_id) if each.does in (*SPENDS, "reuse")}
    return [stage for stage, does in last.items() if does != "release"]


def _releases(ctx: StageContext) -> dict[str, tuple[str, ...]]:
    """Verdicts that each release must have, by stage: of the launch file, and of every record of a spend.

    Guarantee: a stage that spent is never left out, whatever the list of releases says of it.
    """
    records = [record for name in STAGES if name in before("decide") and (record := ctx.run.record(name))]
    paid = [each.stage for each in records if each.result.get("spend") or each.ledger.keys() & {*SPENDS, "reuse"}]
    declared = {release.stage: (*EVERY_RELEASE, *release.proves) for release in releases(ctx.config)}
    return dict.fromkeys(paid, EVERY_RELEASE) | declared | {"build_vocabulary": VOCABULARY}


def _public(ctx: StageContext) -> dict[str, Any]:
    """Evidence of the launch file and of public results."""
    results: dict[str, Any] = {}
    for stage in ("fine_tune", "audit", "ab_test", "audit_releases"):
        results |= ctx.run.optional(stage)
    if is_sum(ctx.config):
        results |= _together(ctx)
    results |= {
        "launched_for": ctx.config.features,
        "releases": _releases(ctx),
        "counts_alone": not TRAINING.asked(ctx.config),
        "epsilon0": ctx.run.optional("discover").get("epsilon0"),
        "enforced_min_sep": ctx.config.mechanism.min_sep,
        "enforced_max_participations": ctx.config.mechanism.max_participations,
        "total_epsilon": whole.epsilon if (whole := _whole(ctx)) else None,
        "uncovered": uncovered(ctx.config),
    }
    return results


def remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The decision of the public evidence; gates on the ledger are as stated, as it is not public."""
    stated = record.result["gates"]
    evidence = Evidence.model_validate(_public(ctx) | {"leaks": ()}, extra="ignore")
    made = {gate.id: gate for gate in decided(evidence, ctx.config.policy).gates}
    believed = tuple(
        GateResult.model_validate(gate) if gate["id"] in _MOVING_GATES else made[gate["id"]] for gate in stated
    )
    of_ledger = dict.fromkeys(("value", "shown", "passed", "evidence"), Elsewhere(Source.LEDGER))
    rows = [gate.model_dump(mode="json") | (of_ledger if gate.id in _MOVING_GATES else {}) for gate in believed]
    decision = concluded(believed)
    headline = {"decision": decision.decision, **_one_number(ctx)}
    return {"decision": decision.decision, "reasons": decision.reasons, "gates": rows, "headline": headline}


def _together(ctx: StageContext) -> dict[str, float | None]:
    """Loss of one device to the launch's noised releases; None, which fails the gates, if one has not finished."""
    try:
        loss = launch_loss(ctx.config, ctx.run)
    except StageInputMissing:
        return dict.fromkeys(("rho", "epsilon", "epsilon_pld"))
    return {"rho": loss.rho, "epsilon": loss.epsilon, "epsilon_pld": loss.epsilon_pld, "delta": loss.delta}


def _whole(ctx: StageContext) -> Total | None:
    """Loss of one device to all releases together; None if one of them has not finished."""
    try:
        return total(ctx.config, spent(ctx.config, ctx.run))
    except StageInputMissing:
        return None


def _one_number(ctx: StageContext) -> dict[str, float | str]:
    """That loss rounded up, and in words: the only form in which commands, MLflow and Airflow state it."""
    if (loss := _whole(ctx)) is None:
        return {}
    rounded = {"epsilon": float(up(loss.epsilon)), "delta": loss.delta}
    if loss.rho is not None:
        rounded["rho"] = float(up(loss.rho, 4))
    return {**rounded, "guarantee": loss.number, "loss": loss.sentence}


def _receipts(ctx: StageContext) -> list[str]:
    """Hashes of the ledger entries in this launch's records; a rewritten ledger lacks them."""
    records = [record for name in SPENDING if (record := ctx.run.record(name))]
    return [receipt for record in records for receipt in record.ledger.values()]


def decided_again(ctx: StageContext, record: StageRecord, run: RunDir) -> Iterator[str]:
    again, stated = decide(ctx).model_dump(mode="json"), record.result
    passed = {gate["id"]: gate["passed"] for gate in stated["gates"]}
    if stated["decision"] != ("launch" if all(passed.values()) else "hold"):
        yield "decision"
    before, now = (
        {gate["id"]: gate for gate in result["gates"] if gate["id"] not in _MOVING_GATES} for result in (stated, again)
    )
    yield from differences(before, now, "gates")
    if all(passed[name] for name in passed.keys() & _MOVING_GATES):
        yield from differences(stated["reasons"], again["reasons"], "reasons")
    yield from differences(stated["headline"], {**again["headline"], "decision": stated["decision"]}, "headline")
