"""Present and peak memory of this process, from Linux.

``resource``'s largest resident size will not do: a process begins with that of the one that started it.
"""

from pathlib import Path


def own_bytes() -> int:
    """Resident memory without mapped files, now."""
    return _said("RssAnon")


def peak_bytes() -> int:
    """Largest resident memory so far, mapped files included."""
    return _said("VmHWM")


def _said(name: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith(name)))
