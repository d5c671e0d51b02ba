"""Ports for servers of tests. Used in Airflow's environment too: no import of this project.

A port that the system picks is free only then: of five asked for one after the other two are the same one time in a
thousand, and another process may be given one before its server listens.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

# Below those that systems hand out by themselves.
_PORTS = range(20_000, 30_000)


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nobody listens, and that no other call of any test run gets while this process lives."""
    folder = Path(tempfile.gettempdir()) / f"tacit-tests-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for port in _PORTS:
        lock = os.open(folder / str(port), os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind((host, port))
        except OSError:
            os.close(lock)
        else:
            return port  # the lock is held as long as the descriptor is open: to the end
    raise OSError(f"of the ports {_PORTS[0]} to {_PORTS[-1]} none is free")
