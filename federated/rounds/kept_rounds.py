"""Records of a few rounds: the model that devices trained and the released sum, for the audit; the server's state
before a round, for a second run of later ones.

An audit chooses among them once training has ended, makes the sum again from the devices' text, and holds it and the
noise of the key against what was released. Both arrays are released already; neither is a sum without its noise.

Shape legend: P parameters.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from federated.rounds.privatize import PrivacyState
from federated.rounds.server import ServerState
from pretrain.files import PRIVATE, atomic, private_directory

FOLDER, STARTS = "whole", "starts"
# Number of kept rounds: all of a short run, evenly spaced ones of a longer run, as each is three times the model's
# size.
MOST = 16


@dataclass(frozen=True)
class KeptRound:
    """One round as devices and server met it.

    Attributes:
      model_P: float32, the weights from which every device trained.
      released_P: float64, the noisy sum that the server's optimiser was given.
    """

    model_P: np.ndarray
    released_P: np.ndarray


# Parts of a run, each of which can be run again from its start: 16 bytes a parameter, 24 with Adam.
PARTS = 8


@dataclass(frozen=True)
class Start:
    """Server's state and clip norms before a round. Noise and cohorts are drawn again from key and seed.

    Attributes:
      clips: clip norm in use, its estimate, the running sum of shares, and the last released bits.
    """

    server: ServerState
    clips: tuple[float, float, float, float]


def starts(rounds: int) -> range:
    """Rounds before which a run keeps its state; before the first the model is its starting model."""
    step = -(-rounds // PARTS)
    return range(step, rounds, step)


def save_start(directory: Path, number: int, server: ServerState, privacy: PrivacyState) -> None:
    """Write the state before a round beside the checkpoints, atomically."""
    clips = np.array([privacy.clip_norm, privacy.estimate, privacy.shares, privacy.released_bits])
    with (
        atomic(private_directory(directory / STARTS) / _name(number), PRIVATE) as temporary,
        temporary.open("wb") as file,
    ):
        np.savez(file, weights=server.weights_P, momentum=server.momentum_P, second=server.second_P, clips=clips)


def load_start(directory: Path, number: int) -> Start:
    """Read a state.

    Raises:
      OSError: it is not there.
    """
    with np.load(directory / STARTS / _name(number), allow_pickle=False) as file:
        state = ServerState(file["weights"], file["momentum"], file["second"], number)
        clip_norm, estimate, shares, bits = file["clips"].tolist()
        return Start(state, (clip_norm, estimate, shares, bits))


def numbers(rounds: int) -> range:
    """Rounds that a run keeps whole, including the last one."""
    step = max(1, -(-rounds // MOST))
    return range((rounds - 1) % step, rounds, step)


def save(directory: Path, number: int, kept: KeptRound) -> None:
    """Write a round beside the checkpoints, atomically; a repeated round has the same bits."""
    folder = private_directory(directory / FOLDER)
    with atomic(folder / _name(number), PRIVATE) as temporary, temporary.open("wb") as file:
        np.savez(file, model=kept.model_P.astype(np.float32), released=kept.released_P)


def load(directory: Path, number: int) -> KeptRound:
    """Read a round.

    Raises:
      OSError: it is not there.
    """
    with np.load(directory / FOLDER / _name(number), allow_pickle=False) as file:
        return KeptRound(file["model"], file["released"])


def _name(number: int) -> str:
    return f"round-{number:08d}.npz"
