"""Rehearsal verdicts on a launch file, which decide whether it may spend: read by the plan and before every spend.

A verdict holds for every file that agrees with it in what a rehearsal depends on, so blocks that were pasted from it
do not ask for another one. Verdicts stand in ``runs/*/public/rehearsal/verdict.json``.
"""

import hashlib
import json
import math
from pathlib import Path

from federated.config.planning import PlanningConfig, SmallLaunch, SmallTrade
from federated.planning.verdict import Outcome, Verdict, from_json, refusal, run_of
from pipeline.launch.config import LaunchConfig
from pipeline.releases.release import asked_for
from pipeline.releases.training import TRAINING

NAME, FILE = "rehearsal", "verdict.json"
# Another way to rehearse is another verdict.
_RULES = 4
# Of CPU: for a word and a weight in training, and for counts and judging
# (benchmarks/results/2026-11-22-planner-verdicts.md).
_SECONDS, _SCORING = 5e-10, 120.0


def rho_to_spend(config: LaunchConfig, planning: PlanningConfig) -> float:
    """Most rho that a launch may cost: the planned rho, and never more than its policy allows."""
    return min(planning.target_rho, config.policy.max_rho)


def inputs_digest(config: LaunchConfig, planning: PlanningConfig, limits: SmallTrade) -> str:
    """SHA-256 over what a verdict depends on, but for the runs that it compares."""
    names = ("locale", "seed", "public_text", "vocabulary", "model", "pretrain", "local_training")
    stated = config.model_dump(mode="json")
    content = {
        **{name: stated[name] for name in names},
        "planning": planning.model_dump(mode="json"),
        "server": config.server.model_dump(mode="json", exclude={"learning_rate"}),
        "max_words_per_device": config.private_text.max_words_per_device,
        "test_fraction": config.private_text.test_fraction,
        "rho": rho_to_spend(config, planning),
        "min_top1_gain": config.policy.min_top1_gain,
        "limits": repr(limits),
        "rules": _RULES,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def find(
    config: LaunchConfig, runs_dir: Path, planning: PlanningConfig | None = None, limits: SmallTrade | None = None
) -> Verdict | None:
    """The newest verdict whose inputs are this file's; None if it was not rehearsed here.

    Args:
      planning: in place of the file's own block.

    Raises:
      ValueError: a damaged file, which may hold this file's verdict.
    """
    planning = planning or config.planning
    if planning is None:
        return None
    digest = inputs_digest(config, planning, limits or SmallTrade())
    paths = runs_dir.glob(f"*/public/{NAME}/{FILE}")
    for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["inputs"] == digest:
                return from_json(content)
        except (ValueError, KeyError, TypeError) as error:
            # It may have said no: nothing is spent as if it had not been there.
            raise ValueError(
                f"{path}: not a verdict of a rehearsal; delete it and run 'tacit rehearse' again"
            ) from error
    return None


def minutes(config: LaunchConfig, planning: PlanningConfig) -> int:
    """CPU minutes that a rehearsal takes, pretraining apart: a rough figure from words and weights."""
    small, limits = SmallLaunch(), SmallTrade()
    trials = len(small.server_learning_rates) + 1 + len(small.noise_to_signal)
    goal = min(planning.max_report_goal, limits.most_goal)
    rounds = min(config.mechanism.rounds, limits.most_rounds)
    joins = trials * small.rounds * small.report_goal + (len(limits.goals) + len(limits.shares)) * rounds * goal
    words = min(config.local_training.max_words, limits.median_words) * config.local_training.epochs
    size, embedding, hidden = config.vocabulary.base_size, config.model.embedding_dim, config.model.hidden_dim
    weights = size * embedding * (1 if config.model.tied else 2) + 7 * embedding * hidden
    return max(1, round((joins * words * weights * _SECONDS + _SCORING) / 60))


def outcome_of_file(verdict: Verdict, config: LaunchConfig) -> Outcome | None:
    """Rehearsed outcome of this file's own run; None if it states another one."""
    if not TRAINING.asked(config):
        alone = [one for one in verdict.outcomes if not one.gradient_rho and one.ships == config.ships]
        counted = asked_for(config.counts).rho
        return next((one for one in alone if math.isclose(one.counts_rho, counted, rel_tol=1e-3)), None)
    return verdict.of(run_of(config.mechanism, config.server.learning_rate, config.counts))


def in_words(verdict: Verdict, outcome: Outcome) -> str:
    """Rehearsed outcome of one run, in a sentence for a record."""
    if verdict.answer == "inconclusive":
        return verdict.sentence
    return (
        f"Rehearsed on {verdict.pseudo_users:,} pseudo-users of public text: {100 * outcome.gain:+.2f} points "
        f"(± {200 * outcome.error:.2f}) of top-1 recall for rho {outcome.rho:.3g}."
    )


def require_worth(config: LaunchConfig, runs_dir: Path) -> tuple[Verdict, Outcome] | None:
    """See that a rehearsal of exactly this run, where there is one, found that it pays; what it found, or None.

    Nothing overrides it but another launch file: a smaller ``policy.min_top1_gain`` or a larger ``target_rho`` are
    goals that reviewers see in the file and readers in the disclosure, and a flag would be neither.

    Raises:
      ValueError: it does not pay.
    """
    verdict = find(config, runs_dir)
    outcome = None if verdict is None else outcome_of_file(verdict, config)
    if verdict is None or outcome is None:
        return None
    reason = refusal(verdict, outcome)
    if reason is not None:
        raise ValueError(
            f"planning: the rehearsal of exactly this run says no. {reason} Change what the file asks for, and "
            "'tacit plan FILE' shows every split that was rehearsed"
        )
    return verdict, outcome
