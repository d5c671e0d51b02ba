"""The production stack on this machine, loopback only, under supervisor: `make stack`, `stack-down`, `stack-status`.

up                  start supervisor, and by it the services that do not run; wait until all are well
down                end supervisor, its services and what they started, and nothing else; data stay
status              list services, their health and memory; exit 0: all well, 1: not all, 3: supervisor does not run
tacit ARGUMENTS     `tacit` with the stack's ledger, runs and MLflow
backfill FILE FROM TO [GO]
                    forecast the spends of launches of past dates; with GO Airflow runs them, one by one
run NAME            wait for the databases of a service and become it: supervisor's command
environment KIND    variables of a kind of service (airflow, worker-cpu, worker-gpu, mlflow), NUL between: for tests
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

import backfill
import health
import passwords
import places
import services
import setup
import watch
from places import ROOT, Places, StackError
from tacit_environment import of_review

# Marks the environment of every service and of all its descendants, even if they are re-parented.
MARK = "TACIT_STACK"


def main(arguments: list[str]) -> int:
    words = {"up": up, "down": down, "status": status, "tacit": tacit, "environment": environment, "run": run}
    words |= {"backfill": backfilled}
    if not arguments or arguments[0] not in words:
        print(__doc__)
        return 0 if arguments in (["help"], ["--help"]) else 2
    try:
        return words[arguments[0]](places.places(os.environ), *arguments[1:])
    except StackError as error:
        print(f"stack: {error}", file=sys.stderr)
        return 1


def up(place: Places) -> int:
    begun, secret = time.monotonic(), prepared(place)
    print(f"stack in {place.home} (logs: {place.home / 'logs'})", flush=True)
    try:
        for each in health.supervisor(place).getAllProcessInfo():
            if each["name"] in services.NAMES and each["statename"] in ("STOPPED", "FATAL"):
                health.supervisor(place).startProcess(f"{each['group']}:{each['name']}", False)
    except OSError:
        end(place)  # services of a supervisor that was killed
        in_the_way(place)
        places.environment_of(place, "airflow")  # creates the file of people's passwords before anything reads it
        (place.home / "supervisord.conf").write_text(services.configuration(place), encoding="utf-8")
        command = [str(places.BIN / "supervisord"), "-c", str(place.home / "supervisord.conf")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackError(f"supervisord: {(done.stderr + done.stdout).strip()}") from None
    left = set(services.NAMES)
    while left or not setup.done(place):
        wrong = health.problems(place, secret)
        for name in sorted(left - wrong.keys()):
            print(f"  {name:14} well after {time.monotonic() - begun:.0f} s", flush=True)
        left &= wrong.keys()
        if time.monotonic() - begun > watch.PATIENCE_SECONDS:
            late = sorted(left) or ["setup"]
            ends = "\n".join(tail(place.home / "logs" / f"{name}.log") for name in {"setup", *late})
            raise StackError(f"{', '.join(late)}: not well; supervisor keeps trying until `make stack-down`\n{ends}")
        time.sleep(1)
    airflow, mlflow = (f"http://localhost:{place.ports[f'{name}_PORT']}" for name in ("AIRFLOW", "MLFLOW"))
    print(f"Airflow   {airflow}   user admin, or privacy-reviewer to approve")
    print(f"MLflow    {mlflow}   user mlflow-reader; choose 'Model training' at the top left")
    print(f"Passwords {place.home / 'passwords'}: a file each, named as the user, for this user alone")
    print("Stop      make stack-down")
    return 0


def down(place: Places) -> int:
    ended = set[str]()
    try:
        supervisor = health.supervisor(place)
        ended = {each["name"] for each in supervisor.getAllProcessInfo() if each["pid"]} & set(services.NAMES)
        process = psutil.Process(supervisor.getPID())
        supervisor.shutdown()
        process.wait(120)
    except (OSError, psutil.NoSuchProcess):
        pass  # no supervisor, or it was killed
    ended |= end(place)
    print("\n".join(f"stopped {name}" for name in sorted(ended)) or "no service of this stack runs")
    return 0


def status(place: Places) -> int:
    try:
        every = {each["name"]: each["pid"] for each in health.supervisor(place).getAllProcessInfo()}
    except OSError:
        print(f"no stack runs in {place.home}; make stack starts one")
        return 3
    wrong = health.problems(place, prepared(place))
    for name in services.NAMES:
        print(f"{name:14} pid {every[name]:<8} {memory(every[name]):5} MiB  {wrong.get(name, 'well')}")
    return 1 if wrong else 0


def run(place: Places, name: str) -> int:
    """Wait for what a service needs, then become it."""
    secret, waiting = prepared(place), ""
    end(place, name)
    needed = services.needs(place, name, secret)
    while problem := health.problem(needed):
        if problem != waiting:
            print(f"{name} waits: {problem}", flush=True)
        waiting = problem
        time.sleep(1)
    if name == "watch":
        watch.listen(place, secret)
    if name == "setup":
        try:
            setup.run(place, secret)
        except subprocess.CalledProcessError as error:
            time.sleep(10)  # before supervisor repeats it
            raise StackError(f"{error.cmd[0]} exited with {error.returncode}") from error
        return 0
    command, variables = services.command(place, name, secret)
    os.execvpe(command[0], command, variables | {MARK: f"{place.home}/{name}"})


def tacit(place: Places, *arguments: str) -> int:
    program = os.environ.get("TACIT_BIN") or str(places.STAGES_BIN / "tacit")
    os.execve(program, [program, *arguments], of_review(places.environment_of(place, "worker-cpu")))


def backfilled(place: Places, file: str = "", first: str = "", last: str = "", go: str = "") -> int:
    variables, airflow = (places.environment_of(place, kind) for kind in ("worker-cpu", "airflow"))
    return backfill.backfill(of_review(variables), airflow, file, first, last, go)


def environment(place: Places, kind: str) -> int:
    sys.stdout.write("".join(f"{name}={value}\0" for name, value in places.environment_of(place, kind).items()))
    return 0


def prepared(place: Places) -> dict[str, str]:
    """Create the folders, for this user alone, and the secrets; PostgreSQL's user may traverse the first folder."""
    place.home.mkdir(mode=0o711, parents=True, exist_ok=True)
    place.home.chmod(0o711)
    for name in ("logs", "passwords", "airflow", "worker", "runs", "mlflow", "redis"):
        (place.home / name).mkdir(mode=0o700, exist_ok=True)
    return passwords.stack_secrets(place.home / "secrets.env", place.home / "passwords")


