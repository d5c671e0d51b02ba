"""Inputs of stage ``fine_tune``: the first round's network, the mechanism, canaries, and the text of devices.

The stage opens them once, and so does each worker of a gang. All later steps take this value, and open no file.
"""

from dataclasses import dataclass

import numpy as np

from evaluation.audit import canaries
from evaluation.audit.canaries import CanarySet
from evaluation.config import STRESS_RATE
from federated.counts.distil import distil
from federated.devices.store import DeviceStore
from federated.mechanisms import Mechanism
from federated.train import TrainingData
from pipeline.releases.evaluation import EVALUATION
from pipeline.run import artifacts
from pipeline.run.bookkeeping import PLANTED
from pipeline.run.stage import StageContext
from pretrain.files import PRIVATE
from pretrain.model import export
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text import corpus
from pretrain.text.vocabulary import TokenStream, Vocabulary


@dataclass(frozen=True)
class TrainingInputs:
    """Model, mechanism and devices of one training. Private.

    Attributes:
      start: the network that the first round begins with: of public text, or that moved by the launch's counts.
      mechanism: the mechanism of the noise.
      planted: the canary devices, as many as ``audit.in_launch`` asks for.
      data: the devices of the train split, then those of the canaries.
    """

    start: KeyboardLM
    mechanism: Mechanism
    planted: CanarySet
    data: TrainingData


def open_inputs(ctx: StageContext) -> TrainingInputs:
    """Open all inputs of a launch's training; make its canaries and, if counts move it, its start from public text.

    Guarantee: a moved start is post-processing of the released counts. It is made once a launch and kept, so that a
    retry on another machine resumes with the same bits.

    Raises:
      StageInputMissing: an artifact or the store is unfinished, damaged or gone.
    """
    config, words = ctx.config, artifacts.vocabulary(ctx, "build_vocabulary")
    public, _ = artifacts.public_streams(ctx, words)
    moved = ctx.private / artifacts.START
    if config.counts_move_start and not moved.is_file():
        export.save_model(moved_start(ctx, public), moved)
        moved.chmod(PRIVATE)
    planted = canaries.make(config.audit, words, public, config.seed).of(config.audit.launched)
    return _opened(ctx, words, planted)


def open_in_worker(ctx: StageContext) -> TrainingInputs:
    """Open the same inputs in a worker of a gang, with the canaries and the start that its stage saved.

    Guarantee: a worker reads no public train text.

    Raises:
      StageInputMissing: an artifact or the store is unfinished, damaged or gone.
    """
    words = artifacts.vocabulary(ctx, "build_vocabulary")
    return _opened(ctx, words, canaries.load(ctx.private / PLANTED))


def _opened(ctx: StageContext, words: Vocabulary, planted: CanarySet) -> TrainingInputs:
    """Open what a stage and its workers open alike; a start that counts moved is in the stage's private folder."""
    config = ctx.config
    if config.counts_move_start:
        start = export.load_model(ctx.private / artifacts.START, config.model)
    else:
        start = artifacts.model(ctx, "adapt")
    return TrainingInputs(start, artifacts.mechanism(ctx.run), planted, training_data(ctx, words, planted))


def moved_start(ctx: StageContext, public: TokenStream) -> KeyboardLM:
    """The network of public text, moved by the launch's counts.

    Args:
      public: train text in ids of the launch's vocabulary.
    """
    counts = artifacts.counts(ctx)
    assert counts is not None, "asked by a launch with counts"
    words = ctx.config.local_training.sequence_words
    return distil(artifacts.model(ctx, "adapt"), counts, public, words, ctx.config.seed)


def training_data(ctx: StageContext, words: Vocabulary, planted: CanarySet) -> TrainingData:
    """Training data: the devices of the train split, then those of the canaries."""
    store = artifacts.store(ctx)
    devices = store.encode(words, "train", planted.devices)
    real = len(devices) - len(planted.devices)
    return TrainingData(
        devices,
        np.arange(len(devices)) >= real,
        watched_on(ctx, words, store),
        np.concatenate([np.zeros(real, dtype=bool), planted.stress_D]),
        STRESS_RATE,
    )


def watched_on(ctx: StageContext, words: Vocabulary, store: DeviceStore) -> TokenStream:
    """Validation text for training: that of validation devices or, with an evaluation budget, public text.

    Guarantee: if the launch has a budget for evaluation, validation devices are not read.
    """
    if EVALUATION.asked(ctx.config):
        return artifacts.encode(corpus.open_corpus(ctx.run.input("ingest_public", "corpus")).validation, words)
    return store.encode(words, "validation")
