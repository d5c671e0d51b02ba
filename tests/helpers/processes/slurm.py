"""Slurm on this machine: Debian's daemons as processes of a test, with two nodes that are 127.0.0.1 and 127.0.0.2."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.helpers.processes.ports import free_port

PACKAGES = "slurmctld slurmd slurm-client munge"
_PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
_FIELDS = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
NodeName=127.0.0.1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs={cores}
NodeName=127.0.0.2 NodeHostname={host} NodeAddr=127.0.0.2 Port={second} CPUs={cores}
PartitionName=tests Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> bool:
    """Whether one of its programs is not installed."""
    return not all(shutil.which(name, path=_path()) for name in _PROGRAMS)


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Variables with which ``srun`` places work on the two nodes; the daemons end with the block."""
    folder.chmod(0o755)  # munged trusts its socket's folder only if nobody else may write there
    (folder / "state").mkdir()
    for node in ("127.0.0.1", "127.0.0.2"):
        (folder / f"spool-{node}").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    ports = dict(zip(("controller", "first", "second"), (free_port() for _ in range(3)), strict=True))
    fields = _FIELDS.format(folder=folder, host=socket.gethostname(), cores=os.cpu_count(), **ports)
    (folder / "slurm.conf").write_text(fields.lstrip(), encoding="utf-8")
    # gloo otherwise takes the interface of the machine's name.
    variables = {"SLURM_CONF": str(folder / "slurm.conf"), "GLOO_SOCKET_IFNAME": "lo"}
    munge = ("munged", "--foreground", "--force", *(f"--{name}={folder}/munge.{kind}" for name, kind in _MUNGE))
    with ExitStack() as daemons:
        daemons.enter_context(_daemon(folder, variables, *munge))
        _until(lambda: (folder / "munge.socket").exists())
        daemons.enter_context(_daemon(folder, variables, "slurmctld", "-D"))
        for node in ("127.0.0.1", "127.0.0.2"):
            daemons.enter_context(_daemon(folder, variables, "slurmd", "-D", "-N", node))
        _until(lambda: _idle(variables) == 2)
        yield variables


_MUNGE = (
    ("key-file", "key"),
    ("socket", "socket"),
    ("pid-file", "pid"),
    ("log-file", "log"),
    ("seed-file", "seed"),
)


@contextmanager
def _daemon(folder: Path, variables: dict[str, str], *words: str) -> Iterator[None]:
    with (folder / f"{words[0]}-{words[-1].rpartition('/')[2]}.log").open("w") as log:
        process = subprocess.Popen(
            words, env=os.environ | variables | {"PATH": _path()}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _idle(variables: dict[str, str]) -> int:
    command = ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    return len(done.stdout.split())


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin"


def _until(true, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "Slurm did not start; its logs say why"
        time.sleep(0.1)
