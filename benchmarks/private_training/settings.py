"""What is varied: every setting is the base but for what it names, at one and the same rho.

Symbols: z noise multiplier. rho falls with its square, whatever the mechanism is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from federated import mechanisms
from federated.accounting.guarantees import guarantee_of
from federated.config.mechanism import MechanismConfig
from federated.config.training import LocalTrainingConfig, ServerConfig
from federated.planning import costs

RHO, DELTA = 0.5, 1e-6
ROUNDS, GOAL, CLIP_NORM = 16, 200, 0.3
# A population smaller than this many of the base's cohorts gets smaller cohorts.
FEWEST_COHORTS = 4
LOCAL = LocalTrainingConfig(learning_rate=0.5, batch_sentences=8, sequence_words=20, epochs=1, max_words=200)
SERVER = ServerConfig(optimizer="momentum", learning_rate=1.0, momentum=0.9)
_BUFFERS, _NEXT_TO_NONE = 2, 1e-6


@dataclass(frozen=True)
class Embeddings:
    """How the word vectors are treated apart from the rest; no launch file can say so.

    Attributes:
      clipped: what a device's change of them is multiplied by before it is clipped.
      stepped: what their part of the noisy sum is multiplied by before the server's step.
    """

    clipped: float = 1.0
    stepped: float = 1.0


@dataclass(frozen=True)
class Setting:
    """One row of the table.

    Attributes:
      group: settings that are compared with each other.
      rounds, goal: how many times the base's, in rounds and in devices a round.
      once: no device joins twice, and rounds are as many (or as large, by ``goal`` 0) as that allows.
      mechanism: ``blt`` and ``banded`` are optimised for their pattern of participation.
      server, local: fields that differ from the base's; ``rate`` of devices and ``clip`` are times the base's.
      averages: the means of so many last models are rows of their own.
    """

    name: str
    group: str
    rounds: float = 1.0
    goal: float = 1.0
    once: bool = False
    mechanism: Literal["tree", "blt", "banded"] = "tree"
    restarts: bool = False
    adaptive: bool = False
    noise: bool = True
    clip: float = 1.0
    rate: float = 1.0
    server: Mapping[str, Any] = field(default_factory=dict)
    local: Mapping[str, Any] = field(default_factory=dict)
    embeddings: Embeddings = Embeddings()
    averages: tuple[int, ...] = ()


BASE = "tree"
_COHORT, _SERVER, _CLIP, _DEVICE, _VECTORS = "cohort and rounds", "server", "clip norm", "device", "word vectors"
_BANDED = "banded, and"
SETTINGS = (
    Setting(BASE, "noise", averages=(2, 4, 8)),
    Setting("BLT, 2 buffers", "noise", mechanism="blt"),
    Setting("banded", "noise", mechanism="banded", averages=(2, 4)),
    Setting("tree, restarted half way", "noise", restarts=True),
    Setting("no noise: not private", "noise", noise=False),
    Setting("half the rounds, twice the cohort", _COHORT, 0.5, 2.0),
    Setting("half the rounds, twice the cohort, server rate 3", _COHORT, 0.5, 2.0, server={"learning_rate": 3.0}),
    Setting("twice the rounds, half the cohort", _COHORT, 2.0, 0.5),
    Setting("twice the rounds, half the cohort, server rate 0.4", _COHORT, 2.0, 0.5, server={"learning_rate": 0.4}),
    Setting("twice the rounds, server rate 0.4", _COHORT, 2.0, 1.0, server={"learning_rate": 0.4}),
    Setting("each device once, small rounds", _COHORT, goal=0.0, once=True),
    Setting("each device once, few rounds, server rate 4", _COHORT, once=True, server={"learning_rate": 4.0}),
    Setting("server rate 0.5", _SERVER, server={"learning_rate": 0.5}),
    Setting("server rate 2", _SERVER, server={"learning_rate": 2.0}),
    Setting("no momentum, server rate 5", _SERVER, server={"optimizer": "sgd", "learning_rate": 5.0}),
    Setting("no momentum, server rate 2.5", _SERVER, server={"optimizer": "sgd", "learning_rate": 2.5}),
    Setting("Nesterov", _SERVER, server={"optimizer": "nesterov"}),
    Setting("Adam, server rate 0.01", _SERVER, server={"optimizer": "adam", "learning_rate": 0.01}),
    Setting("Adam, server rate 0.003", _SERVER, server={"optimizer": "adam", "learning_rate": 0.003}),
    Setting("clip norm halved", _CLIP, clip=0.5),
    Setting("clip norm doubled", _CLIP, clip=2.0),
    Setting("clip norm adapted at the restart", _CLIP, restarts=True, adaptive=True),
    Setting("device's rate halved", _DEVICE, rate=0.5),
    Setting("device's rate doubled", _DEVICE, rate=2.0),
    Setting("two epochs", _DEVICE, local={"epochs": 2}),
    Setting("frozen", _VECTORS, embeddings=Embeddings(0.0, 0.0)),
    Setting("stepped half as far", _VECTORS, embeddings=Embeddings(1.0, 0.5)),
    Setting("weigh double under the clip norm", _VECTORS, embeddings=Embeddings(2.0, 0.5)),
    Setting("banded, server rate 2", _BANDED, mechanism="banded", server={"learning_rate": 2.0}),
    Setting("banded, server rate 0.5", _BANDED, mechanism="banded", server={"learning_rate": 0.5}),
    Setting(
        "banded, each device once, few rounds, server rate 4",
        _BANDED,
        once=True,
        mechanism="banded",
        server={"learning_rate": 4.0},
    ),
    Setting(
        "banded, half the rounds, twice the cohort, server rate 3",
        _BANDED,
        0.5,
        2.0,
        mechanism="banded",
        server={"learning_rate": 3.0},
    ),
    Setting("banded, clip norm doubled", _BANDED, mechanism="banded", clip=2.0),
    Setting(
        "banded, each device once, few rounds, server rate 8",
        _BANDED,
        once=True,
        mechanism="banded",
        server={"learning_rate": 8.0},
    ),
)


@dataclass(frozen=True)
class Run:
    """What a setting is for one population."""

    mechanism: MechanismConfig
    server: ServerConfig
    local: LocalTrainingConfig
    rho: float | None


def run_of(setting: Setting, devices: int, rho: float = RHO) -> Run:
    """The blocks to train with, at noise that costs ``rho`` if devices join as often as they are let.

    Args:
      devices: to train on.
    """
    server = SERVER.model_copy(update=dict(setting.server))
    local = LOCAL.model_copy(update={"learning_rate": LOCAL.learning_rate * setting.rate, **setting.local})
    at_one = _block(setting, devices)
    if not setting.noise:
        return Run(_mechanism(at_one, _NEXT_TO_NONE), server, local, None)
    z = equal_noise(rho_of(_mechanism(at_one, 1.0)), rho)
    mechanism = _mechanism(at_one, z)
    return Run(mechanism, server, local, rho_of(mechanism))


def equal_noise(rho_at_one: float, rho: float) -> float:
    """The noise multiplier that costs ``rho``, of a mechanism that costs ``rho_at_one`` at a multiplier of 1."""
    return (rho_at_one / rho) ** 0.5


def rho_of(mechanism: MechanismConfig) -> float:
    """What the mechanism costs if every device joins as often as it is let."""
    limits = mechanism.rounds, mechanism.min_sep, mechanism.max_participations
    return guarantee_of(mechanisms.build(mechanism), *limits, (mechanism.delta,), twice=False).rho


def shape_of(setting: Setting, devices: int) -> tuple[int, int, int, int]:
    """Rounds, devices in a round, least separation and most participations.

    Separation is the largest that the population carries with whole rounds.
    """
    rounds, goal = ROUNDS, min(GOAL, devices // FEWEST_COHORTS)
    if setting.once:
        goal = round(goal * setting.goal) or devices // rounds
        rounds = devices // goal
        return rounds, devices // rounds, rounds, 1
    rounds, goal = round(rounds * setting.rounds), round(goal * setting.goal)
    apart = min(rounds, max(1, devices // goal))
    return rounds, goal, apart, costs.most_participations(rounds, apart)


def _block(setting: Setting, devices: int) -> dict[str, Any]:
    """The mechanism's block, but for its noise multiplier."""
    rounds, goal, apart, most = shape_of(setting, devices)
    block: dict[str, Any] = {
        "kind": setting.mechanism,
        "clip_norm": CLIP_NORM * setting.clip,
        "rounds": rounds,
        "report_goal": goal,
        "min_sep": apart,
        "max_participations": most,
        "delta": DELTA,
        "randomness": "seeded",
    }
    match setting.mechanism:
        case "blt":
            block |= costs.blt(rounds, apart, most, _BUFFERS).parameters
        case "banded":
            block |= costs.banded(rounds, apart, most).parameters
        case "tree" if setting.restarts:
            block |= {"restarts": [rounds // 2]}
    if setting.adaptive:
        block |= {"adaptive_clipping": {"target_quantile": 0.5, "learning_rate": 0.2}}
    return block


def _mechanism(block: Mapping[str, Any], z: float) -> MechanismConfig:
    block = {**block, "noise_multiplier": z}
    if adaptive := block.get("adaptive_clipping"):
        block["adaptive_clipping"] = {**adaptive, "bit_noise_std": max(z, block["report_goal"] / 20)}
    return TypeAdapter(MechanismConfig).validate_python(block)
