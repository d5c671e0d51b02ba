"""The rounds of a launch: one definition, run by this process, by workers that it starts, or by workers of several
machines whose agents start them (``hosted.workers``). As a program this module is one of those workers.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from evaluation.audit import canaries
from evaluation.audit.directions import Directions
from evaluation.config import STRESS_RATE
from federated.mechanisms import Mechanism
from federated.rounds.rule import RoundRule
from federated.train import FineTuneResult, TrainingData, Workplace
from federated.train import fine_tune as train_rounds
from federated.workers import ALONE, Worker
from pipeline.bookkeeping import PLANTED
from pipeline.hosts import fence, gang
from pipeline.stage import StageContext
from pipeline.stages import artifacts
from pipeline.stages.hosted.workers import main, share_out
from pipeline.stages.training import audit_trace
from pretrain import corpus
from pretrain.files import PRIVATE
from pretrain.model import KeyboardLM
from pretrain.vocabulary import TokenStream

# What training reads of the public half: fetched by the stage, once, before workers read it.
_INPUTS = (("build_vocabulary", "vocabulary.json"), ("ingest_public", "corpus"), ("adapt", "model.safetensors"))
_STAGE = "fine_tune"


@dataclass(frozen=True)
class Trained:
    """The trained model and what the stage saves with it.

    Attributes:
      model: after the last round.
      mechanism: that made the noise.
      planted: the canary devices among the others, as many as ``audit.in_launch`` asks for.
      probe: direction canaries.
      done: of ``federated.train``; private parts included.
    """

    model: KeyboardLM
    mechanism: Mechanism
    planted: canaries.CanarySet
    probe: Directions
    done: FineTuneResult


def train(ctx: StageContext, process: Worker = ALONE, role: fence.Role = "attempt") -> Trained:
    """Train the rounds that are still to be done; with none left, the result as the last checkpoint has it.

    Args:
      process: which of the workers this is; every one calls this with the same run folder.
      role: ``gang`` for workers that an attempt started.

    Raises:
      StaleAttempt: a newer attempt has begun; no checkpoint was written since.
    """
    config = ctx.config
    planted = planted_in(ctx)
    model, mechanism = artifacts.model(ctx, "adapt"), artifacts.mechanism(ctx.run)
    probe = audit_trace.directions(model, config.audit.directions, ctx.noise_key)
    data = training_data(ctx, planted)
    rule = RoundRule(config.mechanism, config.seed, ctx.noise_key, mechanism)
    place = Workplace(
        ctx.private / "rounds",
        config.runtime,
        process=process,
        writing=partial(fence.standing, ctx.private, role, ctx.attempt) if ctx.attempt else nullcontext,
        on_round=artifacts.progress(ctx),
    )
    done = train_rounds(model, data, rule, config.local_training, config.server, place, probe)
    return Trained(model, mechanism, planted, probe, done)


def planted_in(ctx: StageContext) -> canaries.CanarySet:
    """The canaries that the launched model is trained on, as the stage noted them for its workers or made anew."""
    config, words, noted = ctx.config, artifacts.vocabulary(ctx, "build_vocabulary"), ctx.private / PLANTED
    if noted.is_file() and (planted := canaries.load(noted)).vocabulary_digest == words.digest:
        return planted
    filler = artifacts.public_streams(ctx, words)[0]
    return canaries.make(config.audit, words, filler, config.seed).of(config.audit.launched)


def training_data(ctx: StageContext, planted: canaries.CanarySet) -> TrainingData:
    """Whose text is trained on: the devices of the train split, then those of the canaries."""
    words, store = artifacts.vocabulary(ctx, "build_vocabulary"), artifacts.store(ctx)
    devices = store.encode(words, "train", planted.devices)
    real = len(devices) - len(planted.devices)
    return TrainingData(
        devices,
        np.arange(len(devices)) >= real,
        watched_on(ctx),
        np.concatenate([np.zeros(real, dtype=bool), planted.stress_D]),
        STRESS_RATE,
    )


def watched_on(ctx: StageContext) -> TokenStream:
    """Text that training is watched on and that trains nothing: of validation devices, or public under a budget.

    Guarantee: where the launch has a budget for evaluation, validation devices are not read.
    """
    words = artifacts.vocabulary(ctx, "build_vocabulary")
    if ctx.config.evaluation is not None:
        return artifacts.encode(corpus.open_corpus(ctx.run.input("ingest_public", "corpus")).validation, words)
    return artifacts.store(ctx).encode(words, "validation")


def train_together(ctx: StageContext) -> Trained:
    """``train`` by as many processes as ``runtime.workers`` and ``runtime.hosts`` say; the bits are the same for any.

    Workers leave their checkpoints in the run's folder; what they have done is then read from the last one.

    Raises:
      PermanentError: what a worker met and would meet again.
      OSError: a worker or a host was lost; the stage, run again, goes on from the last checkpoint.
    """
    runtime = ctx.config.runtime
    if runtime.workers * runtime.hosts > 1:
        with ctx.before_devices():
            gang.require_hosts(runtime.hosts, ctx.settings.hosts)
        for stage, name in _INPUTS:
            ctx.run.input(stage, name)
        artifacts.mechanism(ctx.run)
        # Once for all of them: public text is not read by each, and the devices' tokens are there to be mapped.
        planted = planted_in(ctx)
        canaries.save(planted, ctx.private / PLANTED)
        (ctx.private / PLANTED).chmod(PRIVATE)
        training_data(ctx, planted)
        share_out(ctx)
    done = train(ctx)
    (ctx.private / PLANTED).unlink(missing_ok=True)
    return done


if __name__ == "__main__":
    main(_STAGE, partial(train, role="gang"))
