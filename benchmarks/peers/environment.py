"""A separate environment for a library that a benchmark compares with."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_BUILD_SECONDS = 900


def python_with(requirements: str) -> Path:
    """The interpreter of ``build/bench-*``, made from a file of pins beside this one if it is not there yet.

    Raises:
      OSError: the packages cannot be had, for example without a network.
    """
    pins = HERE / requirements
    folder = ROOT / "build" / f"bench-{pins.stem}"
    python, ready = folder / "bin" / "python", folder / f".ready-{pins.name}"
    if ready.is_file() and ready.read_text() == pins.read_text():
        return python
    install = [str(python), "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "15", "-r", str(pins)]
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], install):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise OSError(f"{pins.name}: not installed within {_BUILD_SECONDS} s") from error
        if done.returncode:
            reason = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [command[2]]
            raise OSError(f"{pins.name}: {reason[-1]}")
    ready.write_text(pins.read_text())
    return python
