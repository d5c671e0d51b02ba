"""The mechanism file: a mechanism as JSON, with every digit that its guarantee depends on."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from federated.mechanisms import KINDS, Mechanism
from pretrain.files import write_text
from pretrain.reading import paths

_MOST_BYTES = 1 << 28


def save(mechanism: Mechanism, path: Path) -> None:
    """Write the file in one step; ``load`` gives back the same numbers to the last bit."""
    kind = next(name for name, made in KINDS.items() if isinstance(mechanism, made))
    content = {"kind": kind, **asdict(mechanism)}
    write_text(path, json.dumps(content, default=np.ndarray.tolist) + "\n")


def load(path: Path) -> Mechanism:
    """Read a mechanism file.

    Raises:
      ValueError: not a mechanism file, or numbers that no mechanism can have.
      OSError: the disk does not answer.
    """
    content = paths.read_json(path, "mechanism", "write one with 'tacit optimize', or name a launch's", _MOST_BYTES)
    kind = content.pop("kind", None) if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{path.name}: kind is {kind!r}; a mechanism file names one of {', '.join(KINDS)}")
    try:
        return KINDS[kind](**{name: _value(name, value) for name, value in content.items()})
    except (TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"{path.name}: fields do not fit kind {kind!r}: {error}") from error


def _value(name: str, value: object) -> object:
    if name == "lags_NL":
        return np.array(value, dtype=np.float64, ndmin=2)
    return tuple(value) if isinstance(value, list) else value
