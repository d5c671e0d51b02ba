"""The only adapter between Airflow and the stages: a task that runs one ``tacit`` command.

The command runs in the stages environment, which has no Airflow, as this environment has no
torch. Its exit code carries the retry decision:

    0                 done; the JSON object on its standard output goes to XCom
    3                 of an experiment: rolled back, which is an answer too
    65                permanent (bad config, bad data, budget, numbers went wrong): fail, no retry
    75, or a signal   temporary (infrastructure; the machine stopped it): retry, stages resume
    anything else     a bug: fail, no retry

TACIT_BIN names the command; the default is the one that ``make setup`` installs. With TACIT_AHEAD=1, where
one process runs all tasks (`airflow dags test`), the next command's process starts while this one's works
(``tacit ready``): what all stages import takes seconds.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dates import experiment_asset, launch_date, require_switched_on
from launch_file import HOME, LaunchFile
from notify import Notice, late
from tacit_environment import of_stage

DONE, HELD, PERMANENT, TEMPORARY = 0, 3, 65, 75
GRACE_SECONDS = 30
# Where stages are pods (docker/kubernetes), what one with a GPU is made from; other executors do not read it.
_GPU_POD = {"pod_template_file": "/opt/tacit/pods/gpu.yaml"}
# Workers of a stage wait as long for one another (federated/config/training.py).
STAGE_TIMEOUT = timedelta(hours=12)
CLEARED = (
    "Cleared, it goes on with what did not finish: from its checkpoint, with the same noise, and without a second "
    "spend. What has finished is known by what it read and is not made again; to have it made again, change what it "
    "reads. To see whether it would come out the same: `tacit verify LAUNCH`."
)
# People hear of a try that takes so long while there is time to look at it before it is ended.
LATE_AFTER = timedelta(hours=9)

_LIBC = ctypes.CDLL(None)  # looked up before any fork
_PR_SET_PDEATHSIG = 1

# Set by Ctrl-C under `airflow dags test`, which runs all tasks in one process and would go on with the next.
interrupted = threading.Event()


@dataclass(frozen=True)
class Running:
    """A command under way, and the file of its standard output."""

    process: subprocess.Popen[str]
    answer: IO[str]


# At most one. Nobody has to end it: it ends by itself when this process does, as nothing comes to its input then.
ahead: list[Running] = []


class TacitOperator(BaseOperator):
    """Runs ``tacit`` with the arguments that ``command`` builds, and returns its JSON answer."""

    ui_color = "#e8eef7"
    # Exit codes after which the task is a success.
    endings = frozenset({DONE})

    def __init__(self, *, launch: LaunchFile, **kwargs: Any) -> None:
        super().__init__(
            retries=2,
            retry_delay=timedelta(seconds=30),
            retry_exponential_backoff=True,
            max_retry_delay=timedelta(minutes=10),
            on_failure_callback=Notice("failed", launch),
            **kwargs,
        )
        self.launch = launch
        self.launch_path = str(launch.path)
        self._process: subprocess.Popen[str] | None = None

    @abstractmethod
    def command(self, context: Context) -> list[str]:
        """Arguments after ``tacit``."""

    def execute(self, context: Context) -> dict[str, Any]:
        if interrupted.is_set():
            raise AirflowFailException(f"{self.task_id}: not started, the launch was interrupted")
        if os.environ.get("TACIT_AHEAD") != "1":
            end_with_parent()
        arguments = self.command(context)
        self.log.info("tacit %s", " ".join(arguments))
        try:
            with late(self.launch, context, LATE_AFTER):
                code, answer = self.run_command(arguments)
        except KeyboardInterrupt as error:
            interrupted.set()
            raise AirflowFailException(f"{self.task_id}: interrupted; run the launch again to resume") from error
        if code in self.endings:
            return json.loads(answer)
        text = f"{self.task_id}: tacit exited with {code}"
        for line in cause(answer):
            self.log.error("%s: %s", text, line)
        if code == TEMPORARY or code < 0:
            _to_console(f"{text}; this can pass, so it is tried again up to {self.retries} times")
            raise AirflowException(f"{text} (temporary)")
        _to_console(text)
        raise AirflowFailException(f"{text} ({'permanent' if code == PERMANENT else 'not a code of tacit'})")

    def on_kill(self) -> None:
        """Stop the command and everything it started; a later try resumes from its checkpoint."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal_group(process.pid, signal.SIGTERM)
        for _ in range(GRACE_SECONDS * 10):
            if process.poll() is not None:
                break
            time.sleep(0.1)
        # Also after a clean end: a child of the command may have ignored the first signal.
        _signal_group(process.pid, signal.SIGKILL)

    def run_command(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Exit code (negative: the signal that ended it) and standard output of ``tacit`` with these arguments.

        Standard error is copied line by line to the task's log. The command leads its own
        process group, so that all of it can be stopped.
        """
        running = _begin(arguments, another=bool(self.downstream_task_ids))
        process = self._process = running.process
        with running.answer as answer:
            try:
                for line in process.stderr or ():
                    self.log.info("%s", line.rstrip())
                    _to_console(line.rstrip())
                code = process.wait()
            finally:
                # Reached with a live process on a timeout or an interrupt.
                self.on_kill()
                if process.stderr:
                    process.stderr.close()
            answer.seek(0)
            return code, answer.read()


class CheckLaunch(TacitOperator):
    """First task of every run: validates the file and says which launch this is."""

    def __init__(self, *, launch: LaunchFile, name: str = "check", **kwargs: Any) -> None:
        super().__init__(
            launch=launch,
            task_id=name,
            queue="cpu",
            pool="cpu",
            execution_timeout=timedelta(minutes=10),
            doc_md="Validates the launch file and gives the launch its id.",
            **kwargs,
        )
        self.launch_name = launch.name

    def command(self, context: Context) -> list[str]:
        date = launch_date(context, self.launch_name)
        return ["check", self.launch_path, "--json", *(["--date", date] if date else [])]


class Stage(TacitOperator):
    """One stage of the launch that the ``check`` task identified."""

    def __init__(self, *, launch: LaunchFile, name: str, **kwargs: Any) -> None:
        place = "gpu" if name in launch.on_gpu else "cpu"
        super().__init__(
            launch=launch,
            task_id=name,
            queue=place,
            pool=place,
            executor_config=_GPU_POD if place == "gpu" else {},
            execution_timeout=STAGE_TIMEOUT,
            doc_md=f"`tacit stage {name}`; see `tacit stage --help`.\n\n{CLEARED}",
            **kwargs,
        )

    def command(self, context: Context) -> list[str]:
        checked = context["ti"].xcom_pull(task_ids="check")
        if checked is None:  # A task that runs whatever became of those before it gets here.
            raise AirflowFailException(f"{self.task_id}: nothing to do, as check did not pass")
        launch_id = checked["launch_id"]
        attempt = str(context["ti"].try_number)
        return ["stage", self.task_id, self.launch_path, "--id", launch_id, "--attempt", attempt, "--json"]


def cause(answer: str) -> list[str]:
    """Why a command failed, as it says in its answer; empty where it was ended before it could say."""
    try:
        stated = json.loads(answer)
    except ValueError:
        return []
    if not isinstance(stated, dict):
        return []
    return [str(line) for line in (stated.get("errors") or [stated.get("error")]) if line]


class Publish(Stage):
    """The last stage; where some devices try the launch first, it starts the DAG that waits for their logs."""

    def __init__(self, *, launch: LaunchFile, name: str, **kwargs: Any) -> None:
        self.asset = experiment_asset(launch.name) if launch.experiment_days else None
        super().__init__(launch=launch, name=name, outlets=[self.asset] if self.asset else [], **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        if self.asset:
            require_switched_on(context, f"experiment-{self.launch.name}")
        answer = super().execute(context)
        if self.asset:
            launch_id = context["ti"].xcom_pull(task_ids="check")["launch_id"]
            context["outlet_events"][self.asset].add_partitions(launch_id)
        return answer


def end_with_parent() -> None:
    """Let Linux end this process when its parent dies, however it dies.

    A worker that is killed would leave its stage behind, alone and holding its lock through all further tries.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def tacit_path() -> str:
    """The command; what no further try can find fails at once."""
    if not HOME.is_dir():
        raise AirflowFailException(f"TACIT_HOME: {HOME} is no folder; set it to the project's root")
    tacit = Path(os.environ.get("TACIT_BIN") or HOME / ".venv" / "stages" / "bin" / "tacit")
    if not os.access(tacit, os.X_OK):
        raise AirflowFailException(f"TACIT_BIN: {tacit} is not an executable; run `make setup` or set TACIT_BIN")
    return str(tacit)


def _begin(arguments: Sequence[str], another: bool) -> Running:
    """The command under way, in the process that was started ahead if there is one; start the next if one may come."""
    if os.environ.get("TACIT_AHEAD") != "1":
        return _start(arguments)
    running = _handed_over(ahead.pop(), arguments) if ahead else None
    running = running or _start(arguments)
    if another:
        ahead.append(_start(["ready"], stdin=subprocess.PIPE))
    return running


def _handed_over(ready: Running, arguments: Sequence[str]) -> Running | None:
    """The process that was started ahead, with its command; None if it has ended."""
    assert ready.process.stdin is not None
    with suppress(BrokenPipeError):
        with ready.process.stdin as line:
            line.write(json.dumps(list(arguments)) + "\n")
        return ready
    ready.process.wait()
    ready.answer.close()
    return None


def _start(arguments: Sequence[str], stdin: int = subprocess.DEVNULL) -> Running:
    answer = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 who reads it closes it
    process = subprocess.Popen(
        [tacit_path(), *arguments],
        cwd=HOME,
        env=of_stage(os.environ),
        stdin=stdin,
        stdout=answer,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        preexec_fn=end_with_parent,
    )
    return Running(process, answer)


def _to_console(line: str) -> None:
    """Copy a line to file descriptor TACIT_CONSOLE_FD: `make launch` keeps Airflow's own log off the terminal."""
    if descriptor := os.environ.get("TACIT_CONSOLE_FD"):
        os.write(int(descriptor), f"{line}\n".encode())


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
