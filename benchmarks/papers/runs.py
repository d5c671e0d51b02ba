"""One simulated federated run of a figure: trained once, kept, and judged on held-out devices.

Noise is seeded and often that of a larger cohort. Nobody is protected; no run here is a launch. Every choice of rate
and clip norm was made on pseudo-users of public text or is a paper's.
"""

import copy
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from pydantic import TypeAdapter

from benchmarks.papers.lab import SEED, Lab
from evaluation.arms.arm import neural
from evaluation.comparison.scoring import score
from evaluation.config import STRESS_RATE
from federated.config.mechanism import MechanismConfig
from federated.config.training import MOMENTUM, LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.rounds import server as server_step
from federated.rounds.rule import RoundRule
from federated.train import FineTuneResult, TrainingData, Workplace, fine_tune
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.randomness.noise import seeded_key
from pretrain.text.batches import find_rows
from pretrain.text.vocabulary import SPECIALS, UNK, join_streams
from pretrain.text.vocabulary import TokenStream as Text

# The frequent words among which a model's ten likeliest are looked for: McMahan et al. 2018, table 3, and 25.
FREQUENT = (10, 25, 50, 100)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Arm:
    """One run: what differs from the figure's usual settings.

    Attributes:
      mechanism: fields of the mechanism block, ``kind`` among them.
      start: ``pretrained`` or ``scratch``.
      momentum: of the server, which no launch file sets.
    """

    name: str
    mechanism: Mapping[str, Any]
    server: Mapping[str, Any] = field(default_factory=dict)
    local: Mapping[str, Any] = field(default_factory=dict)
    start: str = "pretrained"
    momentum: float = MOMENTUM


@dataclass(frozen=True)
class Run:
    """The outcome of an arm.

    Attributes:
      points: of the curve: round, recall in percent, loss, clip norm, estimate of it.
      top1, top3: recall in percent on held-out devices after the last round; unknown words are misses.
      distinct: different words that are suggested first.
      top_ten: n of ``FREQUENT`` -> at how many places 0 to 10 of the ten likeliest words are among the n most frequent.
      joined: rounds of each planted device.
    """

    points: tuple[Mapping[str, float], ...]
    top1: float
    top3: float
    distinct: int
    top_ten: Mapping[int, tuple[int, ...]]
    joined: tuple[int, ...] = ()

    def curve(self, what: str = "recall") -> tuple[list[float], list[float]]:
        """Rounds and values of the curve."""
        return [point["round"] for point in self.points], [point[what] for point in self.points]


def trained(lab: Lab, arm: Arm, after: KeyboardLM | None = None) -> Run:
    """Train an arm, or find it done.

    Args:
      after: a model to go on from instead of the arm's start.
    """
    return trained_model(lab, arm, after)[0]


def each_trained(lab: Lab, arms: Iterable[Arm]) -> dict[str, Run]:
    """Each arm's run by its name."""
    return {arm.name: trained(lab, arm) for arm in arms}


