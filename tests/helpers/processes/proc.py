"""Processes and their sockets as the kernel lists them. For Airflow's environment too: no import of this project."""

import contextlib
from pathlib import Path

# A local address of zeros would mean every interface.
LOOPBACK = ("0100007F:", "0000000000000000FFFF00000100007F:", "0" * 24 + "01000000:")


def processes() -> list[Path]:
    return list(Path("/proc").glob("[0-9]*"))


def naming(text: str) -> set[int]:
    """Processes in whose arguments or first environment a text stands; those that have ended do not count."""
    numbers = set()
    for process in processes():
        with contextlib.suppress(OSError):
            if text.encode() in (process / "environ").read_bytes() + b"\0" + (process / "cmdline").read_bytes():
                numbers.add(int(process.name))
    return numbers


def arguments(number: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


def tree(number: int) -> set[int]:
    """A process and all below it."""
    parents = {}
    for process in processes():
        with contextlib.suppress(OSError):
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    members, size = {number}, 0
    while len(members) > size:
        size = len(members)
        members |= {child for child, parent in parents.items() if parent in members}
    return members


def listening(numbers: set[int]) -> list[str]:
    """Local addresses, as the kernel writes them, on which any of these processes listens."""
    inodes = set()
    for number in numbers:
        for descriptor in Path(f"/proc/{number}/fd").glob("*"):
            with contextlib.suppress(OSError):
                inodes.add(str(descriptor.readlink()))
    rows = [row.split() for table in ("tcp", "tcp6") for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
