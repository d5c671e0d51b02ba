"""A command whose task is stopped, or dies."""

import os
import signal
import threading

import pytest

from .conftest import StandIn, operator, wait_for

pytestmark = pytest.mark.slow


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_killing_a_task_stops_the_command_and_its_children(dagbag, stand_in: StandIn, tmp_path, monkeypatch):
    task = operator(dagbag)
    leader = tmp_path / "leader"
    script = f"echo $$ > {leader}.new; mv {leader}.new {leader}; sleep 600 & sleep 600"
    result: list[tuple[int, str]] = []
    monkeypatch.setenv("TACIT_BIN", "/bin/bash")
    thread = threading.Thread(target=lambda: result.append(task.run_command(["-c", script])))
    thread.start()
    wait_for(leader.exists)
    group = int(leader.read_text())
    assert alive(group)
    task.on_kill()
    thread.join(timeout=300)
    assert result[0][0] < 0
    wait_for(lambda: not alive(group))


def test_a_command_ends_with_the_task_that_was_killed(dagbag, stand_in: StandIn, tmp_path, monkeypatch):
    task = operator(dagbag)
    leader = tmp_path / "leader"
    monkeypatch.setenv("TACIT_BIN", "/bin/bash")
    task_process = os.fork()
    if task_process == 0:
        try:
            task.run_command(["-c", f"echo $$ > {leader}.new; mv {leader}.new {leader}; exec sleep 600"])
        finally:
            os._exit(0)
    wait_for(leader.exists)
    group = int(leader.read_text())
    assert alive(group)
    os.kill(task_process, signal.SIGKILL)
    os.waitpid(task_process, 0)
    wait_for(lambda: not alive(group))
