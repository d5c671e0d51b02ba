"""Hosts in network namespaces: the same bits from 1, 2 and 3 of them, nothing to read between them, and faults."""

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from pipeline.hosts import fence, gang, messages
from pipeline.hosts.job import Token
from tests.helpers.launches import hosted_run, small_run
from tests.helpers.processes.network import Network, unavailable

pytestmark = pytest.mark.slow
HOSTS, PORT, LEASE = 3, 7117, 6.0
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if why := unavailable():
        pytest.skip(why)
    made = Network(HOSTS)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Weights of the same run by one process."""
    return small_run.run(hosted_run.LAUNCH, tmp_path_factory.mktemp("alone"))[0].tobytes()


class Hosts:
    """An agent on each host, and attempts submitted from host 1."""

    def __init__(self, network: Network, runs: Path, python: Path) -> None:
        self.network, self.runs, self.folder = network, runs, runs / "launch-1" / "private" / "fine_tune"
        self.folder.mkdir(parents=True, mode=0o700)
        self.secret, self._python = messages.shared_secret(runs), python
        self.addresses = [f"{network.address(host)}:{PORT}" for host in network.hosts]
        self.agents = {host: self.start(host) for host in network.hosts}

    def start(self, host: int) -> subprocess.Popen[bytes]:
        command = [str(self._python), "-m", "tests.helpers.processes.agent", self.addresses[host - 1], str(self.runs)]
        variables = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(self.network.command(host, *command), cwd=ROOT, env=variables)
        self.network.on(host, lambda: wait_for(lambda: self.hears(host)))
        return process

    def hears(self, host: int) -> bool:
        try:
            socket.create_connection((self.network.address(host), PORT), timeout=1).close()
        except OSError:
            return False
        return True

    def run(self, most: int = HOSTS) -> None:
        token = Token(launch="launch-1", stage="fine_tune", attempt=fence.begin(self.folder))
        self.network.on(1, lambda: gang.run(self.folder, token, self.addresses, most, 1, self.secret, LEASE))

    def weights(self, hosts: int) -> bytes:
        return (self.folder / f"weights-{hosts}").read_bytes()

    def took(self) -> list[str]:
        return json.loads((self.folder / ".gang.json").read_text(encoding="utf-8"))["hosts"]

    def stop(self) -> None:
        for host, process in self.agents.items():
            process.kill()
            process.wait()
            self.network.on(host, lambda host=host: wait_for(lambda: not self.hears(host)))
        self.network.mend()


@pytest.fixture
def hosts(network: Network, tmp_path: Path, forked, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setattr(gang, "POLL_SECONDS", 0.1)
    made = Hosts(network, tmp_path, forked.python)
    yield made
    made.stop()


def wait_for(true: Callable[[], bool], seconds: float = 120.0) -> None:
    ended = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ended, "nothing happened"
        time.sleep(0.02)


def windows(listened: bytearray) -> np.ndarray:
    """Every eight bytes in a row, as one word."""
    heard = bytes(listened)
    return np.unique(np.concatenate([np.frombuffer(heard, "<u8", (len(heard) - at) // 8, at) for at in range(8)]))


def long_words(vector_P: np.ndarray) -> np.ndarray:
    """Those that no counter or address could be by chance."""
    words = vector_P.view(np.uint64)
    return words[(np.abs(vector_P) > 2**36)]


def test_hosts_make_the_same_bits_and_nobody_between_them_reads_an_addend(hosts: Hosts, expected: bytes) -> None:
    for most in (1, 2):
        hosts.run(most)
        assert hosts.weights(most) == expected
        for path in (hosts.folder / "rounds").glob("*.ckpt"):
            path.unlink()
    with hosts.network.overheard() as heard:
        hosts.run(3)
    assert hosts.weights(3) == expected
    added = [[np.load(hosts.runs / "addends" / f"3-{n}-{rank}.npy") for rank in range(3)] for n in range(1, 10)]
    sums = [
        np.sum(some, axis=0, dtype=np.int64)
        for addends in added
        for count in (1, 2, 3)
        for some in combinations(addends, count)
    ]
    assert len(heard) > 2 * 2 * sum(addends[0].nbytes for addends in added), "all of it went over the bridge"
    assert not np.isin(long_words(np.concatenate(sums)), windows(heard)).any()
    # What is sent in the open is found.
    spoken = added[0][0]
    with hosts.network.overheard() as heard:
        hosts.network.on(2, lambda: speak(spoken[:100], hosts.network.address(3)))
        wait_for(lambda: spoken[:100].tobytes() in heard)
    assert np.isin(long_words(spoken[:100]), windows(heard)).all()


@pytest.mark.parametrize("fault", ["cut", "swallow", "agent", "before", "in", "after"])
def test_what_is_lost_ends_the_attempt_and_the_next_goes_on_to_the_same_bits(
    hosts: Hosts, expected: bytes, fault: str
) -> None:
    """A link, an agent, or a worker before, in and after an exchange of sums: by host 3, in round 5 of 9."""
    happens: dict[str, Callable[[], None]] = {
        "cut": lambda: hosts.network.cut(3),
        "swallow": lambda: hosts.network.swallow(3),
        "agent": lambda: hosts.agents[3].kill(),
    }
    (hosts.runs / ("hold" if fault in happens else f"kill-{fault}-2")).touch()

    def lose() -> None:
        wait_for((hosts.runs / "holding").exists)
        happens[fault]()
        (hosts.runs / "hold").unlink()

    losing = threading.Thread(target=lose)
    if fault in happens:
        losing.start()
    with pytest.raises(OSError, match="run the stage again"):
        hosts.run()
    if fault in happens:
        losing.join()
    assert [path.name for path in (hosts.folder / "rounds").glob("*.ckpt")] == ["round-00000003.ckpt"]
    hosts.run()
    left = 2 if fault in happens else 3
    assert hosts.took() == hosts.addresses[:left]
    assert hosts.weights(left) == expected


def test_a_slow_link_changes_nothing(hosts: Hosts, expected: bytes) -> None:
    hosts.network.slow(2, "400kbit")
    hosts.run(2)
    assert hosts.weights(2) == expected


def speak(words: np.ndarray, address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
        mouth.sendto(words.tobytes(), (address, 9))
