"""Services of the stack, in their order of start, and their health checks."""

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

import places
import servers
from places import ROOT, Places
from processes import Command

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
WORKERS = ("worker-cpu", "worker-gpu")
AIRFLOW = ("api-server", "scheduler", "dag-processor", "triggerer", *WORKERS)
SERVERS = ("postgres", "redis", "mlflow")
NAMES = (*SERVERS, *AIRFLOW)
# Signals for an immediate end: PostgreSQL would wait for its clients, and a worker for stages, which resume.
STOP_SIGNALS = {"postgres": signal.SIGINT, **dict.fromkeys(WORKERS, signal.SIGQUIT)}


@dataclass(frozen=True)
class Service:
    """One process to start; ``ask`` returns the problem, or None if it is healthy."""

    name: str
    command: Command
    ask: Callable[[], str | None]


def all_services(place: Places, secret: dict[str, str]) -> dict[str, Service]:
    """Return every service by name, after creating PostgreSQL's data folder if there is none."""
    folder = servers.programs()
    airflow = places.environment_of(place, "airflow")
    made = {
        "postgres": Service("postgres", servers.postgres(place, folder, secret), lambda: ask_postgres(place, secret)),
        "redis": Service("redis", servers.redis(place, secret), lambda: ask_redis(place, secret)),
        "mlflow": Service(
            "mlflow",
            Command(["bash", str(ROOT / "docker" / "mlflow.sh")], places.environment_of(place, "mlflow"), place.mlflow),
            lambda: ask_web(f"http://{place.address('MLFLOW')}/health"),
        ),
    }
    for name in AIRFLOW:
        words = [str(places.BIN / "airflow"), *places.compose_service(name)["command"]]
        if name in WORKERS:
            words += ["--pid", str(place.airflow / f"{name}.pid")]  # two services of one home would share a file
        variables = places.environment_of(place, name) if name in WORKERS else airflow
        made[name] = Service(name, Command(words, variables, ROOT), asking(name, place, secret))
    return made


def asking(name: str, place: Places, secret: dict[str, str]) -> Callable[[], str | None]:
    """Return the health check of a service of Airflow."""
    match name:
        case "api-server":
            return lambda: ask_web(f"http://{place.address('AIRFLOW')}/api/v2/version")
        case "scheduler":
            return lambda: ask_health(place, "scheduler")
        case "dag-processor" | "triggerer":
            return lambda: ask_health(place, name.replace("-", "_"))
        case _:
            return lambda: ask_worker(place, secret, name.removeprefix("worker-"))


def ask_web(address: str) -> str | None:
    try:
        with _OPENER.open(address, timeout=10) as answer:
            return None if answer.status == 200 else f"{address} answers {answer.status}"
    except (OSError, ValueError) as error:
        return f"{address}: {error}"


def ask_health(place: Places, part: str) -> str | None:
    """Problem of an Airflow component, by its heartbeat; None if it is healthy."""
    address = f"http://{place.address('AIRFLOW')}/api/v2/monitor/health"
    try:
        with _OPENER.open(address, timeout=10) as answer:
            state = (json.load(answer).get(part) or {}).get("status")
    except (OSError, ValueError) as error:
        return f"{address}: {error}"
    return None if state == "healthy" else f"Airflow reports it as {state or 'missing'}"


def ask_worker(place: Places, secret: dict[str, str], queue: str) -> str | None:
    """Ping this machine's worker over the queue, as `celery inspect ping` does; the problem, or None if it answers."""
    from celery import Celery

    broker = f"redis://:{secret['REDIS_PASSWORD']}@{place.address('REDIS')}/0"
    name = f"{queue}@{socket.gethostname()}"
    with Celery(broker=broker, set_as_current=False) as app:
        app.conf.broker_transport_options = {"socket_connect_timeout": 3, "socket_timeout": 3}
        try:
            answers = app.control.ping(destination=[name], timeout=2, limit=1)
        except Exception as error:  # noqa: BLE001 the transport raises errors of its own, of redis and of the system
            return f"Redis: {type(error).__name__}"
    return None if answers else f"{name} does not answer"


def ask_redis(place: Places, secret: dict[str, str]) -> str | None:
    from redis import Redis
    from redis.exceptions import RedisError

    host, port = place.address("REDIS").split(":")
    try:
        with Redis(host=host, port=int(port), password=secret["REDIS_PASSWORD"], socket_timeout=3) as client:
            client.ping()
    except RedisError as error:
        return f"{type(error).__name__}: {error}"
    return None


def ask_postgres(place: Places, secret: dict[str, str]) -> str | None:
    import psycopg2

    host, port = place.address("POSTGRES").split(":")
    login = {"user": "postgres", "password": secret["POSTGRES_PASSWORD"], "dbname": "postgres", "connect_timeout": 3}
    try:
        psycopg2.connect(host=host, port=port, **login).close()
    except psycopg2.OperationalError as error:
        return str(error).strip().splitlines()[0]
    return None


def listens(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        probe.settimeout(3)
        return probe.connect_ex((host, int(port))) == 0
