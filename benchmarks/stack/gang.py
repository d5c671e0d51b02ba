"""Faults of a gang: two hosts of two workers train a tiny launch, and something is killed, cut, filled or wrong.

    .venv/stages/bin/python -m benchmarks.stack.gang [--by this_machine slurm] [--only NAME ...]

Hosts are 127.0.0.1 and 127.0.0.2, started by `docker/gang/this_machine`, or nodes of a Slurm on this machine by
`docker/gang/slurm` (Debian's packages slurmctld, slurmd, slurm-client and munge). Each fault meets a stage that began
where the stages before it ended; then the stage runs again, as Airflow would run it, until it is done. Its output is
held against that of one process. Root only: a disk that fills is mounted, connections of other processes are reset.
"""

import argparse
import ctypes
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.ground import settings as settings_module
from pipeline.ledger.ledger import PrivacyLedger
from tests.helpers.launches import gangs
from tests.helpers.launches.command import TACIT, environment
from tests.helpers.launches.gangs import Member
from tests.helpers.processes.proc import naming
from tests.helpers.processes.slurm import slurm

TEMPLATES = {"this_machine": gangs.THIS_MACHINE, "slurm": gangs.SLURM}
HOSTS, WORKERS = 2, 2
# In which a stage has begun, or has met what is wrong with it, on a busy machine.
PATIENCE = 400.0
ORPHAN_SECONDS = 60.0
MOST_ATTEMPTS = 4
_LIBC = ctypes.CDLL(None, use_errno=True)
_PIDFD_GETFD = 438

# What a host runs instead of its command alone, for faults of its start. Its command follows as "$@".
PLAIN = ""
NEVER_STARTS = '[ "$PET_NODE_RANK" = 1 ] && exec sleep 3600; export PET_RDZV_CONF=timeout=30; exec "$@"'
# Vector units, BLAS and compiler of another kind of processor.
OTHER_PROCESSOR = """if [ "$PET_NODE_RANK" = 1 ]; then
    export ATEN_CPU_CAPABILITY=default OPENBLAS_CORETYPE=Prescott MKL_ENABLE_INSTRUCTIONS=SSE4_2 NUMBA_CPU_NAME=nehalem
fi; exec "$@" """
PORT_TAKEN = """if [ "$PET_NODE_RANK" = 0 ]; then
    for word; do case $word in --master-port=*) port=${word#*=};; esac; done
    python3 -c 'import socket, sys, time; s = socket.create_server(("", int(sys.argv[1]))); time.sleep(3600)' $port &
    sleep 1
fi; exec "$@" """


@dataclass(frozen=True)
class Case:
    """A launch before its training, and the stage that runs in it."""

    home: Path
    log: Path
    run_id: str
    template: str
    variables: dict[str, str]

    def start(self, wrapper: str = PLAIN) -> subprocess.Popen:
        """Start the stage as a worker of Airflow would."""
        command = shlex.join(["sh", "-c", wrapper, "host"]) + " {command}" if wrapper else "{command}"
        told = environment(self.home) | self.variables | {"TACIT_GANG": self.template.replace("{command}", command)}
        words = [TACIT, "stage", "fine_tune", str(self.home / "tiny.yaml"), "--id", self.run_id]
        with self.log.open("a") as log:
            return subprocess.Popen(words, cwd=self.home, env=told, stdout=log, stderr=log)

    def round(self) -> int:
        return gangs.last_round(self.home, self.run_id)

    def members(self, host: int | None = None, rank: int | None = None) -> list[Member]:
        every = gangs.members(self.home)
        return [each for each in every if host in (None, each.host) and rank in (None, each.rank)]

    def spends(self) -> list[str]:
        """Kinds of the ledger's entries for training."""
        ledger = PrivacyLedger(settings_module.load({"TACIT_HOME": str(self.home)}).ledger_url)
        return [entry.kind for entry in ledger.spends() if entry.stage == "fine_tune"]


def in_training(case: Case, stage: subprocess.Popen) -> None:
    """Wait until some rounds are done."""
    before = case.round()
    wait(lambda: case.round() >= before + 3 or stage.poll() is not None)
    assert stage.poll() is None, case.log.read_text(encoding="utf-8")


