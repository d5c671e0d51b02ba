"""The gang that shares a stage's work: ``torchrun`` on each of its hosts, a fixed number of workers, no restarts.

On this machine the stage starts one ``torchrun``. On several hosts a command of the installation does, ``TACIT_GANG``:
it places hosts, waits for them, and ends all when one fails. The first worker that fails ends the gang; the stage's
next attempt resumes from the last checkpoint. Hosts share the folder of runs, so nothing is sent but what workers tell
each other.
"""

import hashlib
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_STOP_SECONDS = 30.0
# Below those that systems hand out by themselves.
_PORTS = range(20_000, 30_000)


def require(hosts: int, template: str) -> None:
    """ValueError where a launch asks for several hosts and this installation cannot start them."""
    if hosts == 1:
        return
    if not template:
        raise ValueError(
            f"runtime.hosts: {hosts}, but TACIT_GANG is not set here, the command that starts workers on several "
            "hosts; set it as docs/several_machines.md shows, or runtime.hosts to 1"
        )
    filled_in(template, hosts, 1, ())


def run(hosts: int, workers: int, template: str, program: Sequence[str], name: Path) -> None:
    """Run a program by every worker of a gang, to its end.

    Args:
      workers: of each host.
      template: command that starts the hosts, with ``{hosts}``, ``{workers}`` and ``{command}``; used for several.
      program: module and arguments.
      name: of the attempt, unlike that of any other on these hosts: the port where workers meet follows from it.

    Raises:
      OSError: a worker or a host was lost.
    """
    command = torchrun(workers, program, port_of(name), hosts)
    if hosts > 1:
        command = filled_in(template, hosts, workers, command)
    # A session of its own, so that all of it can be ended. Standard output is the answer's.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
    try:
        # Not reaped yet: its number stays that of its session.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        _end(process)
    if code := process.returncode:
        raise OSError(
            f"one of {hosts * workers} workers was lost (exit code {code}); run the stage again, it resumes from the "
            "last checkpoint"
        )


def torchrun(workers: int, program: Sequence[str], port: int, hosts: int = 1) -> list[str]:
    """Command that starts one host's workers; its exit code is not 0 if any worker's was not.

    On several hosts each is told by ``PET_NODE_RANK`` which one it is, and by ``PET_MASTER_ADDR`` where host 0 is.

    Args:
      port: free on host 0, where workers find each other.
    """
    # Torch threads are chunks of devices, not parts of a product.
    words = ["env", "OMP_NUM_THREADS=1"]
    if hosts == 1:
        words += ["GLOO_SOCKET_IFNAME=lo", "NCCL_SOCKET_IFNAME=lo", "PET_NODE_RANK=0", "PET_MASTER_ADDR=127.0.0.1"]
    words += [sys.executable, "-m", "torch.distributed.run", f"--nnodes={hosts}", f"--nproc-per-node={workers}"]
    # The dynamic rendezvous unpickles what anybody on the network gives it; the static one does not.
    words += ["--rdzv-backend=static", f"--master-port={port}", "--max-restarts=0"]
    return [*words, "-m", *program]


def filled_in(template: str, hosts: int, workers: int, command: Sequence[str]) -> list[str]:
    """Words of the installation's command, with the gang's numbers and the words of each host's command.

    Raises:
      ValueError: it has no word ``{command}``, or a quotation that does not end.
    """
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ValueError(f"TACIT_GANG: {error}; quote it as for a shell") from error
    if "{command}" not in words:
        raise ValueError("TACIT_GANG: no word is {command}, which stands for what every host runs; add it at the end")
    numbered = [word.replace("{hosts}", str(hosts)).replace("{workers}", str(workers)) for word in words]
    place = numbered.index("{command}")
    return [*numbered[:place], *command, *numbered[place + 1 :]]


def port_of(name: Path) -> int:
    """A port that another attempt is unlikely to use, and that is free here: host 0 is often this one."""
    first = int.from_bytes(hashlib.sha256(str(name).encode()).digest()[:8], "big")
    for step in range(len(_PORTS)):
        port = _PORTS[(first + step) % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
    raise OSError(f"of the ports {_PORTS[0]} to {_PORTS[-1]} none is free")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the gang's session on this machine, which ends the hosts'."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            return
