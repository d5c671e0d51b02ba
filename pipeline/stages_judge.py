"""Stages that judge the model and act on it: audit, A/B, decision, report, publication."""

import os

import numpy as np

from evaluation.audit import canaries, memorisation
from evaluation.audit.noise import NoiseAudit, noise_audit
from evaluation.comparison import compare as comparison
from evaluation.keyboard import layouts as geometry
from federated.rounds.server import flat_weights
from pipeline import evidence, gate_evidence, release, results
from pipeline.ab_result import ab_result
from pipeline.results_ab import AbTest
from pipeline.stage import StageContext
from pipeline.stages import ab_arms as entrants_of
from pipeline.stages import artifacts as load
from pipeline.stages import audit_trace as noise_trace
from pipeline.stages import gates
from pretrain.files import write_text
from pretrain.threads import one_torch_thread
from reports import render


def audit(ctx: StageContext) -> results.Audit:
    """What the private model remembers of the canaries, and whether the noise was what it should have been."""
    config, trained, mechanism = ctx.config, ctx.run.result("fine_tune"), load.mechanism(ctx.run)
    planted = canaries.load(ctx.run.input("fine_tune", "canaries.json"))
    joined_TD, trace, directions = noise_trace.load(ctx.run.private("fine_tune") / noise_trace.FILE)
    whitener_TT = noise_trace.whitener(mechanism, trained["rounds"])
    noise_multiplier = noise_trace.update_noise(config.mechanism, mechanism)
    with one_torch_thread():
        found = memorisation.audit(
            load.model(ctx, "fine_tune"),
            planted,
            config.audit,
            load.vocabulary(ctx, "build_vocabulary"),
            config.seed,
            mu=trained["mu"],
            participations_D=np.asarray(trained["synthetic_participations"]),
            own_mu_N=memorisation.own_mu(planted, joined_TD, whitener_TT, noise_multiplier),
            alpha=config.audit.alpha,
            workers=len(os.sched_getaffinity(0)),
        )
    tested = None
    if trace is not None and directions is not None:
        claim = noise_trace.claim(config.mechanism, mechanism, trained["rounds"], trace.joined_TN)
        tested = noise_audit(trace, directions, model_change(ctx), claim, config.audit.alpha)
    # Canaries may hold discovered words that nobody has reviewed: the rows go without their text.
    rows = [row.model_dump(exclude={"words"}) for row in found.canaries]
    return results.Audit(
        worst_rank_single_user=found.worst_rank_single_user,
        max_exposure_bits=found.max_exposure_bits,
        found_by_beam=found.found_by_beam,
        found_single_user=found.found_single_user,
        stress=None if found.stress is None else results.StressBlock(**found.stress.model_dump()),
        broken_ceilings=found.broken_ceilings,
        pooled_p_value=found.pooled_p_value,
        random_continuations=found.random_continuations,
        alpha=found.alpha,
        canaries=rows,
        noise_audit_passed=None if tested is None else tested.passed,
        seed_commitment=None if tested is None else tested.seed_commitment,
        audits=[] if tested is None else [row.model_dump() for row in tested.rows],
        headline={"exposure_bits": found.max_exposure_bits},
        metrics=_audit_metrics(found, tested),
    )


def model_change(ctx: StageContext) -> np.ndarray:
    """Final minus starting weights of private training, float64 ``[P]``."""
    return flat_weights(load.model(ctx, "fine_tune")) - flat_weights(load.model(ctx, "adapt"))


def _audit_metrics(found: memorisation.AuditResult, tested: NoiseAudit | None) -> dict[str, float]:
    """Each canary's exposure and each audit's estimate, by name for MLflow."""
    shown = {
        f"exposure_bits/{row.population}/{row.n_u} devices {row.n_e} copies/{number}": row.exposure_bits
        for number, row in enumerate(found.canaries, start=1)
    }
    for row in () if tested is None else tested.rows:
        shown[f"noise_audit/{row.type}"] = row.estimate
    return shown


def ab_test(ctx: StageContext) -> AbTest:
    """All arms on held-out test devices: public, this launch's, what users have and, simulated, without privacy."""
    config = ctx.config.ab_test
    entrants, store = entrants_of.gather(ctx), load.store(ctx)
    if not geometry.has_keyboard(ctx.config.locale):
        # No layout to mistype on: words are predicted, but not typed again.
        config = config.model_copy(update={"session_words": 0})
    with one_torch_thread():
        compared = comparison.run(
            entrants.arms,
            comparison.Devices(store.words, store.devices("test"), store.devices("validation")),
            entrants.vocabulary,
            len(load.vocabulary(ctx, "ingest_public")),
            ctx.config.locale,
            ctx.config.feature,
            config,
            ctx.config.name,
            ctx.config.seed,
            entrants.pairs,
            workers=len(os.sched_getaffinity(0)),
            own_size=entrants.own_words,
        )
    write_text(ctx.public / "comparison.json", compared.model_dump_json(indent=1) + "\n")
    return ab_result(compared, entrants, ctx.config.feature, config.margin)


def decide(ctx: StageContext) -> results.Decide:
    """The declared gates over the evidence; a hold is a value, not an error."""
    decided = gates.decide(gate_evidence.for_gates(ctx), ctx.config.policy)
    return results.Decide(**dict(decided), headline={"decision": decided.decision})


def report(ctx: StageContext) -> results.Report:
    """The disclosure and its renderings, for a launch and for a hold."""
    files = render.render(evidence.disclosure(ctx), ctx.public)
    return results.Report(
        files=sorted(str(path.relative_to(ctx.public)) for path in files),
        disclosure_sha256=ctx.run.manifest("report")["disclosure.json"],
    )


def publish(ctx: StageContext) -> results.Publish:
    """Export, check parity, register and move the alias; a hold publishes nothing."""
    return results.Publish(**release.publish(ctx))