def killed(*, host: int, rank: int | None = None) -> Callable[[Case, subprocess.Popen], None]:
    """kill -9 of a gang's member, or of everything on a host."""

    def strike(case: Case, stage: subprocess.Popen) -> None:
        in_training(case, stage)
        for member in case.members(host, rank):
            os.kill(member.process, signal.SIGKILL)

    return strike


def stage_ends(number: signal.Signals) -> Callable[[Case, subprocess.Popen], None]:
    def strike(case: Case, stage: subprocess.Popen) -> None:
        in_training(case, stage)
        stage.send_signal(number)

    return strike


def before_first_round(case: Case, stage: subprocess.Popen) -> None:
    """kill -9 of the stage between its reservation and the first checkpoint."""
    wait(lambda: len(case.members()) > HOSTS + 1 or stage.poll() is not None)
    assert (case.spends(), case.round()) == (["reserve"], 0)
    stage.kill()


def after_last_checkpoint(case: Case, stage: subprocess.Popen) -> None:
    """kill -9 of the stage when every round is done and nothing is committed."""
    wait(lambda: case.round() == gangs.ROUNDS or stage.poll() is not None, every=0.001)
    stage.kill()
    stage.wait()
    assert case.spends() == ["reserve"], "it was too quick for this fault"


def suspended(case: Case, stage: subprocess.Popen) -> None:
    """Everything on host 0, where checkpoints are written, is suspended, and the stage given up."""
    in_training(case, stage)
    for member in case.members(host=0):
        os.kill(member.process, signal.SIGSTOP)
    time.sleep(1)
    stage.kill()


def disk_full(case: Case, stage: subprocess.Popen) -> None:
    in_training(case, stage)
    with (case.home / "filler").open("wb") as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 20))
            file.flush()


def connections_reset(case: Case, stage: subprocess.Popen) -> None:
    """Every connection between a worker of host 1 and other workers is reset."""
    in_training(case, stage)
    ranks = {member.rank: member.process for member in case.members() if member.rank >= 0}
    theirs = set[tuple[str, str]]()
    for rank, process in ranks.items():
        if rank != 2:
            theirs |= {(local, far) for local, far in connections(process).values()}
    count = sum(reset(ranks[2], fd) for fd, (local, far) in connections(ranks[2]).items() if (far, local) in theirs)
    assert count


