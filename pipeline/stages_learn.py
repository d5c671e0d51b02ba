"""Stages that make the model: ingest, pretrain, adapt, plan, fine-tune."""

import logging
import shutil
from dataclasses import asdict

from evaluation.audit import canaries
from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.accounting.amplification import Amplified
from federated.devices import store as population
from federated.mechanisms import mechanism_file as mechanism_files
from federated.planning import proposal as plan_proposal
from federated.planning import sweep as plan_sweep
from federated.planning import worst_case as planner
from federated.rounds.aggregation import plan_encoding
from pipeline import plan_files, results
from pipeline.participation_told import told
from pipeline.stage import Dataset, StageContext
from pipeline.stages import artifacts as load
from pipeline.stages import audit_trace as noise_trace
from pipeline.stages import fine_tune_workers as fine_tuning
from pipeline.stages import spends
from pretrain import corpus, export, extend, new_words, vocabulary
from pretrain import train as public_training
from pretrain.model import KeyboardLM, build_model, parameter_count

_log = logging.getLogger(__name__)


def ingest_public(ctx: StageContext) -> results.IngestPublic:
    """Public text into word shards, and the base vocabulary from its counts."""
    config = ctx.config
    summary = corpus.build_corpus(config.public_text, config.locale, ctx.public / "corpus", load.progress(ctx))
    base = vocabulary.from_counts(corpus.open_corpus(ctx.public / "corpus").counts(), config.vocabulary.base_size)
    vocabulary.save(base, ctx.public / "vocabulary.json")
    return results.IngestPublic(
        source=summary.source,
        licence=summary.licence,
        documents=summary.documents,
        train_tokens=summary.train_tokens,
        validation_tokens=summary.validation_tokens,
        vocabulary_size=len(base),
        corpus_digest=summary.digest,
        vocabulary_digest=base.digest,
        datasets=(Dataset(name=summary.source, digest=summary.digest, context="pretraining"),),
    )


def ingest_private(ctx: StageContext) -> results.IngestPrivate:
    """Client text into the private device store; only rounded counts and a digest come out."""
    summary = population.build_store(ctx.config.private_text, ctx.config.locale, ctx.config.seed, ctx.private / "store")
    return results.IngestPrivate(
        population=summary.population,
        source=summary.source,
        synthetic=summary.synthetic,
        devices_at_least=summary.devices,
        devices_by_split=summary.devices_by_split,
        store_digest=summary.digest,
        datasets=(Dataset(name=summary.population, digest=summary.digest, context="fine-tuning"),),
    )


def pretrain(ctx: StageContext) -> results.Training:
    """A next-word model from public text alone."""
    base = load.vocabulary(ctx, "ingest_public")
    train, validation = load.public_streams(ctx, base)
    model = build_model(ctx.config.model, len(base), ctx.config.seed)
    config = ctx.config.pretrain
    work = ctx.private / "work"
    curve = public_training.pretrain(config, model, train, validation, work, ctx.config.seed, load.progress(ctx))
    return _trained(ctx, model, curve)


def adapt(ctx: StageContext) -> results.Adaptation:
    """Rows for the new words, then a little more public training, mostly on text that holds them."""
    config, base = ctx.config.adapt, load.vocabulary(ctx, "ingest_public")
    grown = load.vocabulary(ctx, "build_vocabulary")
    train, validation = load.public_streams(ctx, grown)
    model = extend.grow(load.model(ctx, "pretrain"), base, grown, public=train)
    richer = new_words.enrich(train, len(base), config.new_word_share, config.most_copies)
    words = ctx.config.pretrain.sequence_words
    before = new_words.new_word_loss(model, validation, len(base), words)
    work = ctx.private / "work"
    curve = extend.adapt(config, model, richer.stream, validation, words, ctx.config.seed, work, load.progress(ctx))
    return results.Adaptation(
        **dict(_trained(ctx, model, curve)),
        new_words=len(grown) - len(base),
        new_words_in_text=richer.words,
        new_word_sentences=richer.sentences,
        copies=richer.copies,
        new_word_loss_before=before,
        new_word_loss_after=new_words.new_word_loss(model, validation, len(base), words),
    )


