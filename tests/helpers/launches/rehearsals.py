"""A verdict as a rehearsal writes it, made up, for tests of whoever reads it."""

import json
from pathlib import Path

from federated.config.planning import SmallLaunch
from federated.planning.rehearsal import own_rho
from federated.planning.verdict import Outcome, Verdict, as_json, judge, run_of
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.preflight import rehearsal_verdict
from pretrain.files import write_text

PLANNING = {"population_estimate": 60, "max_report_goal": 10, "round_minutes": 12.0, "target_rho": 0.5}


def written(config: LaunchConfig, runs_dir: Path, gain: float, headroom: float = 0.05, better: float = -0.1) -> Verdict:
    """Write the verdict of a rehearsal in which the file's own run gained so much, and half its rate ``better``."""
    mechanism, counts = config.mechanism, config.counts
    rho, shape = own_rho(mechanism), (mechanism.rounds, mechanism.report_goal)
    slower = 0.5 * config.server.learning_rate
    text = f"server:\n  learning_rate: {slower!r}"
    outcomes = (
        Outcome(rho, 0.0, *shape, 0.1, "network", gain, 0.001, run_of(mechanism, config.server.learning_rate, counts)),
        Outcome(rho, 0.0, *shape, 0.1, "network", better, 0.001, run_of(mechanism, slower, counts), yaml=text),
        Outcome(0.0, 0.5, 0, 0, 0.0, "counts", 0.03, 0.001, {}),
    )
    inputs = rehearsal_verdict.inputs_digest(config, config.planning, SmallLaunch())
    made = Verdict("inconclusive", "", None, outcomes, 0.1, 0.5, 60, config.policy.min_top1_gain, 60, 900, (), inputs)
    verdict = judge(made, headroom, 0.002)
    path = runs_dir / launch_id(config) / "public" / rehearsal_verdict.NAME / rehearsal_verdict.FILE
    write_text(path, json.dumps(as_json(verdict)))
    return verdict
