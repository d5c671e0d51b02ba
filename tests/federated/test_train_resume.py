"""A run that is killed, damaged or asked for twice."""

import io
import json
import pickle
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.config.training import RuntimeConfig, ServerConfig
from federated.local_training import low_bits
from federated.participation.records import Records, load_records, save_records, segment_digests
from federated.rounds import state
from federated.train import FineTuneResult
from pretrain.randomness.noise import seeded_key
from tests.helpers.launches.small_run import DEVICES, Killed, Launch, killed_after, mechanism, run, stream
from tests.helpers.processes.forked import KILLED, Forked


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, np.ndarray, FineTuneResult]:
    directory = tmp_path_factory.mktemp("finished")
    return directory, *run(Launch(), directory)


def test_a_finished_run_is_not_done_again(finished):
    directory, weights_P, result = finished
    before = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
    told: list[dict] = []
    again_P, again = run(Launch(), directory, told.append)
    assert not told
    assert again == result
    np.testing.assert_array_equal(again_P, weights_P)
    assert before == {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}


def child(forked: Forked, directory: Path, kill_at: int, out: Path) -> int:
    command = [forked.python, "-m", "tests.federated.killed_run", directory, str(kill_at), out]
    return subprocess.run(command, check=False, timeout=300).returncode


@pytest.mark.slow
def test_killed_twice_and_resumed_is_bitwise_the_same(finished, tmp_path, forked: Forked):
    _, weights_P, result = finished
    work, out = tmp_path / "work", tmp_path / "out"
    # Checkpoints stand after rounds 3, 6 and 9: round 2 is before the first, round 5 between two.
    for kill_at in (2, 5):
        assert child(forked, work, kill_at, out) == KILLED
        assert not out.exists()
    assert child(forked, work, 0, out) == 0
    resumed_P, resumed = pickle.loads(out.read_bytes())
    assert resumed_P.tobytes() == weights_P.tobytes()
    assert resumed == result


def test_rounds_go_on_only_where_low_bits_are_those_they_began_with(finished, tmp_path, monkeypatch):
    with pytest.raises(Killed):
        run(Launch(), tmp_path, killed_after(5))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(low_bits, "low_bits_of", lambda *_: "0123456789abcd")
        with pytest.raises(OSError, match=r"began on another kind of processor .* other releases under the same noise"):
            run(Launch(), tmp_path)
        # Nothing is trained again where all is done.
        assert run(Launch(), finished[0])[0].tobytes() == finished[1].tobytes()
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run(Launch(), tmp_path)[0].tobytes() == finished[1].tobytes()


def test_a_truncated_checkpoint_means_going_back_one(finished, tmp_path):
    run(Launch(), tmp_path)
    newest = tmp_path / "round-00000009.ckpt"
    newest.write_bytes(newest.read_bytes()[:-100])
    told: list[dict] = []
    again_P, again = run(Launch(), tmp_path, told.append)
    assert [message["round"] for message in told] == [7, 8, 9]
    assert again_P.tobytes() == finished[1].tobytes()
    assert again == finished[2]


