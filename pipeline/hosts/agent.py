"""The agent of one host: it starts that host's workers of a gang, and ends them.

It runs one program, the one it was made with, for launches of its own folder of runs; whoever asks chooses neither
program nor folder. A gang ends when nobody renews its lease, when the next host can no longer be reached, when a newer
attempt at the stage begins, and with the agent.
"""

import fcntl
import ipaddress
import logging
import os
import signal
import socket
import socketserver
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from federated.wire.launcher import Seat
from pipeline.errors import StaleAttempt
from pipeline.hosts import fence, messages
from pipeline.hosts.job import Job, Token, command
from pipeline.run_dir import RunDir

_TICK_SECONDS = 0.2
_STOP_SECONDS = 2.0
_SIOCGIFADDR = 0x8915
_log = logging.getLogger(__name__)
# Takes a job, this host's place in the gang, the folder of all runs and the process that workers end with.
Start = Callable[[Job, Seat, Path, int], list[str]]


@dataclass
class Gang:
    """This host's workers of an attempt.

    Attributes:
      until: when the lease ends, by the monotonic clock.
      heard: when the next host's agent last answered.
    """

    job: Job
    process: subprocess.Popen[bytes]
    until: float
    heard: float
    listener: threading.Thread | None = None
    stopping: threading.Lock = field(default_factory=threading.Lock)

    def stop(self) -> None:
        """End the launcher, which ends its workers; workers end by themselves if it is killed."""
        with self.stopping:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if self.process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(self.process.pid, number)
                    with suppress(subprocess.TimeoutExpired):
                        self.process.wait(_STOP_SECONDS)


class Agent:
    """Gangs of one host, of at most one attempt at each stage of a launch."""

    def __init__(self, address: str, runs_dir: Path, start: Start = command) -> None:
        self.address, self._runs_dir, self._start = address, runs_dir, start
        self._secret = messages.shared_secret(runs_dir)
        self._gangs: dict[tuple[str, str], Gang] = {}
        self._lock = threading.Lock()

    def serve(self, stop: threading.Event) -> None:
        """Answer questions until ``stop`` is set; gangs end then."""
        host, port = messages.place(self.address)
        agent = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):  # Who has not the secret gets no answer, nor who leaves.
                    question, asked = messages.question_on(self.request, agent._secret)
                    messages.answer_on(self.request, agent.answer(question), asked, agent._secret)

        socketserver.ThreadingTCPServer.allow_reuse_address = True
        with socketserver.ThreadingTCPServer((host, port), Handler) as server:
            server.daemon_threads = True
            answering = threading.Thread(target=server.serve_forever, name="answers", daemon=True)
            answering.start()
            _log.info("agent of %s", self.address)
            try:
                while not stop.wait(_TICK_SECONDS):
                    self._watch()
            finally:
                server.shutdown()
                for gang in list(self._gangs.values()):
                    gang.stop()

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked, or say why not."""
        try:
            match question["ask"]:
                case "hello":
                    return {"port": free_port(messages.place(self.address)[0])}
                case "start":
                    return self._begin(Job.model_validate(question["job"]))
                case "poll":
                    return self._poll(Token.model_validate(question["token"]))
                case "cancel":
                    return self._cancel(Token.model_validate(question["token"]))
                case other:
                    return {"refused": f"{other!r} is no question"}
        except (KeyError, ValidationError, ValueError, StaleAttempt, OSError) as error:
            return {"refused": str(error)}

    def _begin(self, job: Job) -> dict[str, Any]:
        token, host = job.token, messages.place(self.address)[0]
        folder = RunDir(self._runs_dir, token.launch).private(token.stage)
        seat = Seat(len(job.hosts), job.number, host, interface_of(host), messages.place(job.hosts[0])[0], job.port)
        with self._lock:
            before = self._gangs.get((token.launch, token.stage))
            if before and before.job.token.attempt >= token.attempt:
                return {"refused": f"attempt {token.attempt}: {before.job.token.attempt} has begun here"}
            if before:
                before.stop()
            with fence.standing(folder, "gang", token.attempt):
                arguments = self._start(job, seat, self._runs_dir, os.getpid())
                process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
            now = time.monotonic()
            self._gangs[token.launch, token.stage] = Gang(job, process, now + job.lease_seconds, now)
        _log.info("%s: host %d of %d began", token, job.number + 1, len(job.hosts))
        return {"state": "running"}

    def _poll(self, token: Token) -> dict[str, Any]:
        gang = self._gangs.get((token.launch, token.stage))
        if gang is None or gang.job.token != token:
            return {"state": "unknown"}
        code = gang.process.poll()
        if code is not None:
            return {"state": "ended", "code": code}
        gang.until = time.monotonic() + gang.job.lease_seconds
        return {"state": "running"}

    def _cancel(self, token: Token) -> dict[str, Any]:
        gang = self._gangs.get((token.launch, token.stage))
        if gang is not None and gang.job.token.attempt <= token.attempt:
            gang.stop()
        return {"state": "ended"}

    def _watch(self) -> None:
        """End gangs that nobody asks about any more, or whose next host is out of reach."""
        now = time.monotonic()
        for gang in list(self._gangs.values()):
            if gang.process.poll() is not None:
                continue
            if now > gang.until:
                _log.warning("%s: nobody has renewed its lease; it ends", gang.job.token)
                gang.stop()
            elif now - gang.heard > gang.job.lease_seconds:
                _log.warning("%s: the next host is out of reach; it ends", gang.job.token)
                gang.stop()
            elif now - gang.heard > gang.job.lease_seconds / 3 and not (gang.listener and gang.listener.is_alive()):
                gang.listener = threading.Thread(target=self._hear, args=(gang,), daemon=True)
                gang.listener.start()

    def _hear(self, gang: Gang) -> None:
        following = gang.job.hosts[(gang.job.number + 1) % len(gang.job.hosts)]
        with suppress(OSError, ValueError):
            messages.ask(following, {"ask": "hello"}, self._secret)
            gang.heard = time.monotonic()


def interface_of(host: str) -> str:
    """Name of the network interface with an IPv4 address.

    Raises:
      ValueError: no interface of this machine has it.
    """
    if ipaddress.ip_address(host).is_loopback:
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == host:
                    return name
    raise ValueError(f"host: no interface of this machine has the address {host}; start the agent on its own address")


def free_port(host: str) -> int:
    """A port of this host on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
