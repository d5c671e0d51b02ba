"""Private directory of a discovery: a fingerprint of the discovery, and every finished layer."""

import hashlib
import hmac
import json
from pathlib import Path

import numpy as np

from discovery.config import AFTERWARDS, CentralConfig, TrieConfig
from discovery.device.typed import TypedWords
from discovery.results import LayerState
from pretrain.files import PRIVATE, private_directory, write_array, write_text


def fingerprint(
    typed: TypedWords, known_words: frozenset[str], asked: str, config: TrieConfig | CentralConfig, key: bytes
) -> str:
    """Keyed fingerprint of everything that determines the answers; it reveals nothing about the words.

    Args:
      asked: further parameters of the question: letters, or the division of rho of a central discovery.
    """
    settings = {name: value for name, value in config.model_dump(mode="json").items() if name not in AFTERWARDS}
    digest = hmac.new(key, b"tacit discovery 5", hashlib.sha256)
    for part in (settings, asked, sorted(known_words), typed.distinct):
        digest.update(json.dumps(part, sort_keys=True).encode() + b"\n")
    for numbers in (typed.starts, typed.numbers):
        digest.update(np.ascontiguousarray(numbers).data)
    return digest.hexdigest()


def claim(directory: Path, asked: str) -> None:
    """Refuse finished layers of another discovery, whose prefixes and epsilon differ."""
    path = directory / "fingerprint"
    if path.exists():
        if path.read_text(encoding="utf-8") != asked:
            raise ValueError(
                f"directory: {directory} holds a discovery with other devices, known words, alphabet, "
                "configuration or key; its devices have answered, so start a new launch in an empty directory"
            )
    elif any(directory.glob("*layer-*")):
        raise ValueError(f"directory: {directory} holds layers of an unknown discovery; use an empty directory")
    else:
        write_text(private_directory(directory) / path.name, asked, PRIVATE)


def load(directory: Path, layer: int) -> LayerState | None:
    """A finished layer, or None."""
    path = _path(directory, layer)
    return LayerState.model_validate(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def save(directory: Path, state: LayerState, votes_d: np.ndarray) -> None:
    """Store a finished layer atomically, with the sum of votes that decided it.

    Votes are noisy, message by message, so the sum reveals no more than its words; an audit repeats the selection from
    it.
    """
    write_array(_votes(directory, state.row.layer), votes_d, PRIVATE)
    write_text(_path(directory, state.row.layer), state.model_dump_json(), PRIVATE)


def votes(directory: Path, layer: int) -> np.ndarray:
    """The votes of a finished layer, int64 ``[d]``.

    Raises:
      OSError: the file is missing.
    """
    return np.load(_votes(directory, layer), allow_pickle=False)


def _votes(directory: Path, layer: int) -> Path:
    return directory / f"votes-{layer:02d}.npy"


def _path(directory: Path, layer: int) -> Path:
    return directory / f"layer-{layer:02d}.json"
