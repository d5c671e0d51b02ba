"""Hosts in network namespaces of this machine, on a bridge that can be listened to and that loses what it should."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.helpers.processes.forked import enter_network

Answer = TypeVar("Answer")
_ETH_P_ALL = 3
_NOBODY = "02:00:00:00:00:99"  # no host has this hardware address


class Network:
    """Hosts 1, 2, ... with addresses 198.18.0.1, 198.18.0.2, ...; the bridge has a namespace of its own."""

    def __init__(self, hosts: int) -> None:
        self._name, self.hosts = f"tacit-{os.getpid()}", range(1, hosts + 1)
        for place in self._places():
            ip("netns", "add", place)
        ip("-n", self._place(0), "link", "add", "bridge", "type", "bridge")
        ip("-n", self._place(0), "link", "set", "bridge", "up")
        for host in self.hosts:
            place, port = self._place(host), f"port{host}"
            ip("-n", place, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self._place(0))
            ip("-n", place, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", place, "link", "set", "lo", "up")
            ip("-n", place, "link", "set", "eth0", "up")
            ip("-n", self._place(0), "link", "set", port, "master", "bridge", "up")

    def address(self, host: int) -> str:
        return f"198.18.0.{host}"

    def command(self, host: int, *command: str) -> list[str]:
        """That runs a command on a host."""
        return ["ip", "netns", "exec", self._place(host), *command]

    def on(self, host: int, work: Callable[[], Answer]) -> Answer:
        """What a function gives that a thread of this process runs on a host."""
        with ThreadPoolExecutor(1, initializer=self._enter, initargs=(host,)) as pool:
            return pool.submit(work).result()

    @contextmanager
    def overheard(self) -> Iterator[bytearray]:
        """All bytes that cross the bridge while the block runs."""
        heard, ended = bytearray(), threading.Event()

        def listen() -> None:
            self._enter(0)
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)) as ear:
                ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
                ear.settimeout(0.1)
                listening.set()
                while not ended.is_set():
                    try:
                        heard.extend(ear.recv(1 << 16))
                    except TimeoutError:
                        continue

        listening, ear = threading.Event(), threading.Thread(target=listen)
        ear.start()
        listening.wait()
        try:
            yield heard
        finally:
            ended.set()
            ear.join()

    def cut(self, host: int) -> None:
        """Unplug a host."""
        ip("-n", self._place(0), "link", "set", f"port{host}", "down")

    def swallow(self, host: int) -> None:
        """Lose all that a host sends and is sent, without a sign of it."""
        for other in self.hosts:
            for one, another in ((host, other), (other, host)) if other != host else ():
                entry = [self.address(another), "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent"]
                ip("-n", self._place(one), "neighbour", "replace", *entry)

    def slow(self, host: int, rate: str) -> None:
        """Let a host send no faster, as in ``400kbit``."""
        settings = ["rate", rate, "burst", "32kbit", "latency", "500ms"]
        subprocess.run(self.command(host, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *settings), check=True)

    def mend(self) -> None:
        """Undo what was done to the hosts' links."""
        for host in self.hosts:
            ip("-n", self._place(0), "link", "set", f"port{host}", "up")
            ip("-n", self._place(host), "neighbour", "flush", "dev", "eth0", "nud", "permanent")
            subprocess.run(
                self.command(host, "tc", "qdisc", "del", "dev", "eth0", "root"), check=False, stderr=subprocess.DEVNULL
            )

    def remove(self) -> None:
        for place in self._places():
            ip("netns", "delete", place)

    def _places(self) -> list[str]:
        return [self._place(number) for number in (0, *self.hosts)]

    def _place(self, host: int) -> str:
        return f"{self._name}-{host}"

    def _enter(self, host: int) -> None:
        enter_network(Path("/run/netns") / self._place(host))


def unavailable() -> str:
    """Why no network can be made here; empty if one can."""
    if missing := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        return f"{missing[0]} is not installed (iproute2)"
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    probe = f"tacit-probe-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"no network namespaces here: {done.stderr.strip()}"
    ip("netns", "delete", probe)
    return ""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
