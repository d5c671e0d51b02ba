"""Gangs on two addresses of this machine: the bits of one process, nothing to read between them, and faults."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from pipeline.run import fence, gang
from tests.helpers.launches import small_run
from tests.helpers.launches.gangs import SLURM, THIS_MACHINE
from tests.pipeline.run import gang_run

ROOT = Path(__file__).parents[3]
ETH_P_ALL = 3


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Weights of the same run by one process."""
    return small_run.run(gang_run.LAUNCH, tmp_path_factory.mktemp("alone"))[0].tobytes()


@pytest.fixture
def attempt(tmp_path: Path, forked_python: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bytes]:
    """An attempt by so many hosts and workers, and the weights that it leaves."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(hosts: int, workers: int, template: str = THIS_MACHINE) -> bytes:
        number = fence.begin(tmp_path)
        program = ["tests.pipeline.run.gang_run", str(tmp_path), str(number)]
        gang.run(hosts, workers, template, program, tmp_path / str(number))
        return (tmp_path / f"weights-{hosts * workers}").read_bytes()

    return run


def left_of(name: Path) -> list[str]:
    """Commands at work that have a name among their words."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(path.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # ended meanwhile
    return [command for command in commands if str(name) in command and "pytest" not in command]


@contextmanager
def overheard() -> Iterator[bytearray]:
    """All bytes that cross the loopback interface while the block runs."""
    heard, ended = bytearray(), threading.Event()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as ear:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        ear.bind(("lo", 0))
        ear.settimeout(0.1)

        def listen() -> None:
            while not ended.is_set():
                try:
                    heard.extend(ear.recv(1 << 17))
                except TimeoutError:
                    continue

        listening = threading.Thread(target=listen)
        listening.start()
        try:
            yield heard
        finally:
            ended.set()
            listening.join()


def runs_of(content: bytes, step: int) -> set[bytes]:
    """Every 32 bytes in a row: four words."""
    return {content[at : at + 32] for at in range(0, len(content) - 31, step)}


def long_runs(vector_P: np.ndarray) -> set[bytes]:
    """Four words in a row that are no counters, addresses or zeros: nothing has them by chance."""
    runs = runs_of(vector_P.tobytes(), step=8)
    return {run for run in runs if (np.abs(np.frombuffer(run, np.int64)) > 2**32).all()}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root listens to an interface")
def test_hosts_make_the_same_bits_and_nobody_between_them_reads_an_addend(
    attempt: Callable[..., bytes], expected: bytes, tmp_path: Path
) -> None:
    with overheard() as heard:
        assert attempt(2, 2) == expected
    added = [[np.load(tmp_path / "addends" / f"1-{n}-{rank}.npy") for rank in range(4)] for n in range(1, 10)]
    sums = [
        np.sum(some, axis=0, dtype=np.int64)
        for addends in added
        for count in (1, 2, 3, 4)
        for some in combinations(addends, count)
    ]
    assert len(heard) > 2 * 3 * sum(addends[0].nbytes for addends in added), "all of it went over the interface"
    searched = set().union(*map(long_runs, sums))
    assert len(searched) > 1_000
    assert searched.isdisjoint(runs_of(bytes(heard), step=1))
    # What is sent in the open is found.
    spoken = np.random.default_rng().integers(2**40, 2**41, 100)
    with overheard() as heard, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        mouth.sendto(spoken.tobytes(), ("127.0.0.1", 9))
        wait_for(lambda: spoken.tobytes() in heard)
    assert long_runs(spoken) <= runs_of(bytes(heard), step=1)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["before-3", "in-3", "after-3", "host-0", "host-2"])
def test_who_is_lost_ends_the_attempt_and_the_next_one_resumes_to_the_same_bits(
    attempt: Callable[..., bytes], expected: bytes, tmp_path: Path, fault: str
) -> None:
    """A worker before, in and after an exchange of sums, or a host's torchrun: in round 5 of 9."""
    (tmp_path / f"kill-{fault}").touch()
    with pytest.raises(OSError, match=r"one of 4 workers was lost .* run the stage again"):
        attempt(2, 2)
    wait_for(lambda: not left_of(tmp_path), seconds=60)
    assert [path.name for path in (tmp_path / "rounds").glob("*.ckpt")] == ["round-00000003.ckpt"]
    assert attempt(1, 2) == expected


@pytest.mark.slow
def test_a_worker_suspended_before_its_write_comes_back_to_a_newer_attempt_and_writes_nothing(
    attempt: Callable[..., bytes], expected: bytes, tmp_path: Path
) -> None:
    """Worker 0, at the checkpoint after round 3, while a gang that was given up still waits for it."""
    (tmp_path / "stop-writing-0").touch()
    with ThreadPoolExecutor(1) as aside:
        first = aside.submit(attempt, 2, 1)
        wait_for((tmp_path / "stopped").exists)
        suspended = int((tmp_path / "stopped").read_text(encoding="utf-8"))
        try:
            wait_for(lambda: Path(f"/proc/{suspended}/stat").read_text().rpartition(")")[2].split()[0] == "T")
            assert attempt(1, 2) == expected
            written = modified(tmp_path / "rounds")
        finally:
            os.kill(suspended, signal.SIGCONT)
        with pytest.raises(OSError, match="one of 2 workers was lost"):
            first.result()
    assert modified(tmp_path / "rounds") == written
    assert "attempt 1 may no longer write, as attempt 2 has begun" in (tmp_path / "stale").read_text(encoding="utf-8")
    wait_for(lambda: not left_of(tmp_path), seconds=60)


