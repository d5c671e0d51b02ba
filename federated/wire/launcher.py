"""Commands that start workers: ``torch.distributed.run``, a fixed number of them, without restarts."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Seat:
    """Place of one host in a gang over several.

    Attributes:
      hosts: how many there are.
      number: of this one, from 0.
      address: of this one.
      interface: name of the network interface that has the address.
      meeting: address of host 0, where workers find each other.
      port: there.
    """

    hosts: int
    number: int
    address: str
    interface: str
    meeting: str
    port: int


def launch_command(workers: int, module: str, arguments: Sequence[str], seat: Seat | None = None) -> list[str]:
    """Command that starts the workers of this machine: all there are, over loopback, or one host's of a gang.

    Its exit code is not 0 if any worker's was not; the others are stopped then.

    Args:
      workers: of this machine.
      seat: None for workers of this machine alone.
    """
    interface = seat.interface if seat else "lo"
    # One thread, as ``one_torch_thread`` has it.
    settings = [f"GLOO_SOCKET_IFNAME={interface}", f"NCCL_SOCKET_IFNAME={interface}", "OMP_NUM_THREADS=1"]
    run = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={workers}"]
    if seat is None:
        # Port 0: any free one.
        where = ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    else:
        # The dynamic meeting unpickles what anybody on the network gives it; the static one does not.
        where = [f"--nnodes={seat.hosts}", f"--node-rank={seat.number}", "--rdzv-backend=static"]
        where += [f"--master-addr={seat.meeting}", f"--master-port={seat.port}", f"--local-addr={seat.address}"]
    # No restarts: the stage's own retry goes on from the last checkpoint.
    return ["env", *settings, *run, *where, "--max-restarts=0", "-m", module, *arguments]
