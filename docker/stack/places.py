"""Folders and ports of this machine's stack, and the environment of its services, from files shared with compose."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

import passwords

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "dags"))

import tacit_environment  # noqa: E402 it is beside the DAGs

BIN = ROOT / ".venv" / "airflow" / "bin"
STAGES_BIN = ROOT / ".venv" / "stages" / "bin"
# Address of each service, and the variable that changes its port.
PORTS = {"POSTGRES_PORT": 15432, "REDIS_PORT": 16379, "AIRFLOW_PORT": 8080, "MLFLOW_PORT": 5000}
PORTS |= {"HEALTH_PORT": 8974, "WITNESS_PORT": 8975}
_SHARED = ("dags/airflow.env", "docker/stack.env")
FILES = {
    "airflow": (*_SHARED, "docker/server.env"),
    "worker-gpu": (*_SHARED, "docker/worker.env"),
    "worker-cpu": (*_SHARED, "docker/worker.env", "docker/approval.env"),
    "mlflow": ("docker/mlflow.env",),
}


class StackError(Exception):
    """Error that stops the stack, with the fix."""


@dataclass(frozen=True)
class Places:
    """Folder and ports of one stack. ``home`` holds all its data, including PostgreSQL's and so the ledger."""

    home: Path
    ports: Mapping[str, int]

    @property
    def witness(self) -> Path:
        """Folder of the witness, which no worker opens."""
        return self.home / "witness"

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[f'{name}_PORT']}"


def places(environment: Mapping[str, str]) -> Places:
    """Read folder STACK_HOME (default: .stack of the project) and the ports; StackError if a port is none."""
    ports = {}
    for name, usual in PORTS.items():
        stated = environment.get(name) or str(usual)
        if not re.fullmatch(r"[0-9]{1,5}", stated) or not 0 < int(stated) < 65536:
            raise StackError(f"{name}: {stated!r} is no port; choose one from 1024 to 65535")
        ports[name] = int(stated)
    if len(set(ports.values())) < len(ports):
        raise StackError(f"{', '.join(ports)}: two are the same; choose different ones")
    return Places(Path(environment.get("STACK_HOME") or ROOT / ".stack").resolve(), ports)


def environment_of(place: Places, kind: str) -> dict[str, str]:
    """Environment of a kind of service: its files, with the addresses of this machine filled in.

    No other variable of the shell that configures Airflow or MLflow is passed on but its connections, AIRFLOW_CONN_*,
    and a worker gets only what it needs: it asks Airflow for connections.
    """
    secret = passwords.stack_secrets(place.home / "secrets.env", place.home / "passwords")
    ours = ("AIRFLOW_", "MLFLOW_", "MAKE", "MFLAGS", "TACIT_LEDGER", "TACIT_ARTIFACT", "TACIT_RUNS", *secret)
    through = "AIRFLOW_CONN_" if kind == "airflow" else "no name"
    shell = {name: each for name, each in os.environ.items() if name.startswith(through) or not name.startswith(ours)}
    addresses = {f"{name}_ADDRESS": place.address(name) for name in ("POSTGRES", "REDIS", "MLFLOW")}
    addresses |= {"API_ADDRESS": place.address("AIRFLOW"), "MLFLOW_BIND": place.address("MLFLOW")}
    addresses |= {"API_BIND": "127.0.0.1", "API_PORT": str(place.ports["AIRFLOW_PORT"])}
    addresses |= {
        "MLFLOW_FOLDER": str(place.home / "mlflow"),
        **{name: str(port) for name, port in place.ports.items()},
    }
    read = "set -aeu; " + " ".join(f". {ROOT / name};" for name in FILES[kind]) + " env -0"
    done = subprocess.run(["bash", "-c", read], env={**shell, **addresses, **secret}, capture_output=True, text=True)
    if done.returncode:
        raise StackError(f"{', '.join(FILES[kind])}: {done.stderr.strip()}")
    filled = dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
    # Variables that only filled in the files are not passed to the services.
    environment = {name: value for name, value in filled.items() if name not in addresses and name not in secret}
    if kind == "mlflow":
        mine = {name: filled[name] for name in ("MLFLOW_BIND", "MLFLOW_FOLDER", "MLFLOW_READER_PASSWORD")}
        return environment | mine | {"MLFLOW": str(STAGES_BIN / "mlflow")}
    environment |= {
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "dags" / "plugins"),
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(place.home / "airflow" / "logs"),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "TACIT_HOME": environment.get("TACIT_HOME") or str(ROOT),
        "TACIT_RUNS_DIR": str(place.home / "runs"),
        "TACIT_WITNESS": f"http://{place.address('WITNESS')}",
    }
    if kind.startswith("worker"):
        return tacit_environment.of_worker(environment) | {"AIRFLOW_HOME": str(place.home / "worker")}
    users = [user.partition(":")[0] for user in environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"].split(",")]
    file = passwords.people(place.home / "passwords", users)
    manager = {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(file)}
    return environment | manager | {"AIRFLOW_HOME": str(place.home / "airflow")}


def compose_service(name: str) -> dict:
    """Read the definition of a service from ``compose.yaml``, so that its command exists once."""
    return yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))["services"][name]
