"""Inputs of stage ``audit``: a finished training, and public text for a twin.

The stage opens them once, before it attacks a model. All later steps take this value, and open no file.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evaluation.audit import canaries
from evaluation.audit.canaries import CanarySet
from evaluation.audit.directions import Directions
from evaluation.audit.noise import Trace
from federated.mechanisms import Mechanism
from federated.participation.records import load_records
from federated.rounds.state import RECORDS
from federated.train import TrainingData
from pipeline.releases import audit_trace
from pipeline.run import artifacts
from pipeline.run.stage import StageContext, stage_key
from pipeline.stages.training.fine_tune_inputs import training_data
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.vocabulary import TokenStream, Vocabulary

_TRAINING = "fine_tune"


@dataclass(frozen=True)
class TwinInputs:
    """Inputs of a twin's training. None of them is private.

    Attributes:
      text: public train text in ids of the launch's vocabulary.
      start: the network that the launch's first round began with.
      mechanism: the mechanism of the launch's noise.
      devices: number of the launch's training devices, rounded down.
    """

    text: TokenStream
    start: KeyboardLM
    mechanism: Mechanism
    devices: int


@dataclass(frozen=True)
class AuditInputs:
    """A finished training, and the inputs of its twin. Private.

    Attributes:
      words: the launch's vocabulary.
      start: the network that the first round began with.
      network: the network after the last round.
      mechanism: the mechanism of the noise.
      key: the key of the noise.
      rounds: number of rounds.
      canaries: all canaries of the launch file, made again from public text.
      planted: canaries that are planted in ``network``, as training saved them.
      joined_TD: the rounds of their devices.
      trace: records of the rounds along ``directions``.
      directions: direction canaries.
      data: training devices, followed by those of the canaries.
      cohorts_T: participation records: the devices of each round, by their index in ``data``.
      twin: inputs of the twin; None if no canary is planted in one.
    """

    words: Vocabulary
    start: KeyboardLM
    network: KeyboardLM
    mechanism: Mechanism
    key: bytes
    rounds: int
    canaries: CanarySet
    planted: CanarySet
    joined_TD: np.ndarray
    trace: Trace
    directions: Directions
    data: TrainingData
    cohorts_T: Mapping[int, np.ndarray]
    twin: TwinInputs | None


def open_inputs(ctx: StageContext) -> AuditInputs:
    """Open all inputs of the audit of a launch's training.

    Raises:
      OSError: a private file of training is not on this machine.
      StageInputMissing: an artifact or the store is unfinished, damaged or gone.
    """
    config, run, words = ctx.config, ctx.run, artifacts.vocabulary(ctx, "build_vocabulary")
    planted = canaries.load(run.input(_TRAINING, "canaries.json"))
    joined_TD, trace, directions = audit_trace.load(run.private(_TRAINING) / audit_trace.FILE)
    start, mechanism, twin = artifacts.training_start(ctx), artifacts.mechanism(run), None
    public, _ = artifacts.public_streams(ctx, words)
    if config.audit.on_twin:
        devices = run.result("ingest_private")["devices_by_split"]["train"]
        twin = TwinInputs(public, start, mechanism, devices)
    return AuditInputs(
        words=words,
        start=start,
        network=artifacts.model(ctx, _TRAINING),
        mechanism=mechanism,
        key=stage_key(config, run, _TRAINING),
        rounds=run.result(_TRAINING)["rounds"],
        canaries=canaries.make(config.audit, words, public, config.seed),
        planted=planted,
        joined_TD=joined_TD,
        trace=trace,
        directions=directions,
        data=training_data(ctx, words, planted),
        cohorts_T=dict(load_records(run.private(_TRAINING) / "rounds" / RECORDS, len(trace.seen.rows_T)).cohorts),
        twin=twin,
    )
