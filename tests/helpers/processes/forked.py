"""Commands in processes that fork off one which has imported what they all need: most of a short command's time.

A script stands in for `python -m MODULE ...`, or for `tacit`: it hands its folder, variables, arguments and descriptors
to that process, which forks, and ends as the fork ends. A command still has a process of its own: only what it imports
is made once. Tests of the start itself run the real commands.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[3]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_MOST_BYTES = 1 << 20
_TACIT = "tests.helpers.processes.forked_tacit"
_SCRIPT = """#!{python} -IS
import json, os, socket, sys
arguments = {before!r} + [argument for argument in sys.argv[1:] if argument != "-u"]
if arguments[:1] != ["-m"]:
    os.execv({python!r}, [{python!r}, *arguments])
with socket.socket(socket.AF_UNIX) as door:
    door.connect({door!r})
    request = [os.getcwd(), dict(os.environ), arguments]
    socket.send_fds(door, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
    code = door.recv(16)
sys.exit(int(code) if code else 70)
"""


@dataclass(frozen=True)
class Forked:
    """Scripts to run in place of the interpreter (with ``-m``) and of ``tacit``."""

    python: Path
    tacit: Path


@contextmanager
def begun() -> Iterator[Forked]:
    """The scripts, and the process that they ask; it ends with the context."""
    # Not among pytest's folders: the name of a socket may have a hundred characters.
    with tempfile.TemporaryDirectory(prefix="tacit-forked-") as folder:
        door = f"{folder}/door"
        scripts = Forked(Path(folder, "python"), Path(folder, "tacit"))
        for path, before in ((scripts.python, []), (scripts.tacit, ["-m", _TACIT])):
            path.write_text(_SCRIPT.format(python=sys.executable, door=door, before=before), encoding="utf-8")
            path.chmod(0o755)
        command = [sys.executable, "-m", __name__, door, str(scripts.python)]
        with subprocess.Popen(command, cwd=ROOT, env=os.environ | _ONE_THREAD, stdin=subprocess.DEVNULL) as process:
            try:
                while not Path(door).exists():
                    assert process.poll() is None, "it ended before it could be asked"
                    time.sleep(0.05)
                yield scripts
            finally:
                process.kill()


def serve(door: str, python: str) -> None:
    """Import everything, then fork for each connection until somebody ends this."""
    from pipeline import settings, tracking

    settings.let_threads_sleep()
    tracking.load()
    for name in ("pipeline.cli.app", "pipeline.readiness", "pipeline.stages.table", "pipeline.verify.launch"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # What is imported lives to the end: looking through it would copy its pages in every fork.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(door + ".new")
    listener.listen()
    Path(door + ".new").rename(door)
    forks = set[int]()
    while True:
        asked, _ = listener.accept()
        forks -= {fork for fork in forks if os.waitpid(fork, os.WNOHANG)[0]}
        fork = os.fork()
        if fork == 0:
            listener.close()
            _answer(asked, python)
        forks.add(fork)
        asked.close()


def _answer(asked: socket.socket, python: str) -> NoReturn:
    request, descriptors, _, _ = socket.recv_fds(asked, _MOST_BYTES, 3)
    while not request.endswith(b"\n"):
        request += asked.recv(_MOST_BYTES)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    folder, variables, (_, module, *arguments) = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables | _ONE_THREAD)
    threading.Thread(target=_end_with, args=(asked,), daemon=True).start()
    sys.executable, sys.argv = python, [module, *arguments]
    sys.modules.pop(module, None)
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 as Python would at the end of a process: show it, exit with 1
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        asked.send(str(code).encode())
        os._exit(code)


def _end_with(asked: socket.socket) -> None:
    """End when the script that asked does: whoever kills it means its command."""
    asked.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    serve(*sys.argv[1:])