def in_the_way(place: Places) -> None:
    """Refuse what would keep a service from starting: a missing program, a port in use, an address that is none."""
    found = {
        "redis-server": shutil.which("redis-server"),
        "postgresql": [*Path("/usr/lib/postgresql").glob("*/bin/initdb")],
    }
    if missing := " ".join(package for package, there in found.items() if not there):
        raise StackError(f"{missing}: not installed; as root: apt-get install --no-install-recommends {missing}")
    for name, port in place.ports.items():
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise StackError(f"{name}: {port} is in use; choose another, as in make stack {name}=20001")
    if not re.fullmatch(r"(https?://\S+)?", os.environ.get("STACK_HEARTBEAT", "")):
        raise StackError("STACK_HEARTBEAT: no address of a web server; write one as in https://host/path, or unset it")


def end(place: Places, name: str = "") -> set[str]:
    """End what a service that died has left, such as the stage of a killed worker; names of the services.

    Args:
      name: the service; empty: all of them.
    """
    left = list(marked(f"{place.home}/{name}"))
    for number in ("terminate", "kill"):
        for process, _ in left:
            try:
                getattr(process, number)()  # psutil checks that it is still the same process
            except psutil.NoSuchProcess:
                continue
        _, alive = psutil.wait_procs([process for process, _ in left], timeout=10)
        if not alive:
            break
    return {mark.removeprefix(f"{place.home}/") for _, mark in left}


def marked(mark: str) -> Iterator[tuple[psutil.Process, str]]:
    for process in psutil.process_iter():
        try:
            found = process.environ().get(MARK, "")
            if found.startswith(mark) and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                yield process, found
        except psutil.Error:
            continue


def memory(number: int) -> int:
    """Resident MiB of a process and its descendants."""
    try:
        process = psutil.Process(number)
        return sum(each.memory_info().rss for each in [process, *process.children(recursive=True)]) >> 20
    except psutil.NoSuchProcess:
        return 0


def tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    return "\n".join([f"{log}:", *lines[-10:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