@pytest.mark.parametrize(
    "changed",
    [
        {"mechanism": mechanism(noise_multiplier=0.4)},
        {"seed": 12},
        {"key": seeded_key(6)},
        {"devices": stream(DEVICES, 2)},
        {"server": ServerConfig(learning_rate=0.6)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_another_run_may_not_go_on_here(finished, changed):
    with pytest.raises(ValueError, match="empty directory"):
        run(replace(Launch(), **changed), finished[0])


def test_speed_settings_may_change_between_runs(finished):
    faster = RuntimeConfig(chunk_devices=9, checkpoint_every_rounds=1, evaluate_every_rounds=1)
    np.testing.assert_array_equal(run(replace(Launch(), runtime=faster), finished[0])[0], finished[1])


def test_lost_records_stop_the_run(tmp_path):
    run(Launch(), tmp_path)
    folder = tmp_path / "participation.parquet"
    first, middle, last = sorted(folder.iterdir())
    assert [first.name, last.name] == ["rounds-00000000-00000003.parquet", "rounds-00000006-00000009.parquet"]
    lost = Records(tuple(entry for entry in load_records(folder).cohorts if entry[0] < 5))
    for path, words in ((first, "rounds-00000000"), (middle, "rounds-00000003"), (last, "rounds-00000006")):
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        with pytest.raises(OSError, match=words):
            run(Launch(), tmp_path)
        path.unlink()
        with pytest.raises(OSError, match=rf"{words}-.* is missing"):
            run(Launch(), tmp_path)
        path.write_bytes(whole)
    middle.unlink()
    save_records(lost, tmp_path / "shorter", 5)
    (tmp_path / "shorter" / "rounds-00000000-00000005.parquet").rename(middle)
    with pytest.raises(OSError, match="holds rounds 0 to 4"):
        run(Launch(), tmp_path)
    shutil.rmtree(folder)
    with pytest.raises(OSError, match="participation"):
        run(Launch(), tmp_path)


def test_records_of_one_round_that_lack_a_device_stop_the_run(tmp_path):
    run(Launch(), tmp_path)
    (*_, last) = sorted((tmp_path / "participation.parquet").iterdir())
    pq.write_table(pq.read_table(last).slice(1), last)
    with pytest.raises(OSError, match="damaged"):
        run(Launch(), tmp_path)


def edited(tmp_path: Path, edit: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> None:
    """Change the records of a finished run, but not how many there are."""
    run(Launch(), tmp_path)
    (*_, last) = sorted((tmp_path / "participation.parquet").iterdir())
    table = pq.read_table(last)
    rounds_N, devices_N = edit(*(table[name].to_numpy().copy() for name in ("round", "device")))
    pq.write_table(pa.table({"round": rounds_N, "device": devices_N}), last)


def permuted(rounds_N: np.ndarray, devices_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return rounds_N, (devices_N + 1) % DEVICES


def one_device_for_another(rounds_N: np.ndarray, devices_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    devices_N[0] = next(number for number in range(DEVICES) if number not in devices_N)
    return rounds_N, devices_N


def in_another_round(rounds_N: np.ndarray, devices_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rounds_N[np.flatnonzero(np.diff(rounds_N))[0]] += 1
    return rounds_N, devices_N


@pytest.mark.parametrize("edit", [permuted, one_device_for_another, in_another_round])
@pytest.mark.parametrize("digests_too", [False, True])
def test_edited_records_stop_the_run(tmp_path, edit, digests_too):
    edited(tmp_path, edit)
    if digests_too:
        path = tmp_path / "round-00000009.ckpt"
        meta = state.newest_checkpoint(tmp_path, state_digest(path))
        state.write_checkpoint(replace(meta, segments=segment_digests(tmp_path / "participation.parquet")), tmp_path)
    with pytest.raises(ValueError, match="other devices than its seed or key picks" if digests_too else "not the file"):
        run(Launch(), tmp_path)


def state_digest(path: Path) -> str:
    """What the run of a checkpoint was started with, from the file."""
    with np.load(io.BytesIO(path.read_bytes()[len(b"tacit-checkpoint-1\n") + 32 :])) as arrays:
        return json.loads(arrays["meta"].tobytes())["run_digest"]


def test_a_timer_that_was_edited_stops_the_run(tmp_path):
    run(Launch(), tmp_path)
    whole = state.newest_checkpoint(tmp_path, state_digest(tmp_path / "round-00000009.ckpt"))
    changed = np.roll(whole.arrays["count"], 1)
    state.write_checkpoint(replace(whole, arrays={**whole.arrays, "count": changed}), tmp_path)
    with pytest.raises(ValueError, match="timer is not that of its rounds"):
        run(Launch(), tmp_path)


def test_rounds_done_again_have_one_record(finished, tmp_path):
    seen = load_records(finished[0] / "participation.parquet")
    run(Launch(), tmp_path)
    for name in ("round-00000009.ckpt", "round-00000006.ckpt"):
        (tmp_path / name).write_bytes(b"damaged")
    # Back to the start, with other steps between checkpoints.
    other = RuntimeConfig(chunk_devices=4, checkpoint_every_rounds=4)
    run(replace(Launch(), runtime=other), tmp_path)
    names = sorted(path.name for path in (tmp_path / "participation.parquet").iterdir())
    assert [name[7:24] for name in names] == ["00000000-00000004", "00000004-00000008", "00000008-00000009"]
    again = load_records(tmp_path / "participation.parquet")
    np.testing.assert_array_equal(again.rounds_N, seen.rounds_N)
    np.testing.assert_array_equal(again.devices_N, seen.devices_N)
