"""Stage ``plan``: the mechanism, its worst-case loss, before any spend."""

import logging
from pathlib import Path
from typing import Any

from federated import mechanisms
from federated.mechanisms import mechanism_file
from federated.planning import feasibility as planner
from pipeline.launch.config import LaunchConfig
from pipeline.preflight.foresee import foresee
from pipeline.preflight.gains import public_needs, uncertain
from pipeline.preflight.shortfalls import encoding_of, refusals
from pipeline.releases.terms import Terms
from pipeline.releases.training import TRAINING
from pipeline.run import artifacts
from pipeline.run.run_dir import StageRecord
from pipeline.run.stage import StageContext, StageResult
from reports.disclosure.total import Total

_log = logging.getLogger(__name__)


class Plan(StageResult):
    """Worst-case loss within the enforced limits.

    Attributes:
      total: loss of one device to all releases together.
    """

    feasible: bool
    reasons: list[str]
    rounds_below_goal: int | None
    min_sep_by_the_clock: int | None = None
    run_days: float | None = None
    sensitivity_squared: float
    rho: float
    delta: float
    epsilon: float
    alternatives: list[dict[str, float]]
    total: Total


def plan(ctx: StageContext) -> Plan:
    """Plan the mechanism and its worst-case guarantee, before any spend.

    Raises:
      ValueError: the launch is not feasible or would be held whatever its model's quality.
    """
    mechanism = ctx.config.mechanism
    # Rounded down, as the plan is public.
    splits = ctx.run.result("ingest_private")["devices_by_split"]
    planned = _planned(ctx.config, splits["train"])
    terms = Terms.of(ctx.config, planned.guarantee.rho, splits)
    mechanism_file.save(mechanisms.build(mechanism), ctx.public / artifacts.MECHANISM)
    problems = [
        *refusals(terms),
        # Discovery comes first, so missing room for training would be found after its spend. Later reuse is unknown
        # here.
        *foresee(terms, ctx.settings, ctx.run.launch_id, terms.spends.keys() - {"fine_tune"}).problems,
    ]
    if problems:
        raise ValueError("\n".join((*problems, "nothing was spent")))
    public = ctx.run.optional("pretrain")
    for line in public_needs(ctx.config.policy, public):
        _log.info("plan: %s", line)
    for line in uncertain(terms, public):
        _log.warning("plan: before anything is spent: %s", line)
    return _stated(terms, planned)


def _planned(config: LaunchConfig, training_devices: int) -> planner.Plan:
    if not TRAINING.asked(config):
        return planner.untrained_plan(config.mechanism)
    return planner.plan(config.mechanism, training_devices, encoding_of(config, training_devices))


def _stated(terms: Terms, planned: planner.Plan) -> Plan:
    delta = terms.config.mechanism.delta
    return Plan(
        feasible=planned.feasible,
        reasons=planned.reasons,
        rounds_below_goal=planned.rounds_below_goal,
        min_sep_by_the_clock=planned.by_the_clock.min_sep if planned.by_the_clock else None,
        run_days=planned.by_the_clock.run_days if planned.by_the_clock else None,
        sensitivity_squared=planned.guarantee.sensitivity_squared,
        rho=planned.guarantee.rho,
        delta=delta,
        epsilon=planned.guarantee.epsilon[delta],
        alternatives=[vars(row) for row in planned.alternatives],
        total=terms.total,
    )


def remade(ctx: StageContext, record: StageRecord, released: Path) -> dict[str, Any]:
    """The plan for the stated number of devices, and its mechanism."""
    splits = ctx.run.result("ingest_private")["devices_by_split"]
    planned = _planned(ctx.config, splits["train"])
    mechanism_file.save(mechanisms.build(ctx.config.mechanism), ctx.public / artifacts.MECHANISM)
    terms = Terms.of(ctx.config, planned.guarantee.rho, splits)
    return _stated(terms, planned).model_dump(mode="json")
