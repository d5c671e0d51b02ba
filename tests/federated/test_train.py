"""The round loop as a whole, on a model of a few hundred weights: its rounds, its noise, and runs that end early."""

import io
import json
import pickle
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from federated.config.training import RuntimeConfig, ServerConfig
from federated.local_training import autotune, low_bits, rows
from federated.mechanisms.tree import Tree, TreeState
from federated.participation.records import Records, load_records, save_records, segment_digests
from federated.rounds import privatize, server, state
from federated.rounds.privatize import NoiseAhead
from federated.train import FineTuneResult
from pretrain.randomness.noise import seeded_key
from pretrain.text.vocabulary import EOS, join_owners
from tests.helpers.launches.small_run import (
    DEVICES,
    SYNTHETIC,
    WORDS,
    Killed,
    Launch,
    killed_after,
    mechanism,
    model_at_start,
    run,
    stream,
)
from tests.helpers.processes.forked import KILLED, Forked


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, np.ndarray, FineTuneResult]:
    directory = tmp_path_factory.mktemp("finished")
    return directory, *run(Launch(), directory)


def test_rounds_curve_and_records(finished):
    directory, weights_P, result = finished
    assert not np.array_equal(weights_P, server.flat_weights(model_at_start()))
    assert result.rounds == 9
    assert [point.round for point in result.curve] == [0, 4, 8, 9]
    assert all(0 <= point.validation_recall <= point.validation_top1 <= 1 for point in result.curve)
    records = load_records(directory / "participation.parquet")
    assert sorted(set(records.rounds_N.tolist())) == list(range(9))
    assert result.observed.rounds == 9
    assert result.observed.violations == 0
    assert result.observed.min_sep >= 3
    assert result.observed.max_participations <= 2
    assert result.observed.synthetic_devices == SYNTHETIC
    counts_D = np.bincount(records.devices_N, minlength=DEVICES)
    assert result.synthetic_participations == tuple(counts_D[-SYNTHETIC:].tolist())
    assert sum(size * count for size, count in result.observed.participation_histogram.items()) == int(
        counts_D[:-SYNTHETIC].sum()
    )


def test_what_it_leaves_behind_is_private(finished):
    directory, _, _ = finished
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    names = sorted(path.name for path in directory.iterdir())
    assert names == ["chunk_devices", "participation.parquet", "processor", "round-00000009.ckpt"]
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert len(files) == 2 + 1 + 3
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert stat.S_IMODE((directory / "participation.parquet").stat().st_mode) == 0o700


def test_progress_is_told_every_round(tmp_path):
    told: list[dict] = []
    run(Launch(), tmp_path, told.append)
    assert [message["round"] for message in told] == list(range(1, 10))
    assert [message["round"] for message in told if "validation_loss" in message] == [4, 8, 9]


def test_threads_do_not_change_the_model(finished, tmp_path):
    np.testing.assert_array_equal(run(Launch(), tmp_path, threads=3)[0], finished[1])


def first_step(launch: Launch, directory: Path) -> np.ndarray:
    """Change of the weights by one round."""
    one = replace(launch, mechanism=launch.mechanism.model_copy(update={"rounds": 1, "max_participations": 1}))
    return run(one, directory)[0] - server.flat_weights(model_at_start())


def test_the_denominator_is_the_report_goal(tmp_path, monkeypatch):
    # No noise to speak of, and half of the report goal available.
    quiet = replace(
        Launch(), devices=stream(6, 1), mechanism=mechanism(noise_multiplier=1e-9, report_goal=12, min_sep=1)
    )

    def shrinkage(directory: Path) -> float:
        """Step size against that of a report goal just as large as the population; 2 if the denominator is fixed."""
        exact = replace(quiet, mechanism=quiet.mechanism.model_copy(update={"report_goal": 6}))
        small, large = first_step(quiet, directory / "goal-12"), first_step(exact, directory / "goal-6")
        return float(np.linalg.norm(large) / np.linalg.norm(small))

    assert shrinkage(tmp_path / "ours") == pytest.approx(2, rel=1e-5)
    step = server.step
    monkeypatch.setattr(
        server, "step", lambda state, total_P, report_goal, config: step(state, total_P, min(report_goal, 6), config)
    )
    assert shrinkage(tmp_path / "arrived") == pytest.approx(1, rel=1e-5)


