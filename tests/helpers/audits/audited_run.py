"""A small run of the round loop and all audits of its noise, as the audit stage makes them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from evaluation.audit import whitening
from evaluation.audit.directions import Directions
from evaluation.audit.matched_filter import Claim
from evaluation.audit.noise import NoiseAudit, Recomputation, Trace, noise_audit
from evaluation.audit.released.replay import Optimiser, RoundRecords
from evaluation.config import ALPHA
from federated import mechanisms
from federated.accounting.guarantees import guarantee_of
from federated.config.training import ADAPTIVITY, MOMENTUM, SECOND_MOMENTUM
from federated.participation.records import load_records
from federated.rounds import server
from federated.rounds.rule import RoundRule
from federated.rounds.state import RECORDS
from federated.train import FineTuneResult, TrainingData
from pipeline.releases import audit_trace
from pipeline.releases.audit_trace import cohorts_row, trained_row
from pipeline.releases.audit_trace import models as models_of
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from tests.helpers.launches.small_run import WORDS, Launch, run


def model_at_start() -> KeyboardLM:
    """1,302 weights."""
    return build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=True), WORDS + 26, seed=2)


def planted(model: KeyboardLM, count: int = 64, seed: int = 0) -> Directions:
    """Direction canaries for a model."""
    return Directions(tuple(part.numel() for part in model.parameters()), count, seed)


def audited(
    launch: Launch,
    directory: Path,
    train: Callable[..., tuple[np.ndarray, FineTuneResult]] = run,
    model: Callable[[], KeyboardLM] = model_at_start,
    count: int = 64,
    alpha: float = ALPHA,
) -> NoiseAudit:
    """Train by ``train``, which may hold a bug, and audit the run by code without one."""
    start = model()
    directions = planted(start, count, launch.seed)
    final_P, done = train(launch, directory, probe=directions, model=model())
    assert done.probe is not None
    start_P = server.flat_weights(start)
    rule = RoundRule(launch.mechanism, launch.seed, launch.key)
    data = TrainingData(launch.devices, launch.synthetic_D, launch.devices)
    encoding = rule.encoding(len(start_P), data.people, len(data.devices) - data.people)
    models = models_of(directions, start_P, final_P)
    step = launch.server
    optimiser = Optimiser(
        step.optimizer,
        step.learning_rate,
        MOMENTUM,
        SECOND_MOMENTUM,
        ADAPTIVITY,
        float(launch.mechanism.report_goal),
    )
    seen = RoundRecords(**vars(done.probe.witness))
    recorded = dict(load_records(directory / RECORDS, done.rounds).cohorts)
    rows = (
        cohorts_row(rule, data, recorded, done.rounds),
        trained_row(rule, launch.device, data, recorded, seen),
    )
    trace = Trace(done.probe.projections_TN, done.probe.joined_TN, seen)
    return noise_audit(
        trace,
        directions,
        claim(rule, done.rounds, trace.joined_TN),
        Recomputation(
            models,
            optimiser,
            audit_trace.noise_along(rule, directions, done.rounds),
            0.0 if encoding is None else encoding.rounding_std,
            launch.mechanism.clipping == "per-layer",
            rows,
        ),
        alpha,
    )


def claim(rule: RoundRule, rounds: int, joined_TN: np.ndarray) -> Claim:
    """What the accountant says of the limits that were enforced."""
    whitener_TT = mechanisms.whitener(rule.mechanism, rounds, whitening.of_tree, whitening.of_coefficients)
    limits = rule.eager_limits(rounds, int(joined_TN.sum(axis=0).max(initial=1)))
    promised = guarantee_of(rule.mechanism, rounds, *limits, (rule.config.delta,))
    return Claim(whitener_TT, rule.privatizer.noise_multiplier, promised.mu)


def failed(found: NoiseAudit) -> dict[str, str]:
    """Rows that speak against the claim, with their reasons."""
    return {row.type: row.reason for row in found.rows if not row.passed}


def with_optimiser(launch: Launch, kind: str) -> Launch:
    """The same launch with another optimiser on the server."""
    return replace(launch, server=launch.server.model_copy(update={"optimizer": kind}))
