"""Real processes over loopback."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shared_round
import torch

from federated.client import one_torch_thread
from federated.distributed import Worker, joined, launch_command

HERE = Path(__file__).parent


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(workers: int, directory: Path, *more: str) -> list[int]:
    """Exit codes of workers that nobody watches over."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(workers)}
    meeting |= {"TORCHELASTIC_RUN_ID": "test"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "shared_round", str(directory), *more],
            env=environment() | meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(workers)
    ]
    return [process.wait(timeout=110) for process in started]


@pytest.mark.slow
def test_one_two_and_three_workers_make_the_same_bits(tmp_path):
    with one_torch_thread():
        assert shared_round.main(tmp_path, lose=False) == 0
    assert start(2, tmp_path) == [0, 0]
    launched = launch_command(3, "shared_round", [str(tmp_path)])
    assert subprocess.run(launched, env=environment(), check=False, timeout=110).returncode == 0
    for number in range(3):
        one, *others = (np.load(tmp_path / f"{workers}-{number}.npz") for workers in (1, 2, 3))
        assert np.count_nonzero(one["total_P"])
        for other in others:
            assert other["total_P"].tobytes() == one["total_P"].tobytes()
            assert other["counts"].tobytes() == one["counts"].tobytes()


@pytest.mark.slow
def test_a_lost_worker_is_a_temporary_error(tmp_path):
    assert start(2, tmp_path, "lose") == [75, 9]
    assert (tmp_path / "2-0.npz").exists()
    assert not (tmp_path / "2-1.npz").exists()
    assert "lost another one" in (tmp_path / "error-0").read_text()


def test_a_process_by_itself_needs_nobody():
    with joined() as worker:
        assert worker == Worker(0, 1)
        total_P, counts = worker.sum(torch.arange(3), np.array([4]))
        worker.agree(3, "round")
    assert total_P.tolist() == [0, 1, 2]
    assert counts.tolist() == [4]
    assert launch_command(4, "pipeline.cli", ["stage"])[0] == sys.executable
