"""Health of the services: each is asked as those ask that use it."""

import json
import socket
import urllib.request
from collections.abc import Callable
from functools import cache
from typing import Any
from xmlrpc.client import ServerProxy

from supervisor.xmlrpc import SupervisorTransport

from places import Places

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
    known = {name: each["statename"] for name, each in states(place).items()}
    reported = cache(lambda: web(f"http://{place.address('AIRFLOW')}/api/v2/monitor/health"))

    def component(name: str) -> str | None:
        state = (json.loads(reported()).get(name) or {}).get("status")
        return None if state == "healthy" else f"Airflow reports it as {state or 'missing'}"

    asks: dict[str, Callable[[], object]] = {
        "postgres": lambda: postgres(place, secret, "postgres"),
        "redis": lambda: redis(place, secret),
        "mlflow": lambda: web(f"http://{place.address('MLFLOW')}/health") and None,
        "api-server": lambda: web(f"http://{place.address('AIRFLOW')}/api/v2/version") and None,
        "scheduler": lambda: web(f"http://{place.address('HEALTH')}/health") and component("scheduler"),
        "dag-processor": lambda: component("dag_processor"),
        "triggerer": lambda: component("triggerer"),
        "worker-cpu": lambda: worker(place, secret, "cpu"),
        "worker-gpu": lambda: worker(place, secret, "gpu"),
    }
    found = {name: known[name] if known[name] != "RUNNING" else problem(ask) for name, ask in asks.items()}
    return {name: wrong for name, wrong in found.items() if wrong}


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

    host, port = place.address("POSTGRES").split(":")
    login = {"user": "postgres", "password": secret["POSTGRES_PASSWORD"], "dbname": database, "connect_timeout": 3}
    psycopg2.connect(host=host, port=port, **login).close()


def redis(place: Places, secret: dict[str, str]) -> None:
    from redis import Redis

    host, port = place.address("REDIS").split(":")
    with Redis(host=host, port=int(port), password=secret["REDIS_PASSWORD"], socket_timeout=3) as client:
        client.ping()


def worker(place: Places, secret: dict[str, str], queue: str) -> str | None:
    """Ping this machine's worker over the queue, as `celery inspect ping` does."""
    from celery import Celery

    broker = f"redis://:{secret['REDIS_PASSWORD']}@{place.address('REDIS')}/0"
    name = f"{queue}@{socket.gethostname()}"
    with Celery(broker=broker, set_as_current=False) as app:
        app.conf.broker_transport_options = {"socket_connect_timeout": 3, "socket_timeout": 3}
        return None if app.control.ping(destination=[name], timeout=2, limit=1) else "does not answer"
