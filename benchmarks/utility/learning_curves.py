"""Accuracy by round of a real federated run: from public text or from scratch, tree noise or a BLT's, at equal rho.

OMP_NUM_THREADS=1 .venv/stages/bin/python -m benchmarks.utility.learning_curves --users USERS.parquet
    --public PUBLIC.parquet --work FOLDER [--arms NAME ...] [--draw]

SIMULATED REPORT GOAL: NOT A PRIVATE RUN. Rounds of 200 devices get the noise of rounds of 6,500: the noise multiplier
is scaled down by 200 / 6,500, which protects none of them; rho is that of the large launch, with this many rounds.
As in Xu et al. 2023, figure 3, and McMahan et al. 2024, figure 7. USERS has ``client_id, text, locale, ts``, PUBLIC
has ``text``.

A killed run goes on from FOLDER; ``--draw`` only writes results of the points that are there. Rates and clip norm
were found on pseudo-users made of other public text: no choice here may cost private data.
"""

import argparse
import copy
import logging
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from benchmarks.utility import curves_setting, curves_table
from benchmarks.utility.curves_setting import SEED, Setting, hits_by_device, known_words, start_point
from federated.accounting import guarantees as accounting
from federated.config.mechanism import BltMechanism, MechanismConfig, TreeMechanism
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.planning import costs as plan_costs
from federated.rounds.rule import RoundRule
from federated.train import TrainingData, Workplace, fine_tune
from pretrain.model import parameter_count
from pretrain.randomness.noise import seeded_key

ROUNDS, REPORT_GOAL, SIMULATED_GOAL = 40, 200, 6_500
MIN_SEP, BUFFERS, DELTA = 25, 3, 1e-10
TREE_NOISE = 7.0  # per clip norm, as published; the BLT's follows from equal rho
CLIP, MOMENTUM = 0.5, 0.9
LOCAL = LocalTrainingConfig(learning_rate=0.5, batch_sentences=4, sequence_words=20, max_words=100)
RUNTIME = RuntimeConfig(chunk_devices=2, evaluate_every_rounds=5, checkpoint_every_rounds=5)
_NEXT_TO_NONE = 1e-6  # a mechanism has to have some noise
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Arm:
    """One curve."""

    name: str
    noise: Literal["tree", "blt", "none"]
    start: Literal["pretrained", "scratch"]
    server_rate: float
    noise_times: float = 1.0


ARMS = (
    Arm("tree, pretrained", "tree", "pretrained", 1.0),
    Arm("BLT, pretrained", "blt", "pretrained", 1.0),
    Arm("tree, from scratch", "tree", "scratch", 3.0),
    Arm("no noise, pretrained", "none", "pretrained", 1.0),
    Arm("BLT, from scratch", "blt", "scratch", 3.0),
    # Towards where noise is what limits.
    Arm("tree, noise x4", "tree", "pretrained", 1.0, 4.0),
    Arm("BLT, noise x4", "blt", "pretrained", 1.0, 4.0),
    Arm("tree, noise x16", "tree", "pretrained", 1.0, 16.0),
    Arm("BLT, noise x16", "blt", "pretrained", 1.0, 16.0),
)


def main() -> None:
    """Train the arms one after the other and write what is known after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=Path, required=True)
    parser.add_argument("--public", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="private: text of devices and checkpoints")
    parser.add_argument("--arms", nargs="+", choices=[arm.name for arm in ARMS], default=[arm.name for arm in ARMS])
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--results", type=Path, default=Path(__file__).parents[1] / "results")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    setting = curves_setting.make(given.users, given.public, given.work)
    for arm in ARMS:
        if arm.name in given.arms and not given.draw:
            train(arm, setting, given.work)
    words_D = [known_words(setting.final.select(np.array([device]))) for device in range(len(setting.final))]
    start_D = curves_table.read(given.work, "start") or {
        "final_hits_D": hits_by_device(setting.pretrained, setting.final, LOCAL.sequence_words)
    }
    curves_table.save(given.work, "start", start_D)
    found = [curves_table.read(given.work, arm.name) for arm in ARMS]
    curves_table.write(about(setting), found, start_D["final_hits_D"], words_D, given.results)


def mechanism(noise: str, times: float = 1.0) -> MechanismConfig:
    """Mechanism of an arm in the large launch; a BLT gets the noise multiplier at which it costs what a tree does."""
    most = plan_costs.most_participations(ROUNDS, MIN_SEP)
    shared = {
        "clip_norm": CLIP,
        "rounds": ROUNDS,
        "report_goal": SIMULATED_GOAL,
        "min_sep": MIN_SEP,
        "max_participations": most,
        "delta": DELTA,
        "randomness": "seeded",
    }
    if noise != "blt":
        multiplier = TREE_NOISE * times if noise == "tree" else _NEXT_TO_NONE
        return TreeMechanism(kind="tree", noise_multiplier=multiplier, **shared)
    found = plan_costs.blt(ROUNDS, MIN_SEP, most, BUFFERS)
    at_one = BltMechanism(kind="blt", noise_multiplier=1.0, **found.parameters, **shared)
    # rho falls with the square of the noise multiplier; rounded up, so that the BLT never has the larger rho.
    factor = (worth(at_one).rho / worth(mechanism("tree", times)).rho) ** 0.5
    return at_one.model_copy(update={"noise_multiplier": plan_costs.round_up(factor, 4)})


def worth(large: MechanismConfig) -> accounting.Guarantee:
    """What a large launch guarantees by its limits."""
    return accounting.guarantee(large, ROUNDS, MIN_SEP, large.max_participations, (DELTA,))


def scaled_down(large: MechanismConfig) -> MechanismConfig:
    """The same noise on the mean of a small cohort's updates, which guarantees nothing."""
    multiplier = large.noise_multiplier * REPORT_GOAL / SIMULATED_GOAL
    return large.model_copy(update={"report_goal": REPORT_GOAL, "noise_multiplier": multiplier})


