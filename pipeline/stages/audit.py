"""Stage ``audit``: what the model remembers of its canaries, and whether the noise was what it should have been."""

import os
from dataclasses import asdict

import numpy as np

from evaluation.audit import canaries, memorisation
from evaluation.audit.noise import NoiseAudit, noise_audit
from evaluation.audit.released import rows as released
from evaluation.config import ALPHA
from federated.rounds.rule import RoundRule
from federated.rounds.server import flat_weights
from pipeline.config import LaunchConfig
from pipeline.stage import StageContext, StageResult
from pipeline.stages import artifacts, audit_trace, fine_tune_workers
from pretrain.threads import one_torch_thread
from reports.disclosure.findings import AuditBlock, AuditRow, CanaryResult


class Canary(CanaryResult):
    """One canary, and how its rank and its ceiling came about."""

    method: str
    mu: float | None
    within_ceiling: bool | None
    vacuous: bool | None


class NoiseAuditRow(AuditRow):
    """One audit of the noise, and the confidence of its interval."""

    confidence: float


class Audit(StageResult, AuditBlock):
    """What the model remembers of compliant canaries, of ``stress`` apart, and the audits of the noise."""

    found_by_beam: int
    noise_audit_passed: bool | None
    canaries: tuple[Canary, ...]
    audits: tuple[NoiseAuditRow, ...]


def audit(ctx: StageContext) -> Audit:
    """What the private model remembers of the canaries, and whether the noise was what it should have been."""
    config, trained, mechanism = ctx.config, ctx.run.result("fine_tune"), artifacts.mechanism(ctx.run)
    planted = canaries.load(ctx.run.input("fine_tune", "canaries.json"))
    joined_TD, trace, directions = audit_trace.load(ctx.run.private("fine_tune") / audit_trace.FILE)
    whitener_TT = audit_trace.whitener(mechanism, trained["rounds"])
    noise_multiplier = RoundRule(config.mechanism, config.seed, stored=mechanism).privatizer.noise_multiplier
    rounds = memorisation.Rounds(
        np.asarray(trained["synthetic_participations"]),
        memorisation.own_mu(planted, joined_TD, whitener_TT, noise_multiplier),
    )
    with one_torch_thread():
        memorised = memorisation.audit(
            artifacts.model(ctx, "fine_tune"),
            planted,
            config.audit,
            artifacts.vocabulary(ctx, "build_vocabulary"),
            config.seed,
            rounds,
            workers=len(os.sched_getaffinity(0)),
        )
    tested = None
    if trace is not None and directions is not None:
        claim = audit_trace.claim(config.mechanism, mechanism, trained["rounds"], trace.joined_TN)
        again = None
        if trace.seen is not None:
            again = audit_trace.again(ctx, directions, fine_tune_workers.training_data(ctx, planted), trace.seen)
        tested = noise_audit(trace, directions, model_change(ctx), claim, again)
    # Canaries may hold discovered words that nobody has reviewed: the rows go without their text.
    rows = [{name: value for name, value in vars(row).items() if name != "words"} for row in memorised.canaries]
    content = asdict(memorised) | {
        "canaries": rows,
        "random_continuations": config.audit.random_continuations,
        "alpha": ALPHA,
        "noise_audit_passed": None if tested is None else tested.passed,
        "seed_commitment": None if tested is None else tested.seed_commitment,
        "audits": [] if tested is None else [_shown(row, config) for row in tested.rows],
        "headline": {"exposure_bits": memorised.max_exposure_bits},
        "metrics": _metrics(memorised, tested),
    }
    return Audit.model_validate(content, extra="ignore")


def _shown(row: released.AuditRow, config: LaunchConfig) -> dict[str, object]:
    """A row as it may be shown: how many updates were not empty tells who typed, and nothing covers that."""
    untold = {"n": 0} if row.type == "update_lengths" and config.evaluation is not None else {}
    return vars(row) | untold


def model_change(ctx: StageContext) -> np.ndarray:
    """Final minus starting weights of private training, float64 ``[P]``."""
    return flat_weights(artifacts.model(ctx, "fine_tune")) - flat_weights(artifacts.model(ctx, "adapt"))


def _metrics(memorised: memorisation.AuditResult, tested: NoiseAudit | None) -> dict[str, float]:
    """Each canary's exposure and each audit's estimate, by name for MLflow."""
    shown = {
        f"exposure_bits/{row.population}/{row.n_u} devices {row.n_e} copies/{number}": row.exposure_bits
        for number, row in enumerate(memorised.canaries, start=1)
    }
    for row in () if tested is None else tested.rows:
        shown[f"noise_audit/{row.type}"] = row.estimate
    return shown
