"""Agents on three loopback addresses, whose workers are short programs."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from federated.wire.launcher import Seat, launch_command
from pipeline.errors import StaleAttempt
from pipeline.hosts import fence, gang, messages
from pipeline.hosts.agent import Agent, interface_of
from pipeline.hosts.job import Job, Token, command
from tests.helpers.processes.ports import free_port

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
LEASE = 6.0
# Leaves a file with its place in the name and its process in it, then waits for one with its exit code in it.
WORKER = """
import os, pathlib, sys, time
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / "beginning").mkdir(exist_ok=True)
(folder / "beginning" / name).write_text(str(os.getpid()))
(folder / "beginning" / name).rename(folder / ("began-" + name))
while not (folder / "end").exists():
    time.sleep(0.02)
sys.exit(int((folder / "end").read_text()))
"""


def token(attempt: int, stage: str = "fine_tune") -> Token:
    return Token(launch="launch-1", stage=stage, attempt=attempt)


def job(attempt: int, hosts: tuple[str, ...], lease_seconds: float = LEASE) -> Job:
    return Job(
        token=token(attempt), hosts=hosts, number=0, port=1, workers=1, lease_seconds=lease_seconds, level="INFO"
    )


class Hosts:
    """Agents of this process, one an address, which see the same folder of runs."""

    def __init__(self, runs: Path) -> None:
        self.runs, self.folder = runs, runs / "launch-1" / "private" / "fine_tune"
        self.folder.mkdir(parents=True, mode=0o700)
        self.secret = messages.shared_secret(runs)
        self.addresses = [f"{host}:{free_port(host)}" for host in ADDRESSES]
        self.threads: list[threading.Thread] = []
        self._stops: dict[str, threading.Event] = {}

    def start(self, *addresses: str) -> None:
        for address in addresses or self.addresses:
            self._stops[address] = threading.Event()
            agent = Agent(address, self.runs, self.worker)
            self.threads.append(threading.Thread(target=agent.serve, args=(self._stops[address],)))
            self.threads[-1].start()
        for address in addresses or self.addresses:
            wait_for(lambda address=address: hears(address))

    def stop(self, *addresses: str) -> None:
        for address in addresses or self._stops:
            self._stops[address].set()

    def worker(self, job: Job, seat: Seat, runs: Path, ends_with: int) -> list[str]:
        assert (runs, ends_with) == (self.runs, os.getpid())
        assert seat.address == messages.place(job.hosts[job.number])[0]
        name = f"{job.token.attempt}-{job.number}-{len(job.hosts)}"
        return [sys.executable, "-IS", "-c", WORKER, str(self.runs), name]

    def began(self) -> set[str]:
        return {path.name.removeprefix("began-") for path in self.runs.glob("began-*")}

    def end(self, code: int) -> None:
        (self.runs / "ending").write_text(str(code))
        (self.runs / "ending").rename(self.runs / "end")

    def run(self, most: int = 3, attempt: int | None = None) -> None:
        asked = token(attempt or fence.begin(self.folder))
        gang.run(self.folder, asked, self.addresses, most, 1, self.secret, LEASE)

    def ask(self, what: str, attempt: int) -> list[dict]:
        question = {"ask": what, "token": token(attempt).model_dump()}
        return [messages.ask(each, question, self.secret) for each in self.addresses]


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setattr(gang, "POLL_SECONDS", 0.05)
    made = Hosts(tmp_path)
    yield made
    made.stop()
    for thread in made.threads:
        thread.join()


def aside(work: Callable[[], None]) -> tuple[threading.Thread, list[Exception]]:
    """A thread that runs something, and what that raised."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            work()
        except (OSError, StaleAttempt) as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def hears(address: str) -> bool:
    try:
        socket.create_connection(messages.place(address), timeout=1).close()
    except OSError:
        return False
    return True


def wait_for(true: Callable[[], bool]) -> None:
    ended = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ended, "nothing happened"
        time.sleep(0.01)


def test_each_host_has_its_number_and_the_hosts_that_are_there_are_taken(hosts: Hosts) -> None:
    hosts.start(*hosts.addresses[:2])
    hosts.end(0)
    hosts.run(most=3)
    assert hosts.began() == {"1-0-2", "1-1-2"}
    hosts.run(most=1)
    assert hosts.began() == {"1-0-2", "1-1-2", "2-0-1"}


def test_where_no_agent_answers_the_error_is_temporary(hosts: Hosts) -> None:
    with pytest.raises(OSError, match="TACIT_HOSTS: none of"):
        hosts.run()


def test_a_lost_worker_ends_the_attempt_everywhere(hosts: Hosts) -> None:
    hosts.start()
    hosts.end(9)
    with pytest.raises(OSError, match="a worker was lost"):
        hosts.run()
    assert all(answer["state"] == "ended" for answer in hosts.ask("poll", 1))


def test_a_lost_agent_ends_the_attempt_and_the_next_takes_who_is_left(hosts: Hosts) -> None:
    hosts.start()
    thread, raised = aside(hosts.run)
    wait_for(lambda: len(hosts.began()) == 3)
    hosts.stop(hosts.addresses[1])
    thread.join()
    assert "run the stage again" in str(raised[0])
    hosts.end(0)
    hosts.run()
    assert hosts.began() >= {"2-0-2", "2-1-2"}


