"""A piece of the product in a process of its own, as on another kind of processor.

Every library here chooses its program by what the processor can do, and each can be told to take an older one: torch
and its BLAS, NumPy and its BLAS, numba's compiler, the system's mathematics. The bits that come of it are those that
such a processor gives, as far as a library lets itself be told.
"""

import importlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__ as _DISPATCHED

ROOT = Path(__file__).parents[2]
HERE = "this one"
# Names of the environment, by kind.
KINDS = {
    HERE: {},
    "with AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
        "NUMBA_CPU_NAME": "haswell",
        "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in _DISPATCHED if name not in {"X86_V3", "AVX2", "FMA3"}),
        "OPENBLAS_CORETYPE": "Haswell",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL",
    },
    "with SSE": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "NUMBA_CPU_NAME": "generic",
        "NPY_DISABLE_CPU_FEATURES": " ".join(_DISPATCHED),
        "OPENBLAS_CORETYPE": "Nehalem",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,-FMA",
    },
}
only_where_emulated = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the older processors that libraries can be told to be are x86"
)


def environment(kind: str) -> dict[str, str]:
    """The environment of a process on a processor of a kind."""
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"} | KINDS[kind]


def on(kind: str, function: Callable[[], object]) -> dict:
    """What a function of a module, which takes nothing, returns there, by way of JSON."""
    command = [sys.executable, "-m", "tests.contracts.processors", function.__module__, function.__qualname__]
    done = subprocess.run(command, env=environment(kind), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()))
