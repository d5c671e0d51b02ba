"""The only adapter between Airflow and the stages: a task that runs one ``tacit`` command.

The command runs in the stages environment, which has no Airflow, as this environment has no
torch. Its exit code carries the retry decision:

    0                 done; the JSON object on its standard output goes to XCom
    3                 for a decision: rolled back, which is a success of the task
    65                permanent (bad config, bad data, budget, numbers went wrong): fail, no retry
    75, or a signal   temporary (infrastructure; the machine stopped it): retry, stages resume
    anything else     a bug: fail, no retry

TACIT_BIN names the command; the default is the one that ``make setup`` installs. With TACIT_AHEAD=1, where one
process runs all tasks (`airflow dags test`), the next command's process starts while this one's works
(``tacit ready``), as the imports of all stages take seconds.
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

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dates import launch_date, require_switched_on
from launch_file import HOME, LaunchFile, fields, whole
from notify import Notice, late
from tacit_environment import of_stage

DONE, HELD, PERMANENT, TEMPORARY = 0, 3, 65, 75
GRACE_SECONDS = 30
# Pod templates for the Kubernetes executor (docker/kubernetes) of tasks that take another than its default, which is
# that of stages without a GPU; other executors ignore them.
SMALL_POD = {"pod_template_file": "/opt/tacit/pods/small.yaml"}
_GPU_POD = {"pod_template_file": "/opt/tacit/pods/gpu.yaml"}
# The time for which workers of a stage wait for one another (federated/config/training.py), and the least limit.
STAGE_TIMEOUT = timedelta(hours=12)
# Limit of a stage with a forecast, which is right within a factor of two, where the machine has other work too.
_TIMES_FORECAST = 4
CLEARED = (
    "A cleared task resumes unfinished work: from its checkpoint, with the same noise, and without a second spend. "
    "A finished stage does not run again unless its inputs change. To compare it with a second run: `tacit verify "
    "LAUNCH`."
)
# Part of its time limit after which a slow attempt is reported, early enough to inspect it.
_LATE = 0.75

_LIBC = ctypes.CDLL(None)  # looked up before any fork
_PR_SET_PDEATHSIG = 1

# Set by Ctrl-C under `airflow dags test`, which runs all tasks in one process and would continue with the next.
interrupted = threading.Event()


@dataclass(frozen=True)
class Running:
    """A running command, and the file of its standard output."""

    process: subprocess.Popen[str]
    answer: IO[str]


# At most one process, which ends with this one, as its standard input is then closed.
ahead: list[Running] = []


class TacitOperator(BaseOperator):
    """Runs ``tacit`` with the arguments of ``command``, and returns its JSON answer.

    Args:
      place: name of its queue and of its pool.
    """

    ui_color = "#e8eef7"
    # Exit codes that count as success.
    endings = frozenset({DONE})

    def __init__(self, *, launch: LaunchFile, place: str = "cpu", **kwargs: Any) -> None:
        super().__init__(
            queue=place,
            pool=place,
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
        """Return the arguments after ``tacit``."""

    def execute(self, context: Context) -> dict[str, Any]:
        if interrupted.is_set():
            raise AirflowFailException(f"{self.task_id}: not started, the launch was interrupted")
        if os.environ.get("TACIT_AHEAD") != "1":
            end_with_parent()
        arguments = self.command(context)
        self.log.info("tacit %s", " ".join(arguments))
        try:
            with late(self.launch, context, _LATE * self.execution_timeout):
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
            _to_console(f"{text}; this is temporary, so it is retried up to {self.retries} times")
            raise AirflowException(f"{text} (temporary)")
        _to_console(text)
        kind = {PERMANENT: "permanent", HELD: "held"}.get(code, "not a code of tacit")
        raise AirflowFailException(f"{text} ({kind})")

    def on_kill(self) -> None:
        """Stop the command and all processes it started; a later attempt resumes from its checkpoint."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal_group(process.pid, signal.SIGTERM)
        for _ in range(GRACE_SECONDS * 10):
            if process.poll() is not None:
                break
            time.sleep(0.1)
        # Also after a clean exit, as a child of the command may have ignored the first signal.
        _signal_group(process.pid, signal.SIGKILL)

    def run_command(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Run ``tacit``, and return its exit code (negative: the signal that ended it) and standard output.

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
                # The process is still alive after a timeout or an interrupt.
                self.on_kill()
                if process.stderr:
                    process.stderr.close()
            answer.seek(0)
            return code, answer.read()


class CheckLaunch(TacitOperator):
    """First task of every run: checks the launch file and returns the launch's id."""

    def __init__(self, *, launch: LaunchFile, name: str = "check", **kwargs: Any) -> None:
        super().__init__(
            launch=launch,
            task_id=name,
            executor_config=SMALL_POD,
            execution_timeout=timedelta(minutes=10),
            doc_md="Checks the launch file and returns the launch's id.",
            **kwargs,
        )

    def command(self, context: Context) -> list[str]:
        date = launch_date(context, self.launch.name)
        return ["check", self.launch_path, "--json", *(["--date", date] if date else [])]


class Stage(TacitOperator):
    """One stage of the launch that the ``check`` task identified."""

    def __init__(self, *, launch: LaunchFile, name: str, **kwargs: Any) -> None:
        place = "gpu" if name in launch.on_gpu else "cpu"
        super().__init__(
            launch=launch,
            task_id=name,
            place=place,
            executor_config=_GPU_POD if place == "gpu" else {},
            execution_timeout=STAGE_TIMEOUT,
            doc_md=f"`tacit stage {name}`; see `tacit stage --help`.\n\n{CLEARED}",
            **kwargs,
        )

    def pre_execute(self, context: Context) -> None:
        """Set the limit of this attempt by the forecast of ``check``, as Airflow reads it afterwards."""
        minutes = self.checked(context)["cpu_minutes"].get(self.task_id, 0)
        self.execution_timeout = max(STAGE_TIMEOUT, timedelta(minutes=_TIMES_FORECAST * minutes))

    def command(self, context: Context) -> list[str]:
        launch_id, attempt = self.checked(context)["launch_id"], str(context["ti"].try_number)
        return ["stage", self.task_id, self.launch_path, "--id", launch_id, "--attempt", attempt, "--json"]

    def checked(self, context: Context) -> dict[str, Any]:
        """Answer of the ``check`` task."""
        answer = context["ti"].xcom_pull(task_ids="check")
        if answer is None:  # A person marked the task as a success.
            raise AirflowFailException(f"{self.task_id}: check gave no answer; clear it, so that it runs")
        return answer


def cause(answer: str) -> list[str]:
    """Reasons for a failure from a command's answer; empty if it was killed before it could answer."""
    try:
        stated = json.loads(answer)
    except ValueError:
        return []
    if not isinstance(stated, dict):
        return []
    return [str(line) for line in (stated.get("errors") or [stated.get("error")]) if line]


def trial_days(launch: LaunchFile) -> int | None:
    """Days of a launch file's live experiment; None without one."""
    block = None if launch.error else fields(launch.path).get("experiment")
    return whole(block.get("days"), 100) if isinstance(block, dict) else None


def published_model(launch_name: str) -> Asset:
    """Asset of a launch file's published models, with one partition per launch.

    By launch file, as a demo's model must start nothing that waits for its locale's production model.
    """
    return Asset(f"published_model/{launch_name}")


class Publish(Stage):
    """The last stage, which emits the published model; without one it fails, as a success would emit it."""

    def __init__(self, *, launch: LaunchFile, name: str, **kwargs: Any) -> None:
        self.asset, self.is_tried = published_model(launch.name), trial_days(launch) is not None
        super().__init__(launch=launch, name=name, outlets=[self.asset], **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        if self.is_tried:
            require_switched_on(context, f"experiment-{self.launch.name}")
        answer = super().execute(context)
        if not answer["published"]:
            raise AirflowFailException(f"nothing is published: {answer['reason']}")
        launch_id, event = self.checked(context)["launch_id"], context["outlet_events"][self.asset]
        event.extra = {"launch_id": launch_id, "versions": answer["versions"], "alias": answer["alias"]}
        event.add_partitions(launch_id)
        return answer


def end_with_parent() -> None:
    """Make Linux end this process when its parent dies, for any reason.

    Otherwise a killed worker would leave its stage running, and holding its lock through all retries.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def tacit_path() -> str:
    """Path of the command; fails at once if it is missing, as a retry would not find it either."""
    if not HOME.is_dir():
        raise AirflowFailException(f"TACIT_HOME: {HOME} is no folder; set it to the project's root")
    tacit = Path(os.environ.get("TACIT_BIN") or HOME / ".venv" / "stages" / "bin" / "tacit")
    if not os.access(tacit, os.X_OK):
        raise AirflowFailException(f"TACIT_BIN: {tacit} is not an executable; run `make setup` or set TACIT_BIN")
    return str(tacit)


def asked(*arguments: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a short command of ``tacit`` that is not the work of a task of its own."""
    command = [tacit_path(), *arguments, "--json"]
    return subprocess.run(command, cwd=HOME, env=variables, capture_output=True, text=True, timeout=600, check=False)


def _begin(arguments: Sequence[str], another: bool) -> Running:
    """Begin a command, in the process started ahead if there is one, and start the next one ahead if allowed."""
    if "TACIT_CONSOLE_FD" not in os.environ:
        arguments = ["--verbose", *arguments]
    if os.environ.get("TACIT_AHEAD") != "1":
        return _start(arguments)
    running = _handed_over(ahead.pop(), arguments) if ahead else None
    running = running or _start(arguments)
    if another:
        ahead.append(_start(["ready"], stdin=subprocess.PIPE))
    return running


def _handed_over(ready: Running, arguments: Sequence[str]) -> Running | None:
    """Pass the command to the process that was started ahead; None if it has ended."""
    assert ready.process.stdin is not None
    with suppress(BrokenPipeError):
        with ready.process.stdin as line:
            line.write(json.dumps(list(arguments)) + "\n")
        return ready
    ready.process.wait()
    ready.answer.close()
    if ready.process.stderr:
        ready.process.stderr.close()
    return None


def _start(arguments: Sequence[str], stdin: int = subprocess.DEVNULL) -> Running:
    answer = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 its reader closes it
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
