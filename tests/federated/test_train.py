"""The round loop as a whole, on a model of a few hundred weights."""

import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from federated.config.training import RuntimeConfig
from federated.local_training import autotune, rows
from federated.mechanisms.tree import Tree
from federated.participation.records import load_records
from federated.rounds import privatize, server
from federated.train import FineTuneResult
from pretrain.vocabulary import EOS, join_owners
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
    checkpoints = ["round-00000006.ckpt", "round-00000009.ckpt"]
    assert names == ["chunk_devices", "participation.parquet", "processor", *checkpoints]
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert len(files) == 2 + 2 + 3
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
    for module, name in ((rows, "cohort_rows"), (Tree, "noise"), (privatize, "release")):
        real = getattr(module, name)

        def noted(*arguments, real=real, name=name):
            order.append(name)
            return real(*arguments)

        monkeypatch.setattr(module, name, noted)
    run(Launch(), tmp_path)
    assert order == ["noise", "cohort_rows", "release"] * 9


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
