"""The state of a run between two rounds, and its way to a checkpoint and back.

One atomic file per checkpoint: everything a killed run needs to go on with the same bits. It holds weights,
momentum, noise state and who took part, so it is private: mode 0600, in the private folder, never in a log
or a model artifact.

Shape legend: D devices.
"""

import hashlib
import io
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from federated.participation.cohorts import Cohorts, ParticipationState
from federated.participation.records import (
    Records,
    forget_records,
    load_records,
    require_by_the_rule,
    save_records,
    segment_digests,
)
from federated.participation.secret_sample import SampledCohorts
from federated.rounds import commitments, direction_canaries, server
from federated.rounds.commitments import Commitment
from federated.rounds.direction_canaries import ProbeState
from federated.rounds.privatize import PrivacyState, Privatizer
from federated.rounds.server import ServerState
from federated.rounds.validation import CurvePoint
from pretrain.config import Config
from pretrain.files import PRIVATE, write_bytes
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.vocabulary import TokenStream

RECORDS = "participation.parquet"
_PRIVACY = "privacy."
_PROBE = "probe."
_MAGIC = b"tacit-checkpoint-1\n"
_DIGEST_BYTES = 32
_META = "meta"
# Checkpoints that stay during a run: the newest, and the one before it in case the newest is damaged.
_KEPT = 2
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunState:
    """State between two rounds. Private."""

    rounds_done: int
    server: ServerState
    privacy: PrivacyState
    timer: ParticipationState
    records: Records
    curve: tuple[CurvePoint, ...]
    probe: ProbeState | None = None
    commitments: tuple[Commitment, ...] = ()


def run_digest(
    model: KeyboardLM,
    devices: TokenStream,
    synthetic_D: np.ndarray,
    configs: tuple[Config, ...],
    seed: int,
    key: bytes,
) -> str:
    """Digest of a run's start, which a checkpoint must share to be resumed."""
    total = hashlib.sha256(b"tacit fine-tune run")
    for config in configs:
        total.update(config.model_dump_json().encode())
    total.update(str(seed).encode())
    # Only a digest of the key: a checkpoint alone must not undo the noise.
    total.update(hashlib.sha256(b"tacit key check" + key).digest())
    for array in (devices.tokens_N, devices.offsets_D1, synthetic_D, server.flat_weights(model)):
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def save(run: RunState, directory: Path, digest: str, privatizer: Privatizer) -> None:
    """Write records, then one atomic checkpoint; old ones go."""
    # Records first: they may be ahead of the checkpoint after a crash, never behind it.
    save_records(run.records, directory / RECORDS, run.rounds_done)
    arrays = {
        "weights": run.server.weights_P,
        "momentum": run.server.momentum_P,
        "second": run.server.second_P,
        "last_round": run.timer.last_round_D,
        "count": run.timer.count_D,
        "commitments": commitments.save(run.commitments),
        **{_PRIVACY + name: array for name, array in privatizer.save(run.privacy).items()},
        **{_PROBE + name: array for name, array in (direction_canaries.save(run.probe) if run.probe else {}).items()},
    }
    metrics = [point.model_dump() for point in run.curve]
    segments = segment_digests(directory / RECORDS)
    write_checkpoint(Checkpoint(run.rounds_done, digest, arrays, metrics, segments), directory)


def forget_later(directory: Path, rounds_done: int) -> None:
    """Remove the records of rounds that will be repeated."""
    forget_records(directory / RECORDS, rounds_done)


def resume(directory: Path, digest: str, privatizer: Privatizer, cohorts: Cohorts | SampledCohorts) -> RunState | None:
    """The newest whole checkpoint's state; None if there is none.

    Guarantee: who took part is what the rule says, drawn again; records are never believed, only held against it.

    Raises:
      OSError: the participation records are damaged or lost; nothing could be accounted.
      ValueError: a checkpoint of another run; records or a timer that are not those of the rule.
    """
    newest = newest_checkpoint(directory, digest)
    if newest is None:
        return None
    arrays = newest.arrays
    records = load_records(directory / RECORDS, newest.rounds_done)
    if len(records.rounds_N) != int(arrays["count"].sum()):
        raise OSError(
            f"{RECORDS}: {len(records.rounds_N)} records of {int(arrays['count'].sum())} participations; "
            "a file is damaged, and without it nothing can be accounted: restore it"
        )
    present = segment_digests(directory / RECORDS)
    if changed := [name for name, noted in newest.segments.items() if present.get(name) != noted]:
        raise ValueError(f"{RECORDS}/{changed[0]}: not the file that the checkpoint was written with; restore it")
    timer = require_by_the_rule(records, newest.rounds_done, cohorts)
    if not (
        np.array_equal(timer.last_round_D, arrays["last_round"]) and np.array_equal(timer.count_D, arrays["count"])
    ):
        raise ValueError(f"{directory.name}: the checkpoint's timer is not that of its rounds; restore the checkpoint")
    _log.info("resumes after round %d", newest.rounds_done)
    privacy = {name.removeprefix(_PRIVACY): arrays[name] for name in arrays if name.startswith(_PRIVACY)}
    probed = {name.removeprefix(_PROBE): arrays[name] for name in arrays if name.startswith(_PROBE)}
    return RunState(
        newest.rounds_done,
        ServerState(arrays["weights"], arrays["momentum"], arrays["second"], newest.rounds_done),
        privatizer.load(privacy),
        timer,
        records,
        tuple(CurvePoint.model_validate(point) for point in newest.metrics),
        direction_canaries.load(probed) if probed else None,
        commitments.load(arrays["commitments"]),
    )


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint file: the state after ``rounds_done`` rounds.

    Attributes:
      rounds_done: rounds whose release is part of the weights.
      run_digest: what the run was started with; a checkpoint of another run is refused.
      arrays: name -> array.
      metrics: JSON-able, public.
      segments: digest of each file of participation records.
    """

    rounds_done: int
    run_digest: str
    arrays: Mapping[str, np.ndarray]
    metrics: list[dict[str, float]]
    segments: Mapping[str, str]


def write_checkpoint(checkpoint: Checkpoint, directory: Path) -> None:
    """Write the checkpoint, then remove old ones."""
    meta = {
        "rounds_done": checkpoint.rounds_done,
        "run_digest": checkpoint.run_digest,
        "metrics": checkpoint.metrics,
        "records": dict(checkpoint.segments),
    }
    buffer = io.BytesIO()
    arrays = {**checkpoint.arrays, _META: np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)}
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # the stub takes any keyword for an option
    payload = buffer.getvalue()
    path = directory / f"round-{checkpoint.rounds_done:08d}.ckpt"
    write_bytes(path, _MAGIC + hashlib.sha256(payload).digest() + payload, PRIVATE)
    for path in _newest_first(directory)[_KEPT:]:
        path.unlink(missing_ok=True)


def settle(directory: Path) -> None:
    """Remove a finished run's checkpoints before the last one, once that reads back whole; it is what verifies."""
    last, *older = _newest_first(directory)
    if older and _read(last):
        for path in older:
            path.unlink(missing_ok=True)


def newest_checkpoint(directory: Path, run_digest: str) -> Checkpoint | None:
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
    return Checkpoint(meta["rounds_done"], meta["run_digest"], arrays, meta["metrics"], meta["records"])
