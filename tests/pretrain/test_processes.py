"""Processes that share work do not outlive the one that started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pretrain import processes

ROOT = Path(__file__).parents[2]
PARENT = """
import os, sys
from pretrain import processes
if __name__ == "__main__":
    with processes.pool(2) as pool:
        print(*{pool.submit(os.getpid).result() for _ in range(50)}, flush=True)
        sys.stdin.read()
"""


@pytest.mark.slow
def test_a_pool_ends_with_who_started_it_however_it_ends(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT, encoding="utf-8")
    command, variables = [sys.executable, str(tmp_path / "parent.py")], os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        started = [int(number) for number in parent.stdout.readline().split()]
        assert all(Path(f"/proc/{number}").exists() for number in started)
        assert started
        parent.send_signal(signal.SIGKILL)
    ended = time.monotonic() + 60
    while any(_works(number) for number in started):
        assert time.monotonic() < ended, "it still works"
        time.sleep(0.02)


def test_who_is_gone_already_is_noticed() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    child = os.fork()
    if child == 0:
        processes.end_with(gone.pid, 75)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 75


def _works(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