def noise_off_by(launch: Launch, directory: Path) -> float:
    """Noise found in the first step, relative to what was promised, when no update survives."""
    blown = replace(launch, device=launch.device.model_copy(update={"learning_rate": 1e38}))
    change_P = first_step(blown, directory)
    promised = blown.mechanism.noise_multiplier * blown.mechanism.clip_norm / blown.mechanism.report_goal
    return float(change_P.std() / (promised * blown.server.learning_rate)) - 1


@pytest.mark.statistical
def test_noise_is_as_promised_and_the_same_check_rejects_two_thirds(tmp_path, monkeypatch):
    # Four standard errors of the standard deviation of the model's 386 weights.
    tolerance = 4 / (2 * 386) ** 0.5
    assert abs(noise_off_by(Launch(), tmp_path / "ours")) < tolerance
    release = privatize.release
    monkeypatch.setattr(
        privatize, "release", lambda total_P, noise_P, *others: release(total_P, noise_P * 2 / 3, *others)
    )
    assert abs(noise_off_by(Launch(), tmp_path / "less")) > tolerance


def test_updates_that_are_not_finite_do_not_stop_a_run(tmp_path):
    blown = replace(Launch(), device=Launch().device.model_copy(update={"learning_rate": 1e38}))
    weights_P, result = run(blown, tmp_path)
    assert np.isfinite(weights_P).all()
    assert result.rounds == 9


def test_noise_is_drawn_before_text_is_read(tmp_path, monkeypatch):
    order: list[str] = []
    for module, name in ((rows, "cohort_rows"), (NoiseAhead, "draw"), (privatize, "release")):
        real = getattr(module, name)

        def noted(*arguments, real=real, name=name):
            found = real(*arguments)
            order.append(name)
            return found

        monkeypatch.setattr(module, name, noted)
    run(Launch(), tmp_path)
    assert order == ["draw", "cohort_rows", "release"] * 9


