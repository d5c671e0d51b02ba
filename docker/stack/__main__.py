"""The production stack as processes of this machine, loopback only: `make stack`, `stack-down`, `stack-status`.

up [NAME ...]       start services that do not run (all, or those named)
down                end the processes that `up` started and no others; data stay
status              list running and healthy services; exit 0: all of them, 1: not all, 3: none
tacit ARGUMENTS     `tacit` with the stack's ledger, runs and MLflow
backfill FILE FROM TO [GO]
                    forecast the spends of launches of past dates; with GO Airflow runs them, one by one
environment KIND    variables of a kind of service (airflow, worker-cpu, worker-gpu, mlflow), NUL between: for tests
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import backfill
import passwords
import places
import processes
import servers
import services
from places import ROOT, Places, StackError
from services import Service
from tacit_environment import of_review

# Enough for two busy cores; a database's first tables take longest.
PATIENCE_SECONDS = 300


def main(arguments: list[str]) -> int:
    words = {"up": up, "down": down, "status": status, "tacit": tacit, "environment": environment}
    words |= {"backfill": backfilled}
    if not arguments or arguments[0] not in words:
        print(__doc__)
        return 0 if arguments in (["help"], ["--help"]) else 2
    try:
        return words[arguments[0]](places.places(os.environ), *arguments[1:])
    except StackError as error:
        print(f"stack: {error}", file=sys.stderr)
        return 1


def up(place: Places, *names: str) -> int:
    if unknown := set(names) - set(services.NAMES):
        raise StackError(f"{', '.join(sorted(unknown))}: no service; choose from {', '.join(services.NAMES)}")
    with alone(place):
        begun = time.monotonic()
        secret = prepared(place)
        for name in names or services.NAMES:
            if processes.running(name, place.started) is None:
                in_the_way(name, place)
        every = services.all_services(place, secret)
        chosen = [every[name] for name in names or services.NAMES]
        print(f"stack in {place.home} (logs: {place.logs})", flush=True)
        begin(chosen, place, ("postgres", "redis"))
        servers.databases(place, secret)
        begin(chosen, place, ("mlflow",), wait=False)
        migrate(place, every["scheduler"].command.environment)
        begin(chosen, place, services.AIRFLOW)
        begin(chosen, place, ("mlflow",))
        print(f"all up after {processes.since(begun)}")
    airflow, mlflow = (f"http://localhost:{place.ports[f'{name}_PORT']}" for name in ("AIRFLOW", "MLFLOW"))
    print(f"Airflow   {airflow}   user admin, or privacy-reviewer to approve")
    print(f"MLflow    {mlflow}   user mlflow; choose 'Model training' at the top left")
    print(f"Passwords {place.passwords}: a file each, named as the user, for this user alone")
    print("Ledger    in PostgreSQL; once: .venv/airflow/bin/python docker/stack tacit ledger init")
    print("Stop      make stack-down")
    return 0


def down(place: Places) -> int:
    with alone(place):
        # Schedulers and workers first, then the services that they write to.
        ended = processes.stop(services.AIRFLOW, place.started, services.STOP_SIGNALS)
        processes.stop_leavings(services.SERVERS, place.started)
        for name in reversed(services.SERVERS):
            ended += processes.stop([name], place.started, services.STOP_SIGNALS)
        processes.stop_leavings((), place.started)
    print("\n".join(f"stopped {name}" for name in ended) or "no service of this stack runs")
    return 0


def status(place: Places) -> int:
    if not (place.home / "secrets.env").is_file():
        print(f"no stack in {place.home}; make stack starts one")
        return 3
    every = services.all_services(place, prepared(place))
    well = alive = 0
    for name, service in every.items():
        process = processes.running(name, place.started)
        wrong = service.ask() if process else "does not run"
        size = sum(one.memory_info().rss for one in [process, *processes.children(process)]) >> 20 if process else 0
        print(f"{name:14} {f'pid {process.pid}, {size} MiB' if process else '-':24} {wrong or 'well'}")
        well, alive = well + (wrong is None), alive + (process is not None)
    return 0 if well == len(every) else 1 if alive else 3


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
    for folder in (place.logs, place.started, place.passwords, place.airflow, place.worker, place.runs, place.mlflow):
        folder.mkdir(mode=0o700, exist_ok=True)
    return passwords.stack_secrets(place.home / "secrets.env", place.passwords)


@contextmanager
def alone(place: Places) -> Iterator[None]:
    """Hold the lock that allows one `up` or `down` at a time."""
    place.home.mkdir(mode=0o711, parents=True, exist_ok=True)
    with (place.home / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StackError(f"{place.home}: another `up` or `down` is running; wait for it") from error
        yield


def begin(chosen: list[Service], place: Places, names: tuple[str, ...], wait: bool = True) -> None:
    """Start the services in ``names`` that do not run, all at once, and wait until they are healthy."""
    group = [service for service in chosen if service.name in names]
    for service in group:
        if processes.running(service.name, place.started) is None:
            (place.airflow / f"{service.name}.pid").unlink(missing_ok=True)
            processes.start(service.name, service.command, place.started, place.logs / f"{service.name}.log")
    begun = time.monotonic()
    while wait and group:
        for service in list(group):
            wrong = service.ask()
            if wrong is None:
                print(f"  {service.name:14} healthy after {processes.since(begun)}", flush=True)
                group.remove(service)
            elif processes.running(service.name, place.started) is None or late(begun):
                log = place.logs / f"{service.name}.log"
                state = "is not healthy" if late(begun) else "has ended"
                raise StackError(
                    f"{service.name} {state}: {wrong}\n{processes.tail(log)}\n"
                    f"That was the end of {log}; other services still run: `make stack` again, or `make stack-down`"
                )
        time.sleep(0.5)


def late(begun: float) -> bool:
    return time.monotonic() - begun > PATIENCE_SECONDS


def in_the_way(name: str, place: Places) -> None:
    """Refuse a port on which another process listens."""
    owner = {"api-server": "AIRFLOW", "scheduler": "HEALTH"}.get(name, name.upper())
    port = f"{owner}_PORT"
    if port in place.ports and services.listens(place.address(owner)):
        raise StackError(f"{port}: {place.ports[port]} is in use; choose another, as in make stack {port}=20001")


def migrate(place: Places, variables: dict[str, str]) -> None:
    """Create or update Airflow's tables and pools, as compose's service ``setup`` does, if they changed."""
    sources = [ROOT / "requirements" / "airflow.lock", ROOT / "dags" / "pools.json"]
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    note, log = place.home / "migrated", place.logs / "setup.log"
    if note.is_file() and note.read_text(encoding="utf-8") == state:
        return
    begun = time.monotonic()
    with log.open("ab") as output:
        command = places.compose_service("setup")["entrypoint"]
        done = subprocess.run(command, env=variables, cwd=ROOT, stdout=output, stderr=output, check=False)
    if done.returncode:
        raise StackError(f"setup failed:\n{processes.tail(log)}\nThat was the end of {log}")
    note.write_text(state, encoding="utf-8")
    print(f"  {'setup':14} done after {processes.since(begun)}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
