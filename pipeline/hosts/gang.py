"""A stage's workers on several hosts: submitted, asked after, joined again after a lost attempt, cancelled.

Who runs the stage asks every agent again and again; a lost host, or one that is out of reach, ends the attempt as
temporary. The next one takes the hosts that are there, and goes on from the last checkpoint.
"""

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pipeline.bookkeeping import GANG
from pipeline.hosts import fence, messages
from pipeline.hosts.job import Job, Token
from pretrain.files import PRIVATE, write_text

LEASE_SECONDS = 30.0
POLL_SECONDS = 0.5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gang:
    """The workers of one attempt, and the agents that own them."""

    token: Token
    hosts: tuple[str, ...]
    lease_seconds: float
    secret: bytes

    def ask(self, what: str) -> dict[str, dict[str, Any]]:
        """What each agent that answers says of this gang."""
        question = {"ask": what, "token": self.token.model_dump()}
        # One host that is silent must not keep the others from being asked within their leases.
        return _answers(self.hosts, question, self.secret, min(messages.ANSWER_SECONDS, self.lease_seconds / 6))


def require_hosts(wanted: int, hosts: Sequence[str]) -> None:
    """ValueError where a launch asks for several hosts and this installation names none, or names one wrongly."""
    if wanted > 1 and not hosts:
        raise ValueError(
            f"runtime.hosts: {wanted}, but TACIT_HOSTS names no agents here; set it as in "
            "198.51.100.1:7117,198.51.100.2:7117, or runtime.hosts to 1"
        )
    if twice := [host for number, host in enumerate(hosts) if host in hosts[:number]]:
        raise ValueError(f"TACIT_HOSTS: {twice[0]} stands there twice; name each agent once")
    for host in hosts:
        messages.place(host)


def run(
    folder: Path,
    token: Token,
    hosts: Sequence[str],
    most: int,
    workers: int,
    secret: bytes,
    lease_seconds: float = LEASE_SECONDS,
) -> None:
    """Run an attempt's workers to their end on at most so many of the hosts, those that answer.

    Where the attempt before left a gang that still works, whole, this one goes on with it.

    Args:
      folder: private one of the stage, which all hosts see.
      most: hosts to take.
      workers: processes a host.

    Raises:
      OSError: a host or worker was lost, or none is there.
      StaleAttempt: a newer attempt has begun.
    """
    gang = _left(folder, token, secret, lease_seconds)
    with _cancelled_when_stopped():
        try:
            if gang is None:
                gang = _submit(folder, token, hosts, most, workers, secret, lease_seconds)
            wait(gang)
        except BaseException:
            if gang is not None:
                gang.ask("cancel")
            raise


def _left(folder: Path, token: Token, secret: bytes, lease_seconds: float) -> Gang | None:
    """The gang of the attempt before, if all of its hosts still work; else what is left of it is cancelled."""
    path = folder / GANG
    if not path.exists():
        return None
    written = json.loads(path.read_text(encoding="utf-8"))
    before = token.model_copy(update={"attempt": written["attempt"]})
    gang = Gang(before, tuple(written["hosts"]), lease_seconds, secret)
    states = [answer.get("state") for answer in gang.ask("poll").values()]
    if fence.current(folder)["gang"] == before.attempt and states == ["running"] * len(gang.hosts):
        _log.info("%s: goes on with the workers of attempt %d", token, before.attempt)
        return gang
    gang.ask("cancel")
    return None


def _submit(
    folder: Path,
    token: Token,
    hosts: Sequence[str],
    most: int,
    workers: int,
    secret: bytes,
    lease_seconds: float,
) -> Gang:
    answers = _answers(hosts, {"ask": "hello"}, secret)
    there = tuple(answers)[:most]
    if not there:
        raise OSError(f"TACIT_HOSTS: none of {', '.join(hosts)} answers; start `tacit host` there")
    fence.hand_over(folder, token.attempt)
    gang = Gang(token, there, lease_seconds, secret)
    write_text(folder / GANG, json.dumps({"attempt": token.attempt, "hosts": there}), PRIVATE)
    level = logging.getLevelName(logging.getLogger().getEffectiveLevel())
    for number, host in enumerate(there):
        job = Job(
            token=token,
            hosts=there,
            number=number,
            port=answers[there[0]]["port"],
            workers=workers,
            lease_seconds=lease_seconds,
            level=level,
        )
        answer = _answers([host], {"ask": "start", "job": job.model_dump()}, secret).get(host, {})
        if answer.get("state") != "running":
            gang.ask("cancel")
            raise OSError(f"{host}: {answer.get('refused', 'its agent no longer answers')}")
    _log.info("%s: %d workers on each of %s", token, workers, ", ".join(there))
    return gang


def _answers(
    hosts: Sequence[str], question: dict[str, Any], secret: bytes, timeout_seconds: float = messages.ANSWER_SECONDS
) -> dict[str, dict[str, Any]]:
    """Answers of the agents that give one, asked side by side."""

    def asked(host: str) -> dict[str, Any] | None:
        try:
            return messages.ask(host, question, secret, timeout_seconds)
        except OSError as error:
            _log.warning("%s: no answer: %s", host, error)
            return None

    with ThreadPoolExecutor(len(hosts)) as pool:
        return {host: answer for host, answer in zip(hosts, pool.map(asked, hosts), strict=True) if answer is not None}


def wait(gang: Gang) -> None:
    """Ask every agent again and again, which renews its lease, until all workers have ended.

    Raises:
      OSError: some ended otherwise than done, or a host was not heard of for a lease.
    """
    heard = dict.fromkeys(gang.hosts, time.monotonic())
    done: set[str] = set()
    while len(done) < len(gang.hosts):
        answers = gang.ask("poll")
        for host, answer in answers.items():
            heard[host] = time.monotonic()
            if answer.get("code") == 0:
                done.add(host)
            elif answer.get("state") != "running":
                raise OSError(
                    f"{host}: a worker was lost ({answer}); run the stage again, it goes on from what is finished"
                )
        silent = [host for host in gang.hosts if time.monotonic() - heard[host] > gang.lease_seconds]
        if silent:
            raise OSError(
                f"{silent[0]}: no answer for {gang.lease_seconds:g} s; run the stage again, on the hosts that are there"
            )
        time.sleep(POLL_SECONDS)


@contextmanager
def _cancelled_when_stopped() -> Iterator[None]:
    """Let SIGTERM, by which a scheduler stops a stage, raise within the block, and end this process after it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    class Stopped(BaseException):
        pass

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except Stopped:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
