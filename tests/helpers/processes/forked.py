"""Commands in processes that fork off one which has imported what they all need: most of a short command's time.

A script stands in for `python -m MODULE ...`, or for `tacit`: it hands its folder, variables, arguments and descriptors
to that process, which forks, and ends as the fork ends. A command still has a process of its own: only what it imports
is made once. Tests of the start itself run the real commands.
"""

import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[3]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_MOST_BYTES = 1 << 20
# The exit code of a script whose fork was killed.
KILLED = 70
# Variable with a path: the fork writes its number there and stops, until whoever traces it lets it go on.
STOPPED = "TACIT_TEST_STOPPED"
# What a launch and its verifications import, some of it only when it is needed.
_MODULES = (
    "dp_accounting.pld",
    "git",
    "mlflow.pyfunc",
    "mlflow.store.model_registry.sqlalchemy_store",
    "mlflow.store.tracking.sqlalchemy_store",
    "model_signing._cli",
    "onnx",
    "onnxruntime",
    "opentelemetry.sdk.trace",
    "pipeline.cli.app",
    "pipeline.preflight.readiness",
    "pipeline.run.cache",
    "pipeline.verify.launch",
    "reports.figures.audit",
    "reports.figures.comparison",
    "reports.figures.discovery",
    "reports.figures.training",
    "rich.markdown",
    "torch._dynamo",
    "wordfreq",
)
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
sys.exit(int(code) if code else {killed})
"""


@dataclass(frozen=True)
class Forked:
    """Scripts to run in place of the interpreter (with ``-m``) and of ``tacit``."""

    python: Path
    tacit: Path


def begun(meeting: Path, keeper: int, spare: Path | None = None) -> Forked:
    """The scripts of a test run and the process that they ask, which the first of its workers begins.

    Args:
      meeting: a folder that the workers share.
      keeper: id of the process that everything ends with.
      spare: where commands put temporary files, if not where the system does.
    """
    with (meeting / "forked.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        written = meeting / "forked"
        if not written.exists():
            # Not among pytest's folders: the name of a socket may have a hundred characters.
            folder = Path(tempfile.mkdtemp(prefix="tacit-forked-"))
            _begin(folder, keeper, {"TMPDIR": str(spare)} if spare else {})
            written.write_text(str(folder), encoding="utf-8")
        folder = Path(written.read_text(encoding="utf-8"))
        return Forked(folder / "python", folder / "tacit")


def _begin(folder: Path, keeper: int, variables: dict[str, str]) -> None:
    door = folder / "door"
    for name, before in (("python", []), ("tacit", ["-m", "tacit"])):
        script = _SCRIPT.format(python=sys.executable, door=str(door), before=before, killed=KILLED)
        (folder / name).write_text(script, encoding="utf-8")
        (folder / name).chmod(0o755)
    # No object that warns that the process still runs: it goes on when the worker that began it has ended.
    number = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", __name__, str(folder), str(keeper)],
        os.environ | _ONE_THREAD | {"PYTHONPATH": str(ROOT)} | variables,
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
    )
    while not door.exists():
        assert os.waitpid(number, os.WNOHANG) == (0, 0), "it ended before it could be asked"
        time.sleep(0.05)


def serve(folder: Path, keeper: int) -> None:
    """Import everything, then fork for each connection until the keeper has ended."""
    prepare()
    gc.collect()
    gc.freeze()  # What is imported lives to the end: looking through it would copy its pages in every fork.
    end, new = os.pidfd_open(keeper), folder / "door.new"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(new))
    listener.listen()
    new.rename(folder / "door")
    forks = set[int]()
    while end not in select.select([listener, end], [], [])[0]:
        asked, _ = listener.accept()
        forks -= {fork for fork in forks if os.waitpid(fork, os.WNOHANG)[0]}
        fork = os.fork()
        if fork == 0:
            listener.close()
            _answer(asked, str(folder / "python"))
        forks.add(fork)
        asked.close()
    shutil.rmtree(folder)


def prepare() -> None:
    """Import and set up what every command would."""
    from pipeline.ground import settings
    from pipeline.stages.graph import STAGES
    from pipeline.tracking import mlflow_tracker

    settings.let_threads_sleep()
    mlflow_tracker.load()
    for name in _MODULES:
        importlib.import_module(name)
    for stage in STAGES.values():
        assert callable(stage.function), "its module is imported with it"
    import numpy as np
    from sqlalchemy.orm import configure_mappers

    from pretrain.cells.functions import softmax_loss

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own code uses what SQLAlchemy 2.1 deprecates
        configure_mappers()
    row_K = np.zeros(1, np.float32)
    # The compiler's tables take half a second.
    softmax_loss(row_K[None], row_K, row_K, np.zeros(1, np.int64), row_K, 0.0)


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
    if place := os.environ.pop(STOPPED, None):
        Path(place).write_text(str(os.getpid()), encoding="utf-8")
        os.kill(os.getpid(), signal.SIGSTOP)
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
    serve(Path(sys.argv[1]), int(sys.argv[2]))
