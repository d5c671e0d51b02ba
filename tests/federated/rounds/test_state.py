import logging
import stat

import numpy as np
import pytest

from federated.rounds.state import Checkpoint, newest_checkpoint, settle, write_checkpoint

RUN = "run digest"


def checkpoint(rounds: int, run: str = RUN) -> Checkpoint:
    rng = np.random.default_rng(rounds)
    arrays = {"weights": rng.normal(size=50), "mechanism.levels": np.arange(rounds), "count": np.zeros(3, np.int32)}
    return Checkpoint(rounds, run, arrays, [{"round": rounds, "loss": 0.1 + rounds}], {})


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return (one.rounds_done, one.run_digest, one.metrics) == (
        other.rounds_done,
        other.run_digest,
        other.metrics,
    ) and all(
        np.array_equal(one.arrays[name], other.arrays[name]) and one.arrays[name].dtype == other.arrays[name].dtype
        for name in one.arrays.keys() | other.arrays.keys()
    )


def test_what_is_saved_comes_back_and_is_private(tmp_path):
    assert newest_checkpoint(tmp_path, RUN) is None
    write_checkpoint(checkpoint(3), tmp_path)
    loaded = newest_checkpoint(tmp_path, RUN)
    assert loaded is not None
    assert same(loaded, checkpoint(3))
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_newest_is_loaded_and_old_ones_go(tmp_path):
    for rounds in (2, 4, 10, 100):
        write_checkpoint(checkpoint(rounds), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    loaded = newest_checkpoint(tmp_path, RUN)
    assert loaded is not None
    assert loaded.rounds_done == 100


def damage(content: bytes, how: str) -> bytes:
    match how:
        case "cut":
            return content[: len(content) // 2]
        case "empty":
            return b""
        case "bit":
            middle = len(content) // 2
            return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
        case "head":
            return content[10:]
    raise AssertionError(how)


@pytest.mark.parametrize("how", ["cut", "empty", "bit", "head"])
def test_a_damaged_one_is_passed_over(tmp_path, caplog, how):
    write_checkpoint(checkpoint(1), tmp_path)
    write_checkpoint(checkpoint(2), tmp_path)
    newest = max(tmp_path.iterdir())
    newest.write_bytes(damage(newest.read_bytes(), how))
    with caplog.at_level(logging.WARNING):
        loaded = newest_checkpoint(tmp_path, RUN)
    assert loaded is not None
    assert same(loaded, checkpoint(1))
    assert newest.name in caplog.text


@pytest.mark.parametrize("how", ["cut", "empty", "bit", "head"])
def test_the_one_before_goes_once_the_last_reads_back_whole(tmp_path, how):
    for number in (1, 2):
        write_checkpoint(checkpoint(number), tmp_path)
    newest = max(tmp_path.iterdir())
    whole = newest.read_bytes()
    newest.write_bytes(damage(whole, how))
    settle(tmp_path)
    assert same(newest_checkpoint(tmp_path, RUN), checkpoint(1))
    newest.write_bytes(whole)
    for _ in range(2):
        settle(tmp_path)
        assert [*tmp_path.iterdir()] == [newest]
    assert same(newest_checkpoint(tmp_path, RUN), checkpoint(2))


def test_all_damaged_means_from_the_start(tmp_path):
    write_checkpoint(checkpoint(1), tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"tacit")
    assert newest_checkpoint(tmp_path, RUN) is None


def test_a_write_that_was_cut_off_leaves_the_old_one(tmp_path):
    write_checkpoint(checkpoint(1), tmp_path)
    (tmp_path / ".round-00000002.ckpt.7.tmp").write_bytes(b"half")
    loaded = newest_checkpoint(tmp_path, RUN)
    assert loaded is not None
    assert loaded.rounds_done == 1
    write_checkpoint(checkpoint(2), tmp_path)
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["round-00000001.ckpt", "round-00000002.ckpt"]


def test_another_run_s_checkpoint_is_refused(tmp_path):
    write_checkpoint(checkpoint(1), tmp_path)
    with pytest.raises(ValueError, match="empty directory"):
        newest_checkpoint(tmp_path, "other run")