def plan(ctx: StageContext) -> results.Plan:
    """The mechanism, and what its guarantee will be at worst, before any device takes part."""
    mechanism = ctx.config.mechanism
    # The figure of the report, not the exact one: what a plan says may be shown.
    devices = ctx.run.result("ingest_private")["devices_by_split"]["train"]
    encoding = plan_encoding(mechanism, load.most_parameters(ctx.config), load.most_devices(ctx))
    planned = planner.plan(mechanism, devices, encoding)
    mechanism_files.save(mechanisms.build(mechanism), ctx.public / load.MECHANISM)
    if ctx.config.planning is not None:
        proposal = plan_proposal.propose(mechanism, ctx.config.planning, _tell)
        swept = plan_sweep.sweeps(ctx.config.planning, proposal.chosen, proposal.noise_to_signal, _tell)
        plan_files.write(proposal, swept, ctx.config.planning, ctx.public)
    return results.Plan(
        feasible=planned.feasible,
        reasons=planned.reasons,
        rounds_below_goal=planned.rounds_below_goal,
        sensitivity_squared=planned.guarantee.sensitivity_squared,
        rho=planned.guarantee.rho,
        delta=mechanism.delta,
        epsilon=planned.guarantee.epsilon[mechanism.delta],
        alternatives=[vars(row) for row in planned.alternatives],
    )


def fine_tune(ctx: StageContext) -> results.FineTune:
    """DP-FTRL on train devices and synthetic canary devices; accounted from what happened."""
    config = ctx.config
    planned = ctx.run.result("plan")
    if not planned["feasible"]:
        raise ValueError(f"mechanism: this plan cannot be carried out: {'; '.join(planned['reasons'])}")
    trained = fine_tuning.train_together(ctx)
    done, mechanism = trained.done, trained.mechanism
    canaries.save(trained.planted, ctx.public / "canaries.json")
    noise_trace.save(done, trained.probe, ctx.private / noise_trace.FILE)
    export.save_model(trained.model, ctx.public / "model.safetensors")
    reached = accounting.from_records(config.mechanism, done.observed, (), mechanism, done.encoding)
    delta = config.mechanism.delta
    return results.FineTune(
        rounds=done.rounds,
        precision=config.runtime.precision,
        report_goal=config.mechanism.report_goal,
        sensitivity_squared=reached.sensitivity_squared,
        rho=reached.rho,
        mu=reached.mu,
        delta=delta,
        epsilon=reached.epsilon[delta],
        epsilon_pld=reached.epsilon_pld[delta],
        accountants_agree=reached.agree,
        accounting_methods=reached.methods,
        norm_inflation=reached.norm_inflation,
        secagg=None if done.encoding is None else asdict(done.encoding),
        amplified=_amplified(reached.amplified, delta),
        **told(done.observed),
        synthetic_participations=done.synthetic_participations,
        validation_recall_before=done.curve[0].validation_recall,
        validation_recall_after=done.curve[-1].validation_recall,
        curve=[{"step": point.round, **point.model_dump(exclude={"round"})} for point in done.curve],
        spend=spends.training(reached, delta, f"{config.mechanism.kind}, from participation records"),
        headline={"rho": reached.rho, "epsilon": reached.epsilon[delta], "delta": delta},
    )


def _tell(message: str) -> None:
    _log.info("plan: %s", message)


def _trained(ctx: StageContext, model: KeyboardLM, curve: public_training.TrainingCurve) -> results.Training:
    export.save_model(model, ctx.public / "model.safetensors")
    shutil.rmtree(ctx.private / "work", ignore_errors=True)
    last = curve.points[-1]
    return results.Training(
        parameters=parameter_count(model),
        steps=last.step,
        validation_loss=last.validation_loss,
        validation_top1=last.validation_top1,
        curve=[point.model_dump() for point in curve.points],
    )


def _amplified(sampled: Amplified | None, delta: float) -> results.Amplified | None:
    if sampled is None:
        return None
    return results.Amplified(
        sampling=sampled.sampling,
        sampling_rate=sampled.sampling_rate,
        epsilon=sampled.epsilon[delta],
        epsilon_second=None if sampled.epsilon_second is None else sampled.epsilon_second[delta],
        methods=sampled.methods,
        adjacency=sampled.adjacency,
        assumption=sampled.assumption,
    )
