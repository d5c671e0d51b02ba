"""The audit of a small run's release: chosen rounds made again, bits and clip norms."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from evaluation.audit.noise import Trace
from evaluation.audit.released.replay import RoundRecords
from evaluation.audit.verdict import Verdict
from federated.participation.records import load_records
from federated.rounds.rule import RoundRule
from federated.rounds.state import RECORDS
from federated.train import FineTuneResult
from pipeline.releases.audit_trace import TrainingRun, verdicts
from tests.helpers.audits.audited_run import model_at_start, planted
from tests.helpers.launches.small_run import Launch, run

Train = Callable[..., tuple[np.ndarray, FineTuneResult]]


def release_audited(launch: Launch, folder: Path, train: Train = run) -> tuple[Verdict, ...]:
    """Train by ``train``, which may hold a bug, and audit what it released by code without one."""
    directions = planted(model_at_start(), 16, launch.seed)
    final_P, done = train(launch, folder, probe=directions, model=model_at_start())
    assert done.probe is not None
    trace = Trace(done.probe.projections_TN, done.probe.joined_TN, RoundRecords(**vars(done.probe.witness)))
    finished = TrainingRun(
        folder=folder,
        local=launch.device,
        rule=RoundRule(launch.mechanism, launch.seed, launch.key),
        trace=trace,
        directions=directions,
        start=model_at_start(),
        final_P=final_P,
        recorded=dict(load_records(folder / RECORDS, done.rounds).cohorts),
        people=int(np.sum(~launch.synthetic_D)),
        synthetic=int(np.sum(launch.synthetic_D)),
        text=launch.devices.select,
    )
    return verdicts(finished)
