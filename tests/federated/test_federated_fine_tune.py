"""The round loop as a whole, on a model of a few hundred weights."""

import pickle
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from federated import server, train
from federated.config import LocalTrainingConfig, RuntimeConfig, ServerConfig, TreeMechanism
from federated.noise import seeded_key
from federated.participation import load_records
from federated.train import FineTuneResult, fine_tune
from pretrain.config import ModelConfig
from pretrain.model import KeyboardLM, build_model
from pretrain.vocabulary import EOS, TokenStream, join_owners

WORDS, DEVICES, SYNTHETIC = 40, 24, 3


def stream(devices: int, seed: int) -> TokenStream:
    rng = np.random.default_rng(seed)
    owners = []
    for device in range(devices):
        # Devices 0, 10 and 20 typed nothing that can be trained on.
        sizes = rng.integers(1, 9, size=device % 10)
        sentences = [np.append(rng.integers(3, WORDS, size=size), EOS) for size in sizes]
        owners.append(np.concatenate([np.empty(0, dtype=np.int64), *sentences]))
    return join_owners(owners)


def mechanism(**fields: object) -> TreeMechanism:
    base = {"kind": "tree", "noise_multiplier": 0.5, "clip_norm": 0.2, "rounds": 9, "report_goal": 6}
    base |= {"min_sep": 3, "max_participations": 2, "delta": 1e-5, "randomness": "seeded"}
    return TreeMechanism.model_validate(base | fields)


@dataclass(frozen=True)
class Launch:
    """Arguments of ``fine_tune`` but for model, directory and callbacks."""

    mechanism: TreeMechanism = field(default_factory=mechanism)
    local: LocalTrainingConfig = field(
        default_factory=lambda: LocalTrainingConfig(
            learning_rate=0.3, batch_sentences=2, sequence_words=5, max_words=12
        )
    )
    server: ServerConfig = field(default_factory=lambda: ServerConfig(learning_rate=0.7))
    runtime: RuntimeConfig = field(
        default_factory=lambda: RuntimeConfig(chunk_devices=4, checkpoint_every_rounds=3, evaluate_every_rounds=4)
    )
    devices: TokenStream = field(default_factory=lambda: stream(DEVICES, 1))
    seed: int = 11
    key: bytes = seeded_key(5)

    @property
    def synthetic_D(self) -> np.ndarray:
        return np.arange(len(self.devices)) >= len(self.devices) - SYNTHETIC


def model_at_start() -> KeyboardLM:
    return build_model(ModelConfig(embedding_dim=4, hidden_dim=6, tied=True), WORDS, seed=2)


def run(launch: Launch, directory: Path, on_round=None, threads: int = 1) -> tuple[np.ndarray, FineTuneResult]:
    """Flat weights at the end, and the result."""
    model = model_at_start()
    result = fine_tune(
        model,
        launch.devices,
        launch.synthetic_D,
        stream(8, 99),
        launch.mechanism,
        launch.local,
        launch.server,
        launch.runtime,
        launch.seed,
        launch.key,
        directory,
        on_round,
        threads,
    )
    return server.flat_weights(model), result


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
    assert names == ["participation.parquet", "round-00000006.ckpt", "round-00000009.ckpt"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in directory.iterdir())


def test_a_finished_run_is_not_done_again(finished):
    directory, weights_P, result = finished
    before = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
    told: list[dict] = []
    again_P, again = run(Launch(), directory, told.append)
    assert not told
    assert again == result
    np.testing.assert_array_equal(again_P, weights_P)
    assert before == {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}


def test_progress_is_told_every_round(tmp_path):
    told: list[dict] = []
    run(Launch(), tmp_path, told.append)
    assert [message["round"] for message in told] == list(range(1, 10))
    assert [message["round"] for message in told if "validation_loss" in message] == [4, 8, 9]


def test_threads_do_not_change_the_model(finished, tmp_path):
    np.testing.assert_array_equal(run(Launch(), tmp_path, threads=3)[0], finished[1])


