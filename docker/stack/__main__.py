"""The production stack on this machine, loopback only, under supervisor: `make stack`, `stack-down`, `stack-status`.

local COMMAND       do it to Airflow and MLflow alone, on SQLite: `make up`, `make down`
up                  start supervisor, and by it the services that do not run; wait until all are well or one dies
down                end supervisor, its services and what they started, and nothing else; data stay
status              list services and their health; exit 0: all well, 1: not all, 3: supervisor does not run
tacit ARGUMENTS     `tacit` with the stack's ledger, runs and MLflow
airflow ARGUMENTS   `airflow` with the stack's database: `db clean` (docs/settings.md)
backfill FILE FROM TO [GO]
                    forecast the spends of launches of past dates; with GO Airflow runs them, one by one
run NAME            wait for the databases of a service and become it: supervisor's command
environment KIND    variables of a kind of service (airflow, worker-cpu, worker-gpu, mlflow), NUL between: for tests
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

import backfill
import health
import passwords
import places
import pools
import services
import setup
import watch
from places import ROOT, Places, StackError
from tacit_environment import of_review

# Marks the environment of every service and of all its descendants, even if they are re-parented.
MARK = "TACIT_STACK"


def main(arguments: list[str]) -> int:
    words = {"up": up, "down": down, "status": status, "tacit": tacit, "environment": environment, "run": run}
    words |= {"backfill": backfilled, "airflow": airflow}
    local = arguments[:1] == ["local"]
    arguments = arguments[local:]
    if not arguments or arguments[0] not in words:
        print(__doc__)
        return 0 if arguments in (["help"], ["--help"]) else 2
    try:
        return words[arguments[0]](places.places(os.environ, local), *arguments[1:])
    except StackError as error:
        print(f"stack: {error}", file=sys.stderr)
        return 1


def up(place: Places) -> int:
    secret = prepared(place)
    stop = "make down" if place.alone else "make stack-down"
    print(f"services in {place.home} (logs: {place.home / 'logs'})", flush=True)
    try:
        states = health.states(place)
        for name in (name for name in services.names(place) if states[name]["statename"] == "STOPPED"):  # by hand
            health.supervisor(place).startProcess(f"{states[name]['group']}:{name}", False)
    except OSError:
        end(place)  # services of a supervisor that was killed
        in_the_way(place)
        places.environment_of(place, "airflow")  # creates the file of people's passwords before anything reads it
        file = place.home / "supervisord.conf"
        file.write_text(services.configuration(place), encoding="utf-8")
        subprocess.run([str(places.BIN / "supervisord"), "-c", str(file)], cwd=ROOT, check=True)
    if dead := health.awaited(place, secret, services.names(place), lambda: place.alone or setup.done(place)):
        log = place.home / "logs" / f"{dead}.log"
        print(*log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:], sep="\n")
        raise StackError(f"{dead} ended; its log: {log}. Supervisor starts it again until `{stop}`")
    host = "127.0.0.1" if place.alone else "localhost"  # as in AIRFLOW__API__BASE_URL
    airflow, mlflow = (f"http://{host}:{place.ports[f'{name}_PORT']}" for name in ("AIRFLOW", "MLFLOW"))
    print(f"Airflow   {airflow}   user admin, or privacy-reviewer to approve")
    print(f"MLflow    {mlflow}   user mlflow-reader; choose 'Model training' at the top left")
    print(f"Passwords {place.home / 'passwords'}: a file each, named as the user, for this user alone")
    print(f"Stop      {stop}")
    return 0


def down(place: Places) -> int:
    ended = set[str]()
    try:
        ended = {name for name, state in health.states(place).items() if state["pid"] and name in services.names(place)}
        process = psutil.Process(health.supervisor(place).getPID())
        health.supervisor(place).shutdown()
        process.wait(120)
    except (OSError, psutil.NoSuchProcess):
        pass  # no supervisor, or it was killed
    ended |= end(place)
    print("\n".join(f"stopped {name}" for name in sorted(ended)) or "no service of this stack runs")
    return 0


def status(place: Places) -> int:
    try:
        states, wrong = health.states(place), health.problems(place, prepared(place))
    except OSError:
        print(f"no stack runs in {place.home}; make stack starts one")
        return 3
    for name in services.names(place):
        print(f"{name:14} pid {states[name]['pid']:<8} {wrong.get(name, 'well')}")
    return 1 if wrong else 0


def run(place: Places, name: str) -> int:
    """Wait for what a service needs, then become it."""
    secret = prepared(place)
    end(place, name)
    needed = services.needs(place, name, secret)
    while problem := health.problem(needed):
        print(f"{name} waits: {problem}", flush=True)
        time.sleep(2)
    if name == "watch":
        watch.listen(place, secret)
    if name == "setup":
        setup.run(place, secret)
        return 0
    born = psutil.Process().create_time()
    (place.home / "started" / name).write_text(f"{os.getpid()} {born}", encoding="utf-8")
    command, variables = services.command(place, name, secret)
    os.execvpe(command[0], command, variables | {MARK: f"{place.home}/{name}"})


def tacit(place: Places, *arguments: str) -> int:
    program = os.environ.get("TACIT_BIN") or str(places.STAGES_BIN / "tacit")
    os.execve(program, [program, *arguments], of_review(places.environment_of(place, "worker-cpu")))


def airflow(place: Places, *arguments: str) -> int:
    program = str(places.BIN / "airflow")
    os.execve(program, [program, *arguments], places.environment_of(place, "airflow"))


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
    of_stack = () if place.alone else ("airflow", "worker", "runs", "redis")
    for name in ("logs", "passwords", "mlflow", "started", *of_stack):
        (place.home / name).mkdir(mode=0o700, exist_ok=True)
    if place.alone:
        Path(os.environ.get("TACIT_RUNS_DIR") or ROOT / "runs").mkdir(parents=True, exist_ok=True)
    return passwords.stack_secrets(place.home / "secrets.env", place.home / "passwords")


def in_the_way(place: Places) -> None:
    """Refuse what would keep a service from starting, such as a missing program, a port in use or a wrong pool."""
    target, folder = ("up", "AIRFLOW_HOME") if place.alone else ("stack", "STACK_HOME")
    found = {
        "redis-server": place.alone or shutil.which("redis-server"),
        "postgresql": place.alone or [*Path("/usr/lib/postgresql").glob("*/bin/initdb")],
    }
    if missing := " ".join(package for package, there in found.items() if not there):
        raise StackError(f"{missing}: not installed; as root: apt-get install --no-install-recommends {missing}")
    for name, port in place.ports.items():
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise StackError(f"{name}: {port} is in use; choose another, as in make {target} {name}=20001")
    if len(str(place.home)) > 90:  # the kernel's limit on the path of supervisor's socket
        raise StackError(f"{folder}: {place.home} has more than 90 characters; choose a shorter path")
    if not re.fullmatch(r"(https?://\S+)?", os.environ.get("STACK_HEARTBEAT", "")):
        raise StackError("STACK_HEARTBEAT: no address of a web server; write one as in https://host/path, or unset it")
    if wrong := pools.problem(setup.pools_file()):
        raise StackError(wrong)


def end(place: Places, name: str = "") -> set[str]:
    """End what services have left that died, such as the stage of a killed worker; return their names.

    Args:
      name: the service; empty: all of them.
    """
    left = dict[psutil.Process, str]()
    for file in (place.home / "started").glob(name or "*"):  # programs that set their title write over their variables
        number, born = file.read_text(encoding="utf-8").split()
        with suppress(psutil.Error):
            leader = psutil.Process(int(number))
            if abs(leader.create_time() - float(born)) < 0.05:
                left |= dict.fromkeys([leader, *leader.children(recursive=True)], file.name)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            mark = process.environ().get(MARK, "")
            if mark.startswith(f"{place.home}/{name}") and process.status() != psutil.STATUS_ZOMBIE:
                left[process] = mark.removeprefix(f"{place.home}/")
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)  # psutil checks that it is still the same process
        psutil.wait_procs(left, timeout=10)
    return set(left.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
