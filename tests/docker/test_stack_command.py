"""`make stack`: its refusals, its files, and the source of its settings."""

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helpers.processes.ports import free_port
from tests.helpers.processes.stack import PORTS, PYTHON, ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the Airflow environment is not built; run `make setup`"),
]


def command(home: Path, *words: str, **told: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "STACK_HOME": str(home), **told}
    return subprocess.run(
        [str(PYTHON), "docker/stack", *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )


def environment_of(home: Path, kind: str, **told: str) -> dict[str, str]:
    done = command(home, "environment", kind, **told)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


@pytest.mark.parametrize("name", PORTS)
def test_a_port_that_is_somebody_else_s_is_named(tmp_path: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        ports = {each: str(free_port()) for each in PORTS} | {name: str(theirs.getsockname()[1])}
        refused = command(tmp_path / "stack", "up", **ports)
    assert refused.returncode == 1
    assert f"{name}: {ports[name]} is in use" in refused.stderr
    assert not (tmp_path / "stack" / "postgres").exists()


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    assert "REDIS_PORT: 'redis' is no port" in command(tmp_path, "up", REDIS_PORT="redis").stderr
    assert "two are the same" in command(tmp_path, "up", REDIS_PORT="4000", MLFLOW_PORT="4000").stderr
    assert "STACK_HEARTBEAT: no address of a web server" in command(tmp_path, "up", STACK_HEARTBEAT="ping").stderr
    assert command(tmp_path, "status").returncode == 3
    assert command(tmp_path, "down").stdout == "no service of this stack runs\n"
    assert command(tmp_path, "restart").returncode == 2


def test_a_wrong_pool_is_named_with_its_value_and_the_fix_before_anything_starts(tmp_path: Path) -> None:
    pools = tmp_path / "pools.json"
    pools.write_text('{"cpu": {"slots": "four", "description": ""}, "gpu": {"slots": 1, "description": ""}}')
    ports = {each: str(free_port()) for each in PORTS}
    refused = command(tmp_path / "stack", "up", POOLS=str(pools), **ports)
    assert refused.returncode == 1
    told = f"stack: POOLS: {pools}: cpu.slots: 'four'; write a whole number from 1, the processes of its workers\n"
    assert refused.stderr == told
    assert not (tmp_path / "stack" / "postgres").exists()


def test_secrets_are_made_once_for_this_user_alone_and_reach_only_whom_they_serve(tmp_path: Path) -> None:
    home = tmp_path / "stack"
    kinds = ("airflow", "worker-cpu", "worker-gpu", "mlflow")
    told = {kind: environment_of(home, kind) for kind in kinds}
    assert environment_of(home, "airflow") == told["airflow"]
    places = [home / "secrets.env", *(home / "passwords").iterdir()]
    assert len(places) == 6
    assert all(stat.S_IMODE(place.stat().st_mode) == 0o600 for place in places)
    secret = dict(line.split("=", 1) for line in (home / "secrets.env").read_text(encoding="utf-8").splitlines())
    serves = {
        name: {kind for kind, each in told.items() if value in " ".join(each.values())}
        for name, value in secret.items()
    }
    workers = {"worker-cpu", "worker-gpu"}
    assert serves == {
        "POSTGRES_PASSWORD": set(),
        "GRAFANA_PASSWORD": set(),
        "LEDGER_DB_PASSWORD": workers,
        "MLFLOW_PASSWORD": workers | {"mlflow"},
        "MLFLOW_READER_PASSWORD": {"mlflow"},
        "MLFLOW_DB_PASSWORD": {"mlflow"},
        "MLFLOW_LOGIN_DB_PASSWORD": {"mlflow"},
        "MLFLOW_SECRET_KEY": {"mlflow"},
        "AIRFLOW_DB_PASSWORD": {"airflow"},
        "REDIS_PASSWORD": workers | {"airflow"},
        # Beside the file of all passwords, which the api-server reads.
        "READER_PASSWORD": {"worker-cpu"},
        "ADMIN_PASSWORD": set(),
        "REVIEWER_PASSWORD": set(),
        "AIRFLOW_SECRET_KEY": {"airflow"},
        "AIRFLOW_JWT_SECRET": {"airflow"},
        "AIRFLOW_FERNET_KEY": {"airflow"},
    }
    asked = (ROOT / "docker" / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in asked for name in secret)


def test_of_the_shell_s_settings_only_connections_come_through_and_to_airflow_alone(tmp_path: Path) -> None:
    other = {"AIRFLOW__CORE__EXECUTOR": "LocalExecutor", "TACIT_LEDGER_URL": "sqlite:////tmp/other.db"}
    mail = {"AIRFLOW_CONN_SMTP_DEFAULT": "smtp://user:password@mail.example.org"}
    told = environment_of(tmp_path, "worker-cpu", **other, **mail, POSTGRES_PORT="15999")
    assert not told.keys() & mail.keys(), "a worker asks Airflow for connections"
    assert mail.items() <= environment_of(tmp_path, "airflow", **other, **mail).items()
    assert told["AIRFLOW__CORE__EXECUTOR"] == "CeleryExecutor"
    assert told["TACIT_LEDGER_URL"].startswith("postgresql+psycopg2://ledger:")
    assert told["TACIT_LEDGER_URL"].endswith("@127.0.0.1:15999/ledger")
    assert not [value for value in told.values() if "0.0.0.0" in value]


def test_compose_reads_the_same_files() -> None:
    services = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    shared = ["../dags/airflow.env", "stack.env"]
    for name in ("setup", "api-server", "scheduler", "dag-processor", "triggerer"):
        assert services[name]["env_file"] == [*shared, "server.env"]
    assert services["worker-gpu"]["env_file"] == [*shared, "worker.env"]
    assert services["worker-cpu"]["env_file"] == [*shared, "worker.env", "approval.env"]
    assert services["mlflow"]["env_file"] == ["mlflow.env"]
    for service in (services[name] for name in services.keys() - {"postgres"}):  # which makes databases for all
        assert not [name for name in service.get("environment", {}) if name.startswith(("AIRFLOW__", "MLFLOW_"))]