CHILD = """
import os, pickle, signal, sys
sys.path.insert(0, sys.argv[1])
from test_federated_fine_tune import Launch, run
directory, kill_at, out = sys.argv[2], int(sys.argv[3]), sys.argv[4]
from pathlib import Path
def on_round(message):
    if message["round"] == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
weights, result = run(Launch(), Path(directory), on_round)
Path(out).write_bytes(pickle.dumps((weights, result)))
"""


def child(directory: Path, kill_at: int, out: Path) -> int:
    arguments = [str(Path(__file__).parent), str(directory), str(kill_at), str(out)]
    # A process killed for real: no handler runs, nothing is flushed.
    return subprocess.run([sys.executable, "-c", CHILD, *arguments], check=False, timeout=120).returncode


def test_killed_twice_and_resumed_is_bitwise_the_same(finished, tmp_path):
    _, weights_P, result = finished
    work, out = tmp_path / "work", tmp_path / "out"
    # Checkpoints stand after rounds 3, 6 and 9: round 2 is before the first, round 5 between two.
    for kill_at in (2, 5):
        assert child(work, kill_at, out) == -signal.SIGKILL
        assert not out.exists()
    assert child(work, 0, out) == 0
    resumed_P, resumed = pickle.loads(out.read_bytes())
    assert resumed_P.tobytes() == weights_P.tobytes()
    assert resumed == result


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
        {"server": ServerConfig(learning_rate=0.7, momentum=0.5)},
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
    path = tmp_path / "participation.parquet"
    whole = load_records(path)
    train.participation.save_records(whole.before(5), path)
    with pytest.raises(OSError, match="damaged"):
        run(Launch(), tmp_path)
    path.unlink()
    with pytest.raises(OSError, match="participation"):
        run(Launch(), tmp_path)


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
    blown = replace(launch, local=launch.local.model_copy(update={"learning_rate": 1e38}))
    change_P = first_step(blown, directory)
    promised = blown.mechanism.noise_multiplier * blown.mechanism.clip_norm / blown.mechanism.report_goal
    return float(change_P.std() / (promised * blown.server.learning_rate)) - 1


@pytest.mark.statistical
def test_noise_is_as_promised_and_the_same_check_rejects_two_thirds(tmp_path, monkeypatch):
    # Four standard errors of the standard deviation of the model's 386 weights.
    tolerance = 4 / (2 * 386) ** 0.5
    assert abs(noise_off_by(Launch(), tmp_path / "ours")) < tolerance
    release = train.release
    monkeypatch.setattr(train, "release", lambda total_P, noise_P, norm: release(total_P, noise_P * 2 / 3, norm))
    assert abs(noise_off_by(Launch(), tmp_path / "less")) > tolerance


def test_updates_that_are_not_finite_do_not_stop_a_run(tmp_path):
    blown = replace(Launch(), local=Launch().local.model_copy(update={"learning_rate": 1e38}))
    weights_P, result = run(blown, tmp_path)
    assert np.isfinite(weights_P).all()
    assert result.rounds == 9


def test_noise_is_drawn_before_text_is_read(tmp_path, monkeypatch):
    order: list[str] = []
    for module, name in ((train, "cohort_rows"), (train.mechanisms.Tree, "noise"), (train, "release")):
        real = getattr(module, name)

        def noted(*arguments, real=real, name=name):
            order.append(name)
            return real(*arguments)

        monkeypatch.setattr(module, name, noted)
    run(Launch(), tmp_path)
    assert order == ["noise", "cohort_rows", "release"] * 9


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"devices": join_owners([])}, "devices"),
        ({"devices": join_owners([np.array([WORDS, EOS])] * 5)}, "vocabulary"),
        ({"devices": join_owners([np.array([0, EOS])] * 5)}, "token ids"),
        ({"runtime": RuntimeConfig(workers=2)}, r"runtime\.workers"),
        ({"mechanism": mechanism(report_goal=2**19)}, r"mechanism\.report_goal"),
    ],
)
def test_mistakes_are_named_before_the_first_round(tmp_path, changed, words):
    with pytest.raises(ValueError, match=words):
        run(replace(Launch(), **changed), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_infrastructure(tmp_path):
    with pytest.raises(OSError, match="no GPU"):
        run(replace(Launch(), runtime=RuntimeConfig(device="cuda")), tmp_path)
