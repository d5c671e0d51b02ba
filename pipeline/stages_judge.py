"""Stages that judge the model and act on it: audit, A/B, decision, report, publication."""

import numpy as np

from evaluation import ab, canaries, metrics, ngram
from evaluation import audit as memorisation
from evaluation.noise_audit import noise_audit
from federated.server import flat_weights
from pipeline import evidence, gates, load, noise_trace, release, results
from pipeline.stage import StageContext
from pretrain.vocabulary import TokenStream
from reports import render


def audit(ctx: StageContext) -> results.Audit:
    """What the private model remembers of the canaries, and whether the noise was what it should have been."""
    config, trained, mechanism = ctx.config, ctx.run.result("fine_tune"), load.mechanism(ctx.run)
    planted = canaries.load(ctx.run.input("fine_tune", "canaries.json"))
    joined_TD, trace, directions = noise_trace.load(ctx.run.private("fine_tune") / noise_trace.FILE)
    whitener_TT = noise_trace.whitener(mechanism, trained["rounds"])
    noise_multiplier = noise_trace.update_noise(config.mechanism, mechanism)
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
        found_single_user=sum(bool(row.found_by_beam or row.found_by_best_first) for row in _promised(found)),
        broken_ceilings=found.broken_ceilings,
        pooled_p_value=found.pooled_p_value,
        random_continuations=found.random_continuations,
        alpha=found.alpha,
        canaries=rows,
        noise_audit_passed=None if tested is None else tested.passed,
        seed_commitment=None if tested is None else tested.seed_commitment,
        audits=[] if tested is None else [row.model_dump() for row in tested.rows],
        headline={"exposure_bits": found.max_exposure_bits},
    )


def model_change(ctx: StageContext) -> np.ndarray:
    """Final minus starting weights of private training, float64 ``[P]``."""
    return flat_weights(load.model(ctx, "fine_tune")) - flat_weights(load.model(ctx, "adapt"))


def _promised(found: memorisation.AuditResult) -> list[memorisation.CanaryRow]:
    """Canaries that the guarantee of one device speaks about."""
    return [row for row in found.canaries if row.n_u == 1 and row.population == "compliant"]


def ab_test(ctx: StageContext) -> results.AbTest:
    """Public n-gram, pretrained, starting point and private model on held-out test devices."""
    config = ctx.config.ab_test
    base, grown = load.vocabulary(ctx, "ingest_public"), load.vocabulary(ctx, "build_vocabulary")
    store = load.store(ctx)
    known, test = (_first(store.encode(words, "test"), config.max_devices) for words in (base, grown))
    public = ngram.NGram.fit(load.public_streams(ctx, grown)[0], grown, config.ngram_order)
    arms = {
        "ngram": ngram.recall(public, test),
        "pretrained": metrics.recall(load.model(ctx, "pretrain"), known),
        "start": metrics.recall(load.model(ctx, "adapt"), test),
        "private": metrics.recall(load.model(ctx, "fine_tune"), test),
    }
    pairs = [("private", other) for other in ("start", "pretrained", "ngram")]
    compared = ab.compare(arms, ctx.config.name, config.buckets, config.confidence, pairs=pairs)
    top1, top3 = (compared.difference("private", "start", name).absolute for name in ("top1_recall", "top3_recall"))
    by_arm = {(row.arm, row.metric): row.estimate for row in compared.arms}
    return results.AbTest(
        devices_at_least=compared.devices_at_least,
        words=int(arms["private"].words_D.sum()),
        confidence=compared.confidence,
        top1_recall={arm: by_arm[arm, "top1_recall"].value for arm in arms},
        top3_recall={arm: by_arm[arm, "top3_recall"].value for arm in arms},
        top1_gain=top1.value,
        top1_gain_low=top1.low,
        top1_gain_high=top1.high,
        top3_gain_low=top3.low,
        arms=[results.Metric(arm=row.arm, metric=row.metric, **_interval(row.estimate)) for row in compared.arms],
        differences=[
            results.Difference(
                candidate=row.candidate, baseline=row.baseline, metric=row.metric, **_interval(row.absolute)
            )
            for row in compared.differences
        ],
        headline={"top1_recall": by_arm["private", "top1_recall"].value, "top1_gain": top1.value},
    )


def decide(ctx: StageContext) -> results.Decide:
    """The declared gates over the evidence; a hold is a value, not an error."""
    decided = gates.decide(evidence.for_gates(ctx), ctx.config.policy)
    return results.Decide(**dict(decided), headline={"decision": decided.decision})


def report(ctx: StageContext) -> results.Report:
    """The disclosure and its renderings, for a launch and for a hold."""
    files = render.render(evidence.disclosure(ctx), ctx.public)
    return results.Report(
        files=sorted(path.name for path in files), disclosure_sha256=ctx.run.manifest("report")["disclosure.json"]
    )


def publish(ctx: StageContext) -> results.Publish:
    """Export, check parity, register and move the alias; a hold publishes nothing."""
    return results.Publish(**release.publish(ctx))


def _first(stream: TokenStream, most: int | None) -> TokenStream:
    return stream if most is None or most >= len(stream) else stream.select(np.arange(most))


def _interval(estimate: ab.Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
