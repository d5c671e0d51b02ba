"""What training leaves for the audits of its noise: a private file, and the claim that it is held against."""

from pathlib import Path

import numpy as np

from evaluation.audit import whitening
from evaluation.audit.directions import Directions
from evaluation.audit.matched_filter import Claim
from evaluation.audit.noise import Trace
from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.config.mechanism import MechanismConfig
from federated.noise import subkey
from federated.rounds.rule import RoundRule
from federated.train import FineTuneResult
from pretrain.files import PRIVATE, atomic
from pretrain.model import KeyboardLM

FILE = "audit.npz"


def directions(model: KeyboardLM, count: int, key: bytes) -> Directions | None:
    """Direction canaries of a run; None for none.

    Their seed follows from the noise key, which the ledger's reservation commits to before training.
    """
    if not count:
        return None
    seed = int.from_bytes(subkey(key, "direction canaries"), "big")
    return Directions(tuple(parameter.numel() for parameter in model.parameters()), count, seed)


def save(done: FineTuneResult, planted: Directions | None, path: Path) -> None:
    """Keep what the audits need. Secret: released sums without their noise."""
    arrays = {"synthetic_joined": done.synthetic_joined_TD}
    if done.probe is not None and planted is not None:
        seed = np.frombuffer(planted.seed.to_bytes(32, "big"), dtype=np.uint8)
        shape = np.array([planted.count, *planted.layers])
        arrays |= {"projections": done.probe.projections_TN, "joined": done.probe.joined_TN}
        arrays |= {"seed": seed, "directions": shape}
    with atomic(path, PRIVATE) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub takes every keyword for allow_pickle


def load(path: Path) -> tuple[np.ndarray, Trace | None, Directions | None]:
    """Rounds by synthetic devices, and the trace with its directions where there is one.

    Raises:
      OSError: the file is not on this machine.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if "seed" not in arrays:
        return arrays["synthetic_joined"], None, None
    count, *layers = (int(number) for number in arrays["directions"])
    planted = Directions(tuple(layers), count, int.from_bytes(arrays["seed"].tobytes(), "big"))
    return arrays["synthetic_joined"], Trace(arrays["projections"], arrays["joined"]), planted


def whitener(mechanism: mechanisms.Mechanism, rounds: int) -> np.ndarray:
    """``[T, T]``: what makes the noise of the released sums independent again."""
    return mechanisms.whitener(mechanism, rounds, whitening.of_tree, whitening.of_coefficients)


def claim(config: MechanismConfig, mechanism: mechanisms.Mechanism, rounds: int, joined_TN: np.ndarray) -> Claim:
    """What the accountant says of a canary that joined as often as it was allowed to.

    For the enforced limits, not the observed ones: canaries are more eager than any real device. Where nothing
    is enforced, for the rounds that a canary really joined.
    """
    rule, joined = RoundRule(config, seed=0, stored=mechanism), int(joined_TN.sum(axis=0).max(initial=1))
    promised = accounting.guarantee_of(mechanism, rounds, *rule.eager_limits(rounds, joined), (config.delta,))
    return Claim(whitener(mechanism, rounds), rule.privatizer.noise_multiplier, promised.mu, config.delta)
