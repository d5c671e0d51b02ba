"""Real processes over loopback."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from federated.workers.worker import Worker, joined
from pipeline.run.gang import torchrun
from tests.federated import shared_run
from tests.helpers.processes.ports import free_port

ROOT = Path(__file__).parents[3]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@pytest.mark.slow
@pytest.mark.usefixtures("forked_python")
def test_one_and_three_workers_make_the_same_bits(tmp_path):
    launched = torchrun(3, ["tests.federated.shared_run", str(tmp_path)], free_port())
    done = subprocess.run(launched, env=environment(), check=False, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = [(tmp_path / f"apart-3-{rank}").read_text() for rank in range(3)]
    assert all("settings, data, key or starting weights: workers differ" in text for text in told)
    mixed = [(tmp_path / f"mixed-3-{rank}").read_text() for rank in range(3)]
    assert all("the workers' processors are of different kinds" in text for text in mixed)
    assert list((tmp_path / "mixed").iterdir()) == []  # refused before anything began
    for name in shared_run.LAUNCHES:
        alone = pickle.loads(shared_run.outcome(name, tmp_path / f"{name}-1"))
        together = pickle.loads((tmp_path / f"{name}-3.pickle").read_bytes())
        assert together == alone, name
        kept = [sorted(path.name for path in (tmp_path / f"{name}-{n}").iterdir()) for n in (1, 3)]
        assert kept[0] == kept[1]
    # The comparison can fail: another launch is another outcome.
    assert pickle.loads((tmp_path / "by the clock-3.pickle").read_bytes()) != pickle.loads(
        (tmp_path / "plain-3.pickle").read_bytes()
    )


@pytest.mark.slow
def test_a_lost_worker_is_a_temporary_error_and_another_number_goes_on(tmp_path):
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    meeting |= {"TORCHELASTIC_RUN_ID": "test"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.federated.shared_run", str(tmp_path), "wait"],
            env=environment() | meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    ended = time.monotonic() + 300
    while not (tmp_path / "waiting").exists() and time.monotonic() < ended:
        time.sleep(0.02)
    started[1].send_signal(signal.SIGKILL)
    assert started[1].wait(timeout=300) == -signal.SIGKILL
    (tmp_path / "go").touch()
    assert started[0].wait(timeout=300) == 75
    assert "lost another one" in (tmp_path / "error-0").read_text()
    assert [path.name for path in (tmp_path / "run").glob("*.ckpt")] == ["round-00000003.ckpt"]
    again = shared_run.outcome("plain", tmp_path / "run")
    assert pickle.loads(again) == pickle.loads(shared_run.outcome("plain", tmp_path / "whole"))


def test_a_process_by_itself_needs_nobody():
    with joined() as worker:
        assert worker == Worker(0, 1)
        total_P, counts = worker.sum(torch.arange(3), np.array([4]))
        worker.agree(3, "round")
        assert worker.first(7) == 7
    assert total_P.tolist() == [0, 1, 2]
    assert counts.tolist() == [4]
