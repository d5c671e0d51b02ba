"""A small run of the round loop under its watch."""

from pathlib import Path

import numpy as np

from evaluation.audit.watch import Stopped, Watch
from federated.rounds.rule import RoundRule
from federated.train import TrainingData
from pipeline.releases import audit_trace
from tests.helpers.audits.audited_run import model_at_start, planted
from tests.helpers.launches.small_run import Launch, run


def watch_of(launch: Launch, count: int = 64, stress_D: np.ndarray | None = None) -> Watch:
    """The watch as the stage makes it."""
    rule = RoundRule(launch.mechanism, launch.seed, launch.key)
    data = TrainingData(launch.devices, launch.synthetic_D, launch.devices, stress_D)
    return audit_trace.watch(rule, planted(model_at_start(), count, launch.seed), data, launch.key)


def watched(launch: Launch, directory: Path, count: int = 64, **named: object) -> Stopped | None:
    """Train, and return the evidence that stopped the run; None if it ended."""
    watch = watch_of(launch, count, named.get("stress_D"))
    try:
        run(launch, directory, probe=watch.directions, model=model_at_start(), watch=watch, **named)
    except Stopped as stopped:
        return stopped
    return None