def test_an_orphan_gang_ends_with_its_lease(hosts: Hosts) -> None:
    hosts.start()
    fence.begin(hosts.folder)
    fence.hand_over(hosts.folder, 1)
    question = {"ask": "start", "job": job(1, tuple(hosts.addresses[:1]), 4.0).model_dump()}
    assert messages.ask(hosts.addresses[0], question, hosts.secret) == {"state": "running"}
    for _ in range(6):  # asked after, it lives
        time.sleep(0.8)
        assert hosts.ask("poll", 1)[0] == {"state": "running"}
    wait_for(lambda: len(hosts.began()) == 1)
    (began,) = hosts.runs.glob("began-*")
    wait_for(lambda: not Path(f"/proc/{began.read_text()}").exists())
    assert hosts.ask("poll", 1)[0]["state"] == "ended"
    assert hosts.ask("poll", 1)[1] == {"state": "unknown"}


def test_a_later_attempt_goes_on_with_the_gang_that_is_whole(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts.start()
    asked_after: list[gang.Gang] = []
    with monkeypatch.context() as patched:  # As if whoever submitted it was killed, twice.
        patched.setattr(gang, "wait", asked_after.append)
        hosts.run()
        wait_for(lambda: len(hosts.began()) == 3)
        hosts.run()
    assert [each.token.attempt for each in asked_after] == [1, 1]
    hosts.end(0)
    gang.wait(asked_after[1])
    assert hosts.began() == {"1-0-3", "1-1-3", "1-2-3"}, "no second gang"
    assert fence.current(hosts.folder) == {"attempt": 2, "gang": 1}


def test_a_stale_attempt_starts_and_cancels_nothing(hosts: Hosts) -> None:
    hosts.start()
    stale, newer = fence.begin(hosts.folder), fence.begin(hosts.folder)
    with pytest.raises(StaleAttempt):
        hosts.run(attempt=stale)
    thread, raised = aside(lambda: hosts.run(attempt=newer))
    wait_for(lambda: len(hosts.began()) == 3)
    question = {"ask": "start", "job": job(stale, tuple(hosts.addresses[:1])).model_dump()}
    answer = messages.ask(hosts.addresses[0], question, hosts.secret)
    assert answer == {"refused": f"attempt {stale}: {newer} has begun here"}
    hosts.ask("cancel", stale)
    assert all(answer == {"state": "running"} for answer in hosts.ask("poll", newer))
    hosts.end(0)
    thread.join()
    assert not raised


def test_an_agent_that_knows_of_no_other_attempt_asks_the_fence(hosts: Hosts) -> None:
    hosts.start(hosts.addresses[0])
    stale, newer = fence.begin(hosts.folder), fence.begin(hosts.folder)
    fence.hand_over(hosts.folder, newer)
    question = {"ask": "start", "job": job(stale, tuple(hosts.addresses[:1])).model_dump()}
    answer = messages.ask(hosts.addresses[0], question, hosts.secret)
    assert answer == {"refused": "fine_tune: gang 1 may write no more, as gang 2 has begun since"}
    assert not hosts.began()


def test_what_stops_the_stage_cancels_the_gang(hosts: Hosts) -> None:
    hosts.start()

    def stop() -> None:
        wait_for(lambda: len(hosts.began()) == 3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=stop)
    # A shell's background job is started deaf to the interrupt.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            hosts.run()
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert all(answer["state"] == "ended" for answer in hosts.ask("poll", 1))


def test_an_agent_runs_one_program_for_launches_of_its_own_folder(hosts: Hosts) -> None:
    hosts.start(hosts.addresses[0])
    for question, why in (
        ({"ask": "run", "command": ["id"]}, "'run' is no question"),
        ({"ask": "start", "job": {"command": ["id"]}}, "Extra inputs are not permitted"),
        ({"ask": "poll"}, "token"),
        ({"ask": "start", "job": job(1, tuple(hosts.addresses)).model_dump() | {"token": odd()}}, "is not a launch id"),
    ):
        assert why in messages.ask(hosts.addresses[0], question, hosts.secret)["refused"]


def odd() -> dict:
    return token(1).model_dump() | {"launch": "../launch-1"}


def test_the_command_of_a_hosts_workers() -> None:
    asked, seat = (
        job(3, ("198.51.100.1:7117", "198.51.100.2:7117")),
        Seat(2, 1, "198.51.100.2", "eth0", "198.51.100.1", 29),
    )
    with pytest.raises(
        ValueError, match="stage: 'audit' does not run on several hosts; only discover, fine_tune, ingest_private"
    ):
        command(asked.model_copy(update={"token": token(1, "audit")}), seat, Path("/runs"), 7)
    started = command(asked, seat, Path("/runs"), 7)
    assert started[-6:] == ["pipeline.stages.training.fine_tune_workers", "/runs", "launch-1", "7", "INFO", "3"]
    assert {"--nnodes=2", "--node-rank=1", "--rdzv-backend=static", "--max-restarts=0"} <= set(started)
    assert "GLOO_SOCKET_IFNAME=eth0" in started
    assert "GLOO_SOCKET_IFNAME=lo" in launch_command(2, "module", [])


def test_a_launch_that_asks_for_hosts_says_who_they_are() -> None:
    gang.require_hosts(1, ())
    gang.require_hosts(2, ("198.51.100.1:7117",))
    with pytest.raises(ValueError, match=r"runtime\.hosts: 2, but TACIT_HOSTS names no agents"):
        gang.require_hosts(2, ())
    with pytest.raises(ValueError, match="is no address of an agent"):
        gang.require_hosts(2, ("nowhere",))
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:7 stands there twice"):
        gang.require_hosts(2, ("127.0.0.1:7", "127.0.0.1:7"))
    assert interface_of("127.0.0.9") == "lo"
    with pytest.raises(ValueError, match="no interface of this machine has the address"):
        interface_of("203.0.113.1")