def trained_model(
    lab: Lab, arm: Arm, after: KeyboardLM | None = None, planted: Text | None = None
) -> tuple[Run, KeyboardLM]:
    """The same with the last model.

    Args:
      planted: devices that are always available, outside timer and cap (only with correlated noise).
    """
    model = copy.deepcopy(after or (lab.scratch if arm.start == "scratch" else lab.pretrained))
    blocks = config, local, server = configs(lab, arm)
    place = lab.work / "runs" / _digest(lab, [*blocks, arm.momentum], model, planted)
    kept, every = place / "run.json", max(1, config.rounds // 6)
    if kept.exists():
        model.load_state_dict(torch.load(place / "model.pt", weights_only=True))
        return _read(kept), model
    runtime = RuntimeConfig(
        device=lab.device,
        chunk_devices=16 if lab.device == "cpu" else 256,
        evaluate_every_rounds=every,
        checkpoint_every_rounds=every,
    )
    rule = RoundRule(config, SEED, seeded_key(SEED))
    workplace = Workplace(place / "rounds", runtime, threads=1)
    with mock.patch.object(server_step, "MOMENTUM", arm.momentum):
        done = fine_tune(model, _data(lab, planted), rule, local, server, workplace)
    content = {"arm": arm.name, **_told(done), **_judged(lab, model)}
    torch.save(model.state_dict(), place / "model.pt")
    kept.write_text(json.dumps(content), encoding="utf-8")
    _log.info("%s: top-1 %.2f%%, %d words first", arm.name, content["top1"], content["distinct"])
    return _read(kept), model


def configs(lab: Lab, arm: Arm) -> tuple[MechanismConfig, LocalTrainingConfig, ServerConfig]:
    """The three blocks of an arm, usual settings filled in."""
    goal = arm.mechanism.get("report_goal", lab.size.goal)
    usual: dict[str, Any] = {"clip_norm": 0.3, "rounds": lab.size.rounds, "report_goal": goal, "delta": 1e-6}
    if arm.mechanism["kind"] == "independent":
        usual |= {"population": len(lab.devices), "sampling": "poisson"}
    else:
        rest = min(max(1, len(lab.devices) // goal - 1), usual["rounds"])
        usual |= {"min_sep": rest, "max_participations": -(-usual["rounds"] // rest)}
    # The papers' loss is the cross entropy.
    shape = {"batch_sentences": 8, "sequence_words": 20, "max_words": lab.size.words}
    local = {"learning_rate": 0.5, "loss": 0.0} | shape
    seeded = {"randomness": "seeded"}
    return (
        TypeAdapter(MechanismConfig).validate_python(usual | seeded | dict(arm.mechanism)),
        LocalTrainingConfig.model_validate(local | dict(arm.local)),
        ServerConfig.model_validate({"learning_rate": lab.size.server_rate} | dict(arm.server)),
    )


def _digest(lab: Lab, blocks: Iterable[Any], model: KeyboardLM, planted: Text | None) -> str:
    """Of all that a run and its judgement depend on."""
    settings = [block if isinstance(block, float) else block.model_dump(mode="json") for block in blocks]
    hashed = hashlib.sha256(json.dumps([*settings, lab.size.curve_devices, lab.size.held_out]).encode())
    for value in model.state_dict().values():
        hashed.update(value.numpy().tobytes())
    hashed.update(b"" if planted is None else planted.tokens_N.tobytes())
    return hashed.hexdigest()[:16]


def _data(lab: Lab, planted: Text | None) -> TrainingData:
    real_D = np.zeros(len(lab.devices), dtype=bool)
    if planted is None:
        return TrainingData(lab.devices, real_D, lab.curve)
    planted_D = np.concatenate([real_D, np.ones(len(planted), dtype=bool)])
    return TrainingData(join_streams([lab.devices, planted]), planted_D, lab.curve, planted_D, STRESS_RATE)


def _told(done: FineTuneResult) -> dict[str, Any]:
    points = [
        {
            "round": point.round,
            "recall": 100 * point.validation_recall,
            "loss": point.validation_loss,
            "clip": point.clip_norm,
            "estimate": point.clip_estimate,
        }
        for point in done.curve
    ]
    return {"points": points, "joined": done.synthetic_participations}


def _judged(lab: Lab, model: KeyboardLM) -> dict[str, Any]:
    """Recall and suggestions on held-out devices."""
    scored = score(neural(model), lab.text, lab.text.ids(lab.vocabulary), workers=1)
    recall = {f"top{most}": float(100 * np.mean(scored.rank_P < most)) for most in (1, 3)}
    return {**recall, "distinct": len(set(scored.first_P.tolist())), "top_ten": top_ten(model, lab.curve)}


@torch.no_grad()
def top_ten(model: KeyboardLM, text: Text) -> dict[int, list[int]]:
    """Places by how many of the ten likeliest words are among the most frequent ones; specials are no words."""
    rows, counts = find_rows(text.tokens_N, 20), {most: np.zeros(11, dtype=np.int64) for most in FREQUENT}
    for chunk in np.array_split(np.arange(len(rows)), max(1, len(rows) // 64)):
        inputs_BT, targets_BT = rows.batch(chunk)
        logits_PV = model(inputs_BT)[0][targets_BT > UNK]
        logits_PV[:, : len(SPECIALS)] = -torch.inf
        place_PT = logits_PV.topk(10, dim=1).indices - len(SPECIALS)
        for most, bins in counts.items():
            bins += np.bincount((place_PT < most).sum(1).numpy(), minlength=11)
    return {most: bins.tolist() for most, bins in counts.items()}


def _read(path: Path) -> Run:
    """A run that was kept."""
    content = json.loads(path.read_text(encoding="utf-8"))
    bins = {int(most): tuple(places) for most, places in content["top_ten"].items()}
    points, joined = tuple(content["points"]), tuple(content["joined"])
    return Run(points, content["top1"], content["top3"], content["distinct"], bins, joined)
