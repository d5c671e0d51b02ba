"""The state of a run between two rounds, and its way to a checkpoint and back.

Shape legend: D devices.
"""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from federated import checkpoint
from federated.participation.cohorts import ParticipationState
from federated.participation.records import Records, forget_records, load_records, save_records
from federated.rounds import direction_canaries as probe
from federated.rounds import server
from federated.rounds.direction_canaries import ProbeState
from federated.rounds.privatize import PrivacyState, Privatizer
from federated.rounds.server import ServerState
from federated.rounds.validation import CurvePoint
from pretrain.config import Config
from pretrain.model import KeyboardLM
from pretrain.vocabulary import TokenStream

RECORDS = "participation.parquet"
_PRIVACY = "privacy."
_PROBE = "probe."
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


def run_digest(
    model: KeyboardLM,
    devices: TokenStream,
    synthetic_D: np.ndarray,
    configs: tuple[Config, ...],
    seed: int,
    key: bytes,
) -> str:
    """What a checkpoint must have been started with to be gone on with."""
    total = hashlib.sha256(b"tacit fine-tune run")
    for config in configs:
        total.update(config.model_dump_json().encode())
    total.update(str(seed).encode())
    # Only a digest of the key: a checkpoint alone must not undo the noise.
    total.update(hashlib.sha256(b"tacit key check" + key).digest())
    for array in (devices.tokens_N, devices.offsets_D1, synthetic_D, server.flat_weights(model)):
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def save(run: RunState, directory: Path, digest: str, privatizer: Privatizer, keep: int) -> None:
    """Records, then one atomic checkpoint; the ``keep`` newest stay."""
    # Records first: they may be ahead of the checkpoint after a crash, never behind it.
    save_records(run.records, directory / RECORDS, run.rounds_done)
    arrays = {
        "weights": run.server.weights_P,
        "momentum": run.server.momentum_P,
        "second": run.server.second_P,
        "last_round": run.timer.last_round_D,
        "count": run.timer.count_D,
        **{_PRIVACY + name: array for name, array in privatizer.save(run.privacy).items()},
        **{_PROBE + name: array for name, array in (probe.save(run.probe) if run.probe else {}).items()},
    }
    metrics = [point.model_dump() for point in run.curve]
    checkpoint.save(checkpoint.Checkpoint(run.rounds_done, digest, arrays, metrics), directory, keep)


def forget_later(directory: Path, rounds_done: int) -> None:
    """Before going on: remove what was recorded of rounds that are done again."""
    forget_records(directory / RECORDS, rounds_done)


def resume(directory: Path, digest: str, privatizer: Privatizer) -> RunState | None:
    """The newest whole checkpoint's state; None if there is none.

    Raises:
      OSError: the participation records are damaged or lost; nothing could be accounted.
      ValueError: a checkpoint of another run.
    """
    found = checkpoint.load_latest(directory, digest)
    if found is None:
        return None
    arrays = found.arrays
    records = load_records(directory / RECORDS, found.rounds_done)
    if len(records.rounds_N) != int(arrays["count"].sum()):
        raise OSError(
            f"{RECORDS}: {len(records.rounds_N)} records of {int(arrays['count'].sum())} participations; "
            "a file is damaged, and without it nothing can be accounted: restore it"
        )
    _log.info("goes on after round %d", found.rounds_done)
    privacy = {name.removeprefix(_PRIVACY): arrays[name] for name in arrays if name.startswith(_PRIVACY)}
    probed = {name.removeprefix(_PROBE): arrays[name] for name in arrays if name.startswith(_PROBE)}
    return RunState(
        found.rounds_done,
        ServerState(arrays["weights"], arrays["momentum"], arrays["second"], found.rounds_done),
        privatizer.load(privacy),
        ParticipationState(arrays["last_round"], arrays["count"]),
        records,
        tuple(CurvePoint.model_validate(point) for point in found.metrics),
        probe.load(probed) if probed else None,
    )
