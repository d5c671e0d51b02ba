"""Health of the services: each is asked as those ask that use it."""

import json
import socket
import time
import urllib.request
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from xmlrpc.client import ServerProxy

from supervisor.xmlrpc import SupervisorTransport

from places import Places

# Between two lines of a start on what is not yet well.
_SAY_SECONDS = 15
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def supervisor(place: Places) -> Any:
    """Supervisor's API, by a socket that only this user can open."""
    transport = SupervisorTransport(None, None, f"unix://{place.home}/control")
    return ServerProxy("http://127.0.0.1", transport=transport).supervisor


def states(place: Places) -> dict[str, dict[str, Any]]:
    """Supervisor's view of each service, by name. Raises OSError if supervisor does not run."""
    return {each["name"]: each for each in supervisor(place).getAllProcessInfo()}


def problems(place: Places, secret: dict[str, str]) -> dict[str, str]:
    """Problems of the services that are not well, by name. Raises OSError if supervisor does not run."""
    airflow = f"http://{place.address('AIRFLOW')}/api/v2"
    reported = cache(lambda: json.loads(web(f"{airflow}/monitor/health")))

    def beats(name: str) -> str | None:
        state = (reported().get(name) or {}).get("status")
        return None if state == "healthy" else f"Airflow reports it as {state or 'missing'}"

    asks: dict[str, Callable[[], object]] = {
        "postgres": lambda: postgres(place, secret, "postgres"),
        "redis": lambda: redis(place, secret),
        "mlflow": lambda: web(f"http://{place.address('MLFLOW')}/health") and None,
        "witness": lambda: web(f"http://{place.address('WITNESS')}/health") and None,
        "api-server": lambda: web(f"{airflow}/version") and None,
        "scheduler": lambda: (place.alone or web(f"http://{place.address('HEALTH')}/health")) and beats("scheduler"),
        "dag-processor": lambda: beats("dag_processor"),
        "triggerer": lambda: beats("triggerer"),
        "worker-cpu": lambda: worker(place, secret, "cpu"),
        "worker-gpu": lambda: worker(place, secret, "gpu"),
    }
    known = {name: each["statename"] for name, each in states(place).items()}
    found = {name: problem(asks[name]) if known[name] == "RUNNING" else known[name] for name in asks if name in known}
    return {name: wrong for name, wrong in found.items() if wrong}


def awaited(place: Places, secret: dict[str, str], names: Sequence[str], ready: Callable[[], bool]) -> str:
    """Wait, with progress, until the services are well and the setup is ready; return the name of one that ended."""
    begun = said = time.monotonic()
    left, starts = set(names), dict[str, int]()
    while left or not ready():
        wrong, seconds = problems(place, secret), time.monotonic() - begun
        for name in sorted(left - wrong.keys()):
            print(f"  {name:14} well after {seconds:.0f} s", flush=True)
        left &= wrong.keys()
        for name, each in states(place).items():
            ended = each["statename"] in ("BACKOFF", "EXITED", "FATAL") and each["exitstatus"]
            if ended or (each["start"] and starts.setdefault(name, each["start"]) != each["start"]):
                return name
        if time.monotonic() - said >= _SAY_SECONDS:
            said, late = time.monotonic(), ", ".join(f"{name} ({wrong[name]})" for name in sorted(left))
            print(f"  after {seconds:.0f} s waits for {late or 'setup'}", flush=True)
        time.sleep(1)
    return ""


def problem(ask: Callable[[], object]) -> str | None:
    """Answer of a check, or the class of its error: the text of one may hold an address with a password."""
    try:
        answer = ask()
    except Exception as error:  # noqa: BLE001 each driver raises errors of its own, and of the system
        return type(error).__name__
    return str(answer) if answer else None


def web(address: str) -> bytes:
    with _OPENER.open(address, timeout=10) as answer:
        return answer.read()


def postgres(place: Places, secret: dict[str, str], database: str) -> None:
    import psycopg2

    login = f"postgresql://postgres:{secret['POSTGRES_PASSWORD']}@{place.address('POSTGRES')}/{database}"
    psycopg2.connect(login, connect_timeout=3).close()


def broker(place: Places, secret: dict[str, str]) -> str:
    return f"redis://:{secret['REDIS_PASSWORD']}@{place.address('REDIS')}/0"


def redis(place: Places, secret: dict[str, str]) -> None:
    from redis import Redis

    with Redis.from_url(broker(place, secret), socket_timeout=3) as client:
        client.ping()


def worker(place: Places, secret: dict[str, str], queue: str) -> str | None:
    """Ping this machine's worker over the queue, as `celery inspect ping` does."""
    from celery import Celery

    with Celery(broker=broker(place, secret), set_as_current=False) as app:
        app.conf.broker_transport_options = {"socket_connect_timeout": 3, "socket_timeout": 3}
        answers = app.control.ping(destination=[f"{queue}@{socket.gethostname()}"], timeout=2, limit=1)
    return None if answers else "does not answer"