class Draws:
    """Rounds whose noise was begun to be drawn, and a wait for one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: int | None = None) -> None:
        self.rounds, self.changed, real = list[int](), threading.Condition(), Tree.noise

        def noted(tree: Tree, state: TreeState, number: int, key: bytes) -> tuple[np.ndarray, TreeState]:
            with self.changed:
                self.rounds.append(number)
                self.changed.notify_all()
            if number == fails:
                raise MemoryError("no room for noise")
            return real(tree, state, number, key)

        monkeypatch.setattr(Tree, "noise", noted)

    def begun(self, number: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: number in self.rounds, 60)


def test_noise_of_the_next_round_is_drawn_while_devices_train_with_the_same_bits(finished, tmp_path, monkeypatch):
    draws, read, real = Draws(monkeypatch), list[bool](), rows.cohort_rows

    def reading(*arguments):
        read.append(len(read) == 8 or draws.begun(len(read) + 1))
        return real(*arguments)

    monkeypatch.setattr(rows, "cohort_rows", reading)
    assert run(Launch(), tmp_path / "ahead")[0].tobytes() == finished[1].tobytes()
    assert (draws.rounds, read) == (list(range(9)), [True] * 9), "each once, and none beyond the last"
    monkeypatch.undo()
    monkeypatch.setattr(NoiseAhead, "draw", lambda ahead, state: ahead.privatizer.draw(state, ahead.key))
    assert run(Launch(), tmp_path / "in turn")[0].tobytes() == finished[1].tobytes()


def test_noise_that_cannot_be_drawn_ends_the_run_before_its_text_and_the_next_call_goes_on(
    finished, tmp_path, monkeypatch
):
    real, read, told = rows.cohort_rows, list[int](), []
    Draws(monkeypatch, fails=7)
    monkeypatch.setattr(rows, "cohort_rows", lambda *arguments: (read.append(1), real(*arguments))[1])
    with pytest.raises(MemoryError, match="no room"):
        run(Launch(), tmp_path, told.append)
    assert len(read) == len(told) == 7
    monkeypatch.undo()
    assert run(Launch(), tmp_path)[0].tobytes() == finished[1].tobytes()


@pytest.mark.parametrize("name", ["cohort_rows", "round_offset"])
def test_text_that_cannot_be_read_ends_the_run_and_the_next_call_goes_on(name, finished, tmp_path, monkeypatch):
    real, told = getattr(rows, name), []

    def fails(*arguments):
        if len(told) >= 4 and calls.append(0) is None and len(calls) == 1:
            raise OSError("the disk of the store is gone")
        return real(*arguments)

    calls: list[int] = []
    monkeypatch.setattr(rows, name, fails)
    with pytest.raises(OSError, match="is gone"):
        run(Launch(), tmp_path, told.append)
    assert [message["round"] for message in told] == [1, 2, 3, 4]
    assert run(Launch(), tmp_path)[0].tobytes() == finished[1].tobytes()


def test_a_chunk_size_left_out_is_measured_once_and_kept(finished, tmp_path, monkeypatch):
    measured: list[int] = []

    def best(model, local):
        measured.append(4)
        return 4

    monkeypatch.setattr(autotune, "best_chunk", best)
    free = replace(Launch(), runtime=Launch().runtime.model_copy(update={"chunk_devices": None}))

    # Before the first checkpoint already.
    with pytest.raises(Killed):
        run(free, tmp_path, killed_after(1))
    assert (tmp_path / "chunk_devices").read_text() == "4"
    assert stat.S_IMODE((tmp_path / "chunk_devices").stat().st_mode) == 0o600
    assert run(free, tmp_path)[0].tobytes() == finished[1].tobytes()
    assert measured == [4]
    # Rounds done again with another number would be other releases under the same noise.
    (tmp_path / "round-00000009.ckpt").unlink()
    seven = replace(Launch(), runtime=Launch().runtime.model_copy(update={"chunk_devices": 7}))
    with pytest.raises(ValueError, match=r"chunk_devices: 7, but the rounds began with 4, .* under the same noise"):
        run(seven, tmp_path)
    assert (tmp_path / "chunk_devices").read_text() == "4"
    (tmp_path / "chunk_devices").write_text("many")
    with pytest.raises(OSError, match="many"):
        run(free, tmp_path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"devices": join_owners([])}, "devices"),
        ({"devices": join_owners([np.array([WORDS, EOS])] * 5)}, "vocabulary"),
        ({"devices": join_owners([np.array([0, EOS])] * 5)}, "token ids"),
        ({"mechanism": mechanism().model_copy(update={"report_goal": 2**19})}, r"mechanism\.report_goal"),
    ],
)
def test_mistakes_are_named_before_the_first_round(tmp_path, changed, words):
    with pytest.raises(ValueError, match=words):
        run(replace(Launch(), **changed), tmp_path)
    assert not list(tmp_path.iterdir())


def test_training_tells_who_of_the_synthetic_joined_when(tmp_path):
    stress_D = np.arange(DEVICES) == DEVICES - 1
    _, result = run(Launch(), tmp_path / "one", stress_D=stress_D, stress_rate=1.0)
    assert result.synthetic_joined_TD.shape == (9, SYNTHETIC)
    assert result.synthetic_joined_TD[:, -1].all()
    assert tuple(result.synthetic_joined_TD.sum(axis=0)) == result.synthetic_participations
    assert result.observed.violations == 0
    with pytest.raises(ValueError, match="only synthetic devices may be outside"):
        run(Launch(), tmp_path / "two", stress_D=np.arange(DEVICES) == 0, stress_rate=1.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_infrastructure(tmp_path):
    with pytest.raises(OSError, match="no GPU"):
        run(replace(Launch(), runtime=RuntimeConfig(device="cuda")), tmp_path)


# Killed, damaged or asked for twice.


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
    with pytest.raises(Killed):
        run(Launch(), tmp_path, killed_after(7))
    newest = tmp_path / "round-00000006.ckpt"
    newest.write_bytes(newest.read_bytes()[:-100])
    told: list[dict] = []
    again_P, again = run(Launch(), tmp_path, told.append)
    assert [message["round"] for message in told] == [4, 5, 6, 7, 8, 9]
    assert again_P.tobytes() == finished[1].tobytes()
    assert again == finished[2]


def test_the_checkpoint_before_the_last_goes_by_a_later_call_too(finished, tmp_path):
    """As after a kill between the last checkpoint and the end of the run."""
    with pytest.raises(Killed):
        run(Launch(), tmp_path, killed_after(9))
    assert len([*tmp_path.glob("*.ckpt")]) == 2
    told: list[dict] = []
    assert run(Launch(), tmp_path, told.append)[0].tobytes() == finished[1].tobytes()
    assert (told, [path.name for path in tmp_path.glob("*.ckpt")]) == ([], ["round-00000009.ckpt"])


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
    """The run digest in a checkpoint file."""
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
