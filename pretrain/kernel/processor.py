"""The processor of this machine, for people: a name decides nothing about bits."""

import platform
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


@cache
def processor_name() -> str:
    """Model as the system calls it, such as ``AMD EPYC 9B14``; the architecture where it does not say."""
    lines = _CPUINFO.read_text(encoding="utf-8").splitlines() if _CPUINFO.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models and models[0] else platform.machine()