def connections(process: int) -> dict[int, tuple[str, str]]:
    """Local and far address of each established connection of a process, as the kernel writes them, by descriptor."""
    rows = [row.split() for table in ("tcp", "tcp6") for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    open_ones = {f"socket:[{row[9]}]": (row[1], row[2]) for row in rows if row[3] == "01"}
    found = {}
    for path in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            if (addresses := open_ones.get(str(path.readlink()))) is not None:
                found[int(path.name)] = addresses
    return found


def reset(process: int, descriptor: int) -> bool:
    """Reset a connection of another process: Linux does so when a socket is told to connect to nothing."""
    handle = os.pidfd_open(process)
    copy = _LIBC.syscall(_PIDFD_GETFD, handle, descriptor, 0)
    assert copy >= 0, os.strerror(ctypes.get_errno())
    answer = _LIBC.connect(copy, struct.pack("H14x", socket.AF_UNSPEC), 16)
    os.close(copy)
    os.close(handle)
    return answer == 0


def nothing(_: Case, __: subprocess.Popen) -> None:
    """The fault is in its start."""


# Name: how a host starts, and what happens then.
FAULTS: dict[str, tuple[str, Callable[[Case, subprocess.Popen], None]]] = {
    "kill -9 of a worker of host 0": (PLAIN, killed(host=0, rank=1)),
    "kill -9 of a worker of host 1": (PLAIN, killed(host=1, rank=3)),
    "kill -9 of torchrun of host 0": (PLAIN, killed(host=0, rank=-1)),
    "kill -9 of torchrun of host 1": (PLAIN, killed(host=1, rank=-1)),
    "kill -9 of everything on host 1": (PLAIN, killed(host=1)),
    "kill -9 of the installation's command": (PLAIN, killed(host=-1)),
    "kill -9 of the stage": (PLAIN, stage_ends(signal.SIGKILL)),
    "SIGTERM of the stage": (PLAIN, stage_ends(signal.SIGTERM)),
    "host 0 suspended, back during the next attempt": (PLAIN, suspended),
    "connections of a worker reset": (PLAIN, connections_reset),
    "port of the rendezvous taken": (PORT_TAKEN, nothing),
    "host 1 never starts": (NEVER_STARTS, nothing),
    "host 1 has another kind of processor": (OTHER_PROCESSOR, nothing),
    "disk full": (PLAIN, disk_full),
    "stage killed between reservation and first round": (PLAIN, before_first_round),
    "stage killed between last checkpoint and commit": (PLAIN, after_last_checkpoint),
}
SUSPENDED, FULL = "host 0 suspended, back during the next attempt", "disk full"


def go(case: Case, name: str, expected: dict[str, object]) -> tuple[bool, str]:
    """One fault; whether all is well, and its row of the table."""
    wrapper, strike = FAULTS[name]
    stage = case.start(wrapper)
    if strike is not nothing:
        strike(case, stage)
    else:
        wait(lambda: case.members(host=0, rank=-1) or stage.poll() is not None)
    struck = time.monotonic()
    code = stage.wait(PATIENCE)
    ended = time.monotonic() - struck
    (case.home / "filler").unlink(missing_ok=True)
    attempts, left, codes = 1, 0.0, [named(code)]
    if name == SUSPENDED:
        stage, attempts = case.start(), 2
        in_training(case, stage)
        struck = time.monotonic()
        # Slurm has ended them by now, by SIGKILL, which also ends what is suspended.
        frozen = [each.process for each in case.members(host=0) if stopped(each.process)]
        for process in frozen:
            os.kill(process, signal.SIGCONT)
        left = gone(lambda: any(Path(f"/proc/{process}/exe").exists() for process in frozen))
        codes.append(named(code := stage.wait(PATIENCE)))
    else:
        left = gone(lambda: naming(str(case.home)))
    while code and attempts < MOST_ATTEMPTS:
        stage, attempts = case.start(), attempts + 1
        codes.append(named(code := stage.wait(PATIENCE)))
    spends = case.spends()
    same = code == 0 and gangs.left_behind(case.home, case.run_id) == expected
    orphans = naming(str(case.home))
    well = same and spends == ["reserve", "commit"] and left < ORPHAN_SECONDS and not orphans
    row = f"| {name} | {', '.join(codes)} | {ended:.1f} | {left:.1f} | {spends.count('commit')} | "
    return well, row + f"{'yes' if same else 'no'} | {len(orphans)} |"


def named(code: int) -> str:
    return str(code) if code >= 0 else signal.Signals(-code).name


def stopped(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def gone(there: Callable[[], object]) -> float:
    """Seconds until nothing is there; at most those after which it is an orphan."""
    start = time.monotonic()
    while there() and time.monotonic() - start < ORPHAN_SECONDS:
        time.sleep(0.1)
    return time.monotonic() - start


def wait(true: Callable[[], object], every: float = 0.02) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(every)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", nargs="+", choices=list(TEMPLATES), default=list(TEMPLATES), help="how hosts start")
    parser.add_argument("--only", nargs="+", choices=list(FAULTS), default=list(FAULTS), help="which faults")
    asked = parser.parse_args()
    well = True
    with tempfile.TemporaryDirectory(prefix="tacit-gang-") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "planned").mkdir()
        run_id = gangs.planned(folder / "planned")
        alone = gangs.copied(folder / "planned", folder / "alone", workers=1)
        gangs.run_here(alone, run_id)
        expected = gangs.left_behind(alone, run_id)
        for by in asked.by:
            variables = dict[str, str]()
            if by == "slurm":
                (folder / "slurm").mkdir()
                variables = stack.enter_context(slurm(folder / "slurm"))
            print(f"\n{by}\n\n| fault | exit codes | stage ended after s | processes gone after s | spends | ", end="")
            print("bits of one process | orphans |\n|---|---|---|---|---|---|---|", flush=True)
            for number, fault in enumerate(asked.only):
                home = folder / f"{by}-{number}"
                home.mkdir()
                full = fault == FULL
                if full:
                    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(home)], check=True)
                try:
                    gangs.copied(folder / "planned", home, WORKERS, HOSTS)
                    fine, row = go(
                        Case(home, home.with_suffix(".log"), run_id, TEMPLATES[by], variables), fault, expected
                    )
                    well &= fine
                    print(row, flush=True)
                finally:
                    for process in naming(str(home)):  # of a fault that ended this script
                        with suppress(ProcessLookupError):
                            os.kill(process, signal.SIGKILL)
                    if full:
                        subprocess.run(["umount", "--lazy", str(home)], check=False)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
