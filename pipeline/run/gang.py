"""The gang that shares a stage's work: ``torchrun`` on each of its hosts, a fixed number of workers, no restarts.

On this machine the stage starts one ``torchrun``. On several hosts the installation's command ``TACIT_GANG`` starts it:
the command places hosts, waits for them, and ends all when one fails. The first worker that fails ends the gang; the
stage's next attempt resumes from the last checkpoint. Hosts share the folder of runs, so only messages between workers
go over the network.
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
# Below the range of ephemeral ports.
_PORTS = range(20_000, 30_000)


def require(hosts: int, template: str) -> None:
    """ValueError if a launch asks for several hosts and this installation cannot start them."""
    if hosts == 1:
        return
    if not template:
        raise ValueError(
            f"runtime.hosts: {hosts}, but TACIT_GANG, the command that starts workers on several hosts, is not set; "
            "set it as docs/several_machines.md shows, or set runtime.hosts to 1"
        )
    filled_in(template, hosts, 1, ())


def run(hosts: int, workers: int, template: str, program: Sequence[str], name: Path) -> None:
    """Run a program in every worker of a gang, and wait for its end.

    Args:
      workers: number on each host.
      template: command that starts several hosts, with ``{hosts}``, ``{workers}`` and ``{command}``.
      program: module and arguments.
      name: name of the attempt, unique on these hosts; it determines the port of the rendezvous.

    Raises:
      OSError: a worker or a host was lost.
    """
    command = torchrun(workers, program, port_of(name), hosts)
    if hosts > 1:
        command = filled_in(template, hosts, workers, command)
    # A session of its own, so that all of it can be ended. Standard output is for the command's answer.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
    try:
        # Not reaped yet, so its process id is still that of its session.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        _end(process)
    if code := process.returncode:
        raise OSError(
            f"one of {hosts * workers} workers was lost (exit code {code}); run the stage again, it resumes from the "
            "last checkpoint"
        )


def torchrun(workers: int, program: Sequence[str], port: int, hosts: int = 1) -> list[str]:
    """Command that starts one host's workers; it fails if any worker fails.

    On several hosts, ``PET_NODE_RANK`` gives each host its rank and ``PET_MASTER_ADDR`` the address of host 0.

    Args:
      port: a free port on host 0, for the rendezvous.
    """
    # Threads work on chunks of devices, not on parts of a matrix product.
    words = ["env", "OMP_NUM_THREADS=1"]
    if hosts == 1:
        words += ["GLOO_SOCKET_IFNAME=lo", "NCCL_SOCKET_IFNAME=lo", "PET_NODE_RANK=0", "PET_MASTER_ADDR=127.0.0.1"]
    words += [sys.executable, "-m", "torch.distributed.run", f"--nnodes={hosts}", f"--nproc-per-node={workers}"]
    # The dynamic rendezvous unpickles any network input; the static one does not.
    words += ["--rdzv-backend=static", f"--master-port={port}", "--max-restarts=0"]
    return [*words, "-m", *program]


def filled_in(template: str, hosts: int, workers: int, command: Sequence[str]) -> list[str]:
    """Fill the installation's command with the gang's numbers and each host's command, as a list of words.

    Raises:
      ValueError: the template has no word ``{command}``, or an unclosed quotation.
    """
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ValueError(f"TACIT_GANG: {error}; quote it as for a shell") from error
    if "{command}" not in words:
        raise ValueError("TACIT_GANG: no word is {command}, the placeholder for each host's command; add it at the end")
    numbered = [word.replace("{hosts}", str(hosts)).replace("{workers}", str(workers)) for word in words]
    place = numbered.index("{command}")
    return [*numbered[:place], *command, *numbered[place + 1 :]]


def port_of(name: Path) -> int:
    """Return a port that is free on this host, and that another attempt is unlikely to use."""
    first = int.from_bytes(hashlib.sha256(str(name).encode()).digest()[:8], "big")
    for step in range(len(_PORTS)):
        port = _PORTS[(first + step) % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
    raise OSError(f"of the ports {_PORTS[0]} to {_PORTS[-1]} none is free")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the rest of the gang's session on this machine, which ends the hosts' sessions too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            return