def modified(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.services
def test_nodes_of_slurm_end_with_a_killed_task_and_resume_to_the_same_bits(
    attempt: Callable[..., bytes],
    expected: bytes,
    slurm: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "kill-in-3").touch()
    with pytest.raises(OSError, match="one of 4 workers was lost"):
        attempt(2, 2, SLURM)
    wait_for(lambda: not left_of(tmp_path), seconds=60)
    assert [path.name for path in (tmp_path / "rounds").glob("*.ckpt")] == ["round-00000003.ckpt"]
    assert attempt(2, 2, SLURM) == expected


@pytest.mark.slow
def test_hosts_of_several_kinds_are_refused_as_the_gang_forms(attempt: Callable[..., bytes], tmp_path: Path) -> None:
    (tmp_path / "other-kind").touch()
    with pytest.raises(OSError, match="one of 4 workers was lost"):
        attempt(2, 2)
    told = [path.read_text(encoding="utf-8") for path in tmp_path.glob("refused-*")]
    assert told
    assert all("let TACIT_GANG choose hosts of one kind" in each for each in told)
    assert not (tmp_path / "addends").exists(), "no update was added up"
    assert not list((tmp_path / "rounds").glob("*.ckpt"))
    (tmp_path / "other-kind").unlink()
    attempt(2, 2)


def test_the_first_host_that_fails_ends_the_others_and_says_how(tmp_path: Path) -> None:
    script = 'echo $$ > "$0/$PET_NODE_RANK"; [ $PET_NODE_RANK = 1 ] && exit 7; exec sleep 600'
    words = gang.filled_in(THIS_MACHINE, 3, 1, ["sh", "-c", script, str(tmp_path)])
    assert subprocess.run(words, check=False, timeout=300).returncode == 7
    assert not left_of(tmp_path)
    words = gang.filled_in(THIS_MACHINE, 3, 1, ["true"])
    assert subprocess.run(words, check=False, timeout=300).returncode == 0


def test_what_stops_the_stage_ends_the_gang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"import os, pathlib, time; pathlib.Path({str(tmp_path / 'began')!r}).touch(); time.sleep(600)"
    monkeypatch.setattr(gang, "torchrun", lambda *_: [sys.executable, "-c", script])

    def stop() -> None:
        wait_for((tmp_path / "began").exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=stop)
    # A shell's background job is started deaf to the interrupt.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            gang.run(1, 1, "", [], tmp_path)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not left_of(tmp_path)


def test_the_command_of_an_installation() -> None:
    command = gang.torchrun(4, ["module", "an argument"], 29, hosts=2)
    assert command[-3:] == ["-m", "module", "an argument"]
    assert {"--nnodes=2", "--nproc-per-node=4", "--rdzv-backend=static", "--master-port=29"} <= set(command)
    assert "--max-restarts=0" in command
    assert not {"PET_NODE_RANK=0", "GLOO_SOCKET_IFNAME=lo"} & set(command), "each host's own"
    assert {"PET_NODE_RANK=0", "GLOO_SOCKET_IFNAME=lo"} <= set(gang.torchrun(4, ["module"], 29))
    words = gang.filled_in("srun -N{hosts} sh -c 'echo {workers}; exec \"$@\"' gang {command}", 2, 4, command)
    assert words == ["srun", "-N2", "sh", "-c", 'echo 4; exec "$@"', "gang", *command]


def test_a_launch_that_asks_for_hosts_needs_a_command_that_starts_them() -> None:
    gang.require(1, "")
    gang.require(2, THIS_MACHINE)
    with pytest.raises(ValueError, match=r"runtime\.hosts: 2, but TACIT_GANG, .* is not set"):
        gang.require(2, "")
    with pytest.raises(ValueError, match=r"TACIT_GANG: no word is \{command\}"):
        gang.require(2, "srun sh -c 'exec {command}'")
    with pytest.raises(ValueError, match="TACIT_GANG: No closing quotation; quote it as for a shell"):
        gang.require(2, "srun sh -c '{command}")


def test_attempts_meet_at_ports_of_their_own() -> None:
    ports = {gang.port_of(Path(f"/runs/launch-1/private/fine_tune/{number}")) for number in range(20)}
    assert len(ports) == 20
    assert ports <= set(range(20_000, 30_000))


def wait_for(true: Callable[[], bool], seconds: float = 300.0) -> None:
    ended = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ended, "nothing happened"
        time.sleep(0.02)
