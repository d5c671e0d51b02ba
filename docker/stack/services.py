"""Services of the stack: their commands, the conditions of their start, and supervisor's configuration of them."""

import shlex
import sys
from collections.abc import Callable

import health
import places
import setup
from places import ROOT, Places

WORKERS = ("worker-cpu", "worker-gpu")
AIRFLOW = ("api-server", "scheduler", "dag-processor", "triggerer", *WORKERS)
NAMES = ("postgres", "redis", "mlflow", "witness", *AIRFLOW)
LOCAL = ("mlflow", "api-server", "scheduler", "dag-processor")
# Signals for an immediate end: PostgreSQL would wait for its clients, and a worker for stages, which resume.
_STOP = {"postgres": "INT", **dict.fromkeys(WORKERS, "QUIT")}
_SUPERVISOR = """[supervisord]
logfile={home}/logs/supervisord.log
pidfile={home}/supervisord.pid
[unix_http_server]
file={home}/control
chmod=0700
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{home}/control
[group:airflow]
programs={airflow}
priority=10
"""
_STACK = """[program:setup]
command={run} setup
autorestart=unexpected
startsecs=0
redirect_stderr=true
stdout_logfile={home}/logs/setup.log
[eventlistener:watch]
command={run} watch
events=PROCESS_STATE_EXITED,PROCESS_STATE_BACKOFF,TICK_5
buffer_size=1000
autorestart=true
startretries=1000000
stdout_logfile=NONE
stderr_logfile={home}/logs/watch.log
"""
# A service is restarted for ever: after a run of ten seconds at once, after a shorter one a second later than before.
# Groups stop in reverse order of their priority, so that what writes ends before what it writes to.
_PROGRAM = """[program:{name}]
command={run} {name}
priority={priority}
autorestart=true
startsecs=10
startretries=1000000
stopsignal={signal}
stopwaitsecs=20
killasgroup=true
redirect_stderr=true
stdout_logfile={home}/logs/{name}.log
"""


def names(place: Places) -> tuple[str, ...]:
    return LOCAL if place.alone else NAMES


def configuration(place: Places) -> str:
    """Configuration of supervisor, which runs each service by the command `run NAME`; it holds no secret."""
    run = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'docker' / 'stack'))}{' local' * place.alone} run"
    values = {name: text.replace("%", "%%") for name, text in {"run": run, "home": str(place.home)}.items()}
    airflow = ",".join(name for name in names(place) if name in AIRFLOW)
    made = [_SUPERVISOR.format(airflow=airflow, **values), "" if place.alone else _STACK.format(**values)]
    for number, name in enumerate(names(place)):
        made.append(_PROGRAM.format(name=name, priority=number, signal=_STOP.get(name, "TERM"), **values))
    return "".join(made)


def command(place: Places, name: str, secret: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a service."""
    own = {"PATH": places.os.environ["PATH"]}
    match name:
        case "postgres":
            own |= {"LC_ALL": "C.UTF-8", "POSTGRES_PASSWORD": secret["POSTGRES_PASSWORD"]}
            own |= {"POSTGRES_FOLDER": str(place.home / name), "POSTGRES_PORT": str(place.ports["POSTGRES_PORT"])}
            return ["sh", str(ROOT / "docker" / "postgres.sh")], own
        case "redis":
            own |= {"REDIS_PASSWORD": secret["REDIS_PASSWORD"], "REDIS_PORT": str(place.ports["REDIS_PORT"])}
            own |= {"REDIS_BIND": "127.0.0.1", "REDIS_FOLDER": str(place.home / name)}
            return ["sh", str(ROOT / "docker" / "redis.sh")], own
        case "mlflow":
            return ["bash", str(ROOT / "docker" / "mlflow.sh")], places.environment_of(place, name)
        case "witness":
            words = [
                "-m",
                "pipeline.ledger.log.witness",
                str(place.witness),
                "--port",
                str(place.ports["WITNESS_PORT"]),
            ]
            return [str(places.STAGES_BIN / "python"), *words], own
    words = [str(places.BIN / "airflow"), *places.compose_service(name)["command"]]
    if name in WORKERS:  # two services of one home would share a file; one of a killed worker stops the next
        file = place.home / "airflow" / f"{name}.pid"
        file.unlink(missing_ok=True)
        words += ["--pid", str(file)]
    own_kind = name in WORKERS or (place.alone and name == "scheduler")
    return words, places.environment_of(place, name if own_kind else "airflow")


def needs(place: Places, name: str, secret: dict[str, str]) -> Callable[[], object]:
    """Condition without which a service would end at once: raises or returns a problem while it does not hold."""
    if place.alone:
        return lambda: None
    match name:
        case "postgres" | "redis" | "watch":
            return lambda: None
        case "setup":
            return lambda: health.postgres(place, secret, "postgres")
        case "witness":
            return lambda: None if (place.witness / "witness-1.pem").is_file() else "setup"
        case "mlflow":  # its databases, which `setup` creates in the first seconds
            return lambda: health.postgres(place, secret, "mlflow_login")
    return lambda: health.postgres(place, secret, "airflow") or (None if setup.migrated(place) else "setup")
