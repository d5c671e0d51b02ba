"""Folders and ports of this machine's services, and the environment of its services, from files shared with compose."""

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
# Those of `make up`. Tasks are children of its scheduler; the approval's task reads the answer from Airflow.
LOCAL_PORTS = ("AIRFLOW_PORT", "MLFLOW_PORT")
_LOCAL_FILES = {"airflow": ("dags/airflow.env",), "scheduler": ("dags/airflow.env", "docker/approval.env")}


class StackError(Exception):
    """Error that stops the stack, with the fix."""


@dataclass(frozen=True)
class Places:
    """Folder and ports of one stack. ``home`` holds all its data, including PostgreSQL's and so the ledger.

    Attributes:
      alone: Airflow and MLflow of `make up`, on SQLite, with the environment of its shell.
    """

    home: Path
    ports: Mapping[str, int]
    alone: bool = False

    @property
    def witness(self) -> Path:
        """Folder of the witness, which no worker opens."""
        return self.home / "witness"

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[f'{name}_PORT']}"


def places(environment: Mapping[str, str], local: bool) -> Places:
    """Read the folder, STACK_HOME or AIRFLOW_HOME, and the ports; StackError if a port is none."""
    ports = {}
    for name in LOCAL_PORTS if local else PORTS:
        stated = environment.get(name) or str(PORTS[name])
        if not re.fullmatch(r"[0-9]{1,5}", stated) or not 0 < int(stated) < 65536:
            raise StackError(f"{name}: {stated!r} is no port; choose one from 1024 to 65535")
        ports[name] = int(stated)
    if len(set(ports.values())) < len(ports):
        raise StackError(f"{', '.join(ports)}: two are the same; choose different ones")
    if local:
        return Places(Path(environment.get("AIRFLOW_HOME") or ROOT / ".airflow").resolve() / "up", ports, local)
    return Places(Path(environment.get("STACK_HOME") or ROOT / ".stack").resolve(), ports)


def environment_of(place: Places, kind: str) -> dict[str, str]:
    """Environment of a kind of service: its files, with the addresses of this machine filled in.

    No other variable of the stack's shell that configures Airflow or MLflow is passed on but its connections,
    AIRFLOW_CONN_*, and a worker gets only what it needs: it asks Airflow for connections.
    """
    secret = passwords.stack_secrets(place.home / "secrets.env", place.home / "passwords")
    ours = ("AIRFLOW_", "MLFLOW_", "MAKE", "MFLAGS", "TACIT_LEDGER", "TACIT_ARTIFACT", "TACIT_RUNS", *secret)
    through = "AIRFLOW_CONN_" if kind == "airflow" else "no name"
    shell = {name: each for name, each in os.environ.items() if name.startswith(through) or not name.startswith(ours)}
    shell = dict(os.environ) if place.alone else shell
    addresses = {name.replace("_PORT", "_ADDRESS"): place.address(name.removesuffix("_PORT")) for name in place.ports}
    addresses |= {"API_ADDRESS": place.address("AIRFLOW"), "MLFLOW_BIND": place.address("MLFLOW")}
    addresses |= {"API_BIND": "127.0.0.1", "API_PORT": str(place.ports["AIRFLOW_PORT"])}
    addresses |= {name: str(port) for name, port in place.ports.items()}
    addresses["MLFLOW_FOLDER"] = str(place.home / "mlflow")
    files = (place.alone and _LOCAL_FILES.get(kind)) or FILES[kind]
    read = "set -aeu; " + " ".join(f". {ROOT / name};" for name in files) + " env -0"
    done = subprocess.run(["bash", "-c", read], env={**shell, **addresses, **secret}, capture_output=True, text=True)
    if done.returncode:
        raise StackError(f"{', '.join(files)}: {done.stderr.strip()}")
    filled = dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
    # Variables that only filled in the files are not passed to the services.
    environment = {name: value for name, value in filled.items() if name not in addresses and name not in secret}
    if kind == "mlflow":
        mine = {name: filled[name] for name in ("MLFLOW_BIND", "MLFLOW_FOLDER", "MLFLOW_READER_PASSWORD")}
        if place.alone:
            usual = f"sqlite:///{environment.get('TACIT_RUNS_DIR') or ROOT / 'runs'}/mlflow.db"
            environment["MLFLOW_BACKEND_STORE_URI"] = environment.get("MLFLOW_TRACKING_URI") or usual
            environment["MLFLOW_LOGIN_STORE_URI"] = f"sqlite:///{place.home}/mlflow/login.db"
        return environment | mine | {"MLFLOW": str(STAGES_BIN / "mlflow")}
    home = place.home.parent if place.alone else place.home / "airflow"
    environment |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "dags" / "plugins"),
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "TACIT_HOME": environment.get("TACIT_HOME") or str(ROOT),
    }
    if not place.alone:
        environment |= {
            "TACIT_RUNS_DIR": str(place.home / "runs"),
            "TACIT_WITNESS": f"http://{place.address('WITNESS')}",
        }
    if kind.startswith("worker"):
        return tacit_environment.of_worker(environment) | {"AIRFLOW_HOME": str(place.home / "worker")}
    users = [user.partition(":")[0] for user in environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"].split(",")]
    file = passwords.people(place.home / "passwords", users)
    manager = {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(file)}
    return environment | manager


def compose_service(name: str) -> dict:
    """Read the definition of a service from ``compose.yaml``, so that its command exists once."""
    return yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))["services"][name]
