"""One atomic file per checkpoint: everything a killed run needs to go on with the same bits.

Holds weights, momentum, noise state and who took part, so it is private: mode 0600, in the
private folder, never in a log or a model artifact.
"""

import hashlib
import io
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pretrain.files import PRIVATE, write_bytes

_MAGIC = b"tacit-checkpoint-1\n"
_DIGEST_BYTES = 32
_META = "meta"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """State after ``rounds_done`` rounds.

    Attributes:
      rounds_done: rounds whose release is part of the weights.
      run_digest: what the run was started with; a checkpoint of another run is refused.
      arrays: name -> array.
      metrics: JSON-able, public.
    """

    rounds_done: int
    run_digest: str
    arrays: Mapping[str, np.ndarray]
    metrics: list[dict[str, float]]


def save(checkpoint: Checkpoint, directory: Path, keep: int) -> None:
    """Write the checkpoint, then remove all but the ``keep`` newest."""
    meta = {
        "rounds_done": checkpoint.rounds_done,
        "run_digest": checkpoint.run_digest,
        "metrics": checkpoint.metrics,
    }
    buffer = io.BytesIO()
    np.savez(buffer, **checkpoint.arrays, **{_META: np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)})
    payload = buffer.getvalue()
    path = directory / f"round-{checkpoint.rounds_done:08d}.ckpt"
    write_bytes(path, _MAGIC + hashlib.sha256(payload).digest() + payload, PRIVATE)
    for path in _newest_first(directory)[keep:]:
        path.unlink(missing_ok=True)


def load_latest(directory: Path, run_digest: str) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if there is none.

    A damaged one is logged and passed over. Going back is safe: the rounds since then are done
    again with the same cohorts and the same noise, so they are the same release.

    Raises:
      ValueError: it belongs to a run with other settings, data or starting weights.
    """
    for path in _newest_first(directory):
        checkpoint = _read(path)
        if checkpoint is None:
            _log.warning("%s is damaged; trying the checkpoint before it", path.name)
            continue
        if checkpoint.run_digest != run_digest:
            raise ValueError(
                f"directory: {directory.name!r} holds a checkpoint of a run with other settings, data, key or "
                "starting weights; give a new launch an empty directory"
            )
        return checkpoint
    return None


def _newest_first(directory: Path) -> list[Path]:
    return sorted(directory.glob("round-*.ckpt"), reverse=True)


def _read(path: Path) -> Checkpoint | None:
    content = path.read_bytes()
    head = len(_MAGIC) + _DIGEST_BYTES
    payload = content[head:]
    if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(payload).digest() != content[len(_MAGIC) : head]:
        return None
    with np.load(io.BytesIO(payload), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(arrays.pop(_META).tobytes())
    return Checkpoint(meta["rounds_done"], meta["run_digest"], arrays, meta["metrics"])
