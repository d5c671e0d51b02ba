"""What a discovery keeps in its private directory: who it asked, and every finished layer."""

import hashlib
import hmac
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from discovery.config import DiscoveryConfig
from discovery.results import LayerState


def fingerprint(
    device_words: Sequence[Sequence[str]], known: frozenset[str], letters: str, config: DiscoveryConfig, key: bytes
) -> str:
    """Changes with anything that the answers depend on; keyed, so that it tells nothing about the words."""
    digest = hmac.new(key, b"tacit discovery 2" + config.model_dump_json().encode(), hashlib.sha256)
    for part in (letters, *sorted(known)):
        digest.update(json.dumps(part).encode())
    for words in device_words:
        digest.update(json.dumps(list(words)).encode())
    return digest.hexdigest()


def claim(directory: Path, asked: str) -> None:
    """Refuse finished layers of another discovery: their prefixes and their epsilon are not this one's."""
    path = directory / "fingerprint"
    if path.exists():
        if path.read_text(encoding="utf-8") != asked:
            raise ValueError(
                f"directory: {directory} holds a discovery with other devices, known words, alphabet, "
                "configuration or key; its devices have answered, so start a new launch in an empty directory"
            )
    elif any(directory.glob("layer-*.json")):
        raise ValueError(f"directory: {directory} holds layers of an unknown discovery; use an empty directory")
    else:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, asked.encode())


def record(directory: Path, groups: Sequence[np.ndarray]) -> None:
    """The participation record: ``devices.npy`` holds the layer of each device, int16, from 1."""
    layer_D = np.empty(sum(map(len, groups)), dtype=np.int16)
    for number, group in enumerate(groups, start=1):
        layer_D[group] = number
    content = io.BytesIO()
    np.save(content, layer_D)
    _write(directory / "devices.npy", content.getvalue())


def load(directory: Path, number: int) -> LayerState | None:
    """A finished layer, or None."""
    path = _path(directory, number)
    return LayerState.model_validate(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def save(directory: Path, state: LayerState) -> None:
    """Keep a finished layer, whole or not at all."""
    _write(_path(directory, state.row.layer), state.model_dump_json().encode())


def _path(directory: Path, number: int) -> Path:
    return directory / f"layer-{number:02d}.json"


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