def train(arm: Arm, setting: Setting, work: Path) -> None:
    """Run one arm, go on with it, or find it done; points go to the work folder as they are measured."""
    large = mechanism(arm.noise, arm.noise_times)
    config = scaled_down(large)
    model = copy.deepcopy(setting.pretrained if arm.start == "pretrained" else setting.scratch)
    told = asdict(arm) | {"mechanism": config.model_dump(mode="json"), "noise_share": REPORT_GOAL / SIMULATED_GOAL}
    if arm.noise != "none":
        promised = worth(large)
        told |= {"rho": promised.rho, "epsilon": promised.epsilon[DELTA]}
        told |= {"sensitivity_squared": promised.sensitivity_squared}
        told |= {"noise_to_signal": plan_costs.noise_to_signal(config)}
    points = curves_table.read(work, arm.name).get("points")
    points = points or [start_point(model, setting.curve, LOCAL.sequence_words)]

    def on_round(message: dict[str, float]) -> None:
        if "validation_top1" in message:
            kept = [point for point in points if point["round"] < message["round"]]
            points[:] = [*kept, {name: message[name] for name in curves_table.POINT}]
            curves_table.save(work, arm.name, told | {"points": points})
        _log.info("%s %s", arm.name, {name: round(value, 5) for name, value in message.items()})

    done = fine_tune(
        model,
        TrainingData(setting.devices, np.zeros(len(setting.devices), dtype=bool), setting.curve),
        RoundRule(config, SEED, seeded_key(SEED)),
        LOCAL,
        ServerConfig(learning_rate=arm.server_rate, momentum=MOMENTUM),
        Workplace(work / "arms" / re.sub(r"\W+", "-", arm.name), RUNTIME, threads=1, on_round=on_round),
    )
    told |= {"points": [point.model_dump(include=set(curves_table.POINT)) for point in done.curve]}
    if arm.noise != "none":
        # As the large launch's records would be worth; the run's own rho is what its small noise is worth.
        seen, real = accounting.from_records(large, done.observed), accounting.from_records(config, done.observed)
        told |= {"rho_from_records": seen.rho, "rho_of_this_run": real.rho}
        told |= {"min_sep": seen.min_sep, "max_participations": seen.max_participations}
    curves_table.save(
        work, arm.name, told | {"final_hits_D": hits_by_device(model, setting.final, LOCAL.sequence_words)}
    )


def about(setting: Setting) -> dict[str, object]:
    """What all arms share."""
    return {
        "label": "simulated report goal: not a private run",
        "rounds": ROUNDS,
        "report_goal": REPORT_GOAL,
        "simulated_report_goal": SIMULATED_GOAL,
        "min_sep": MIN_SEP,
        "max_participations": plan_costs.most_participations(ROUNDS, MIN_SEP),
        "delta": DELTA,
        "seed": SEED,
        "vocabulary": len(setting.vocabulary),
        "parameters": parameter_count(setting.scratch),
        "train_devices": len(setting.devices),
        "curve_devices": len(setting.curve),
        "curve_words": known_words(setting.curve),
        "final_devices": len(setting.final),
        "final_words": known_words(setting.final),
        "coverage": setting.coverage,
        "public_words": setting.public_words,
        "pretraining_loss": setting.final_loss,
        "pretraining_top1": setting.final_top1,
        "local_training": LOCAL.model_dump(mode="json"),
        "clip_norm": CLIP,
        "momentum": MOMENTUM,
    }


if __name__ == "__main__":
    main()
