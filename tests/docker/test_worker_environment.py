"""Environment of processes beside client text (workers, pods of stages, hosts of a gang), by one list of names."""

import functools
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from pipeline.ground.settings import OVERRIDES
from tests.helpers.processes.stack import PYTHON, ROOT

from .test_containers import COMPOSE, SERVICES, WORKERS
from .test_kubernetes import of_kind, pods
from .test_stack_command import environment_of

# Those of Airflow's services and of databases that are no worker's; by name in secrets.env.
NO_WORKER_S = {
    "AIRFLOW_JWT_SECRET",
    "AIRFLOW_FERNET_KEY",
    "AIRFLOW_SECRET_KEY",
    "AIRFLOW_DB_PASSWORD",
    "POSTGRES_PASSWORD",
    "ADMIN_PASSWORD",
    "REVIEWER_PASSWORD",
    "MLFLOW_DB_PASSWORD",
    "MLFLOW_LOGIN_DB_PASSWORD",
    "MLFLOW_SECRET_KEY",
}


@functools.cache
def allowed() -> ModuleType:
    """The list, as DAGs and the stack read it."""
    spec = importlib.util.spec_from_file_location("tacit_environment", ROOT / "dags" / "tacit_environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def beyond(names: set[str], reader: bool) -> set[str]:
    """Names that are on no worker's list; the account that asks Airflow is for the workers of approvals."""
    told = dict.fromkeys(names, "")
    rest = names - allowed().of_worker(told).keys()
    return rest | ({name for name in names if name.startswith("TACIT_AIRFLOW_")} if not reader else set())


def names_in(*files: str) -> set[str]:
    lines = [line for name in files for line in (ROOT / "docker" / name).read_text(encoding="utf-8").splitlines()]
    return {line.partition("=")[0] for line in lines if line and not line.startswith("#")}


def test_a_stage_computes_as_the_kind_of_processor_that_its_worker_was_told() -> None:
    """An installation of several kinds sets one for all, so that any of them gives the same bits."""
    told = dict.fromkeys(OVERRIDES, "this kind")
    assert allowed().of_stage(told) == told


def test_the_list_has_no_secret_of_airflow_s_services() -> None:
    keys = {"AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW__CORE__FERNET_KEY", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"}
    services = names_in("server.env") - {"AIRFLOW__API__HOST", "AIRFLOW__API__PORT"}
    assert services >= keys
    every = services | NO_WORKER_S | {"AIRFLOW_CONN_SMTP_DEFAULT", "AWS_SECRET_ACCESS_KEY"}
    every |= {"MLFLOW_AUTH_ADMIN_PASSWORD", "MLFLOW_FLASK_SERVER_SECRET_KEY", "MLFLOW_BACKEND_STORE_URI"}
    assert beyond(every, reader=True) == every


def test_a_stage_gets_the_credentials_of_client_text_and_none_of_airflow_s() -> None:
    worker = {"AWS_SECRET_ACCESS_KEY": "airflow's", "TACIT_CLIENTS_AWS_SECRET_ACCESS_KEY": "text's"}
    worker |= {"TACIT_CLIENTS_AWS_ENDPOINT_URL": "http://127.0.0.1:9", "TACIT_CLIENTS_HOME": "/"}
    told = allowed().of_worker(worker)
    assert told == {name: value for name, value in worker.items() if name.startswith("TACIT_CLIENTS_AWS_")}
    assert allowed().of_stage(told) == {"AWS_SECRET_ACCESS_KEY": "text's", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    assert allowed().of_review(told) == {}, "an answer reads no text"


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="the Airflow environment is not built; run `make setup`")
@pytest.mark.parametrize("kind", ["worker-cpu", "worker-gpu"])
def test_workers_of_the_stack(tmp_path: Path, kind: str) -> None:
    shell = {"AIRFLOW__CORE__FERNET_KEY": "x", "AIRFLOW_CONN_SMTP_DEFAULT": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    told = environment_of(tmp_path, kind, **shell)
    assert not beyond(set(told), reader=kind == "worker-cpu")
    home = environment_of(tmp_path, "airflow")["AIRFLOW_HOME"]
    assert told["AIRFLOW_HOME"] != home, "the folder of Airflow's services has their keys in a file"


@pytest.mark.parametrize("name", sorted(WORKERS))
def test_workers_of_compose(name: str) -> None:
    service = SERVICES[name]
    names = names_in(*service["env_file"]) | set(service.get("environment", {}))
    assert not beyond(names, reader=name == "worker-cpu")
    assert not COMPOSE.get("secrets")
    assert not service.get("secrets")


@pytest.mark.parametrize("name", ["small.yaml", "cpu.yaml", "gpu.yaml", "gang"])
def test_pods_beside_client_text(name: str) -> None:
    spec = pods()[name]["spec"]
    (container,) = spec["containers"]
    secret = {each["name"] for each in container["env"] if "secretKeyRef" in each.get("valueFrom", {})}
    told = {each["name"] for each in container["env"]} - secret
    assert not beyond(told, reader=name == "small.yaml")
    assert container.get("envFrom", []) == ([] if name == "gang" else [{"configMapRef": {"name": "settings"}}])
    usual = {"LEDGER_DB_PASSWORD", "MLFLOW_PASSWORD"}
    secrets = dict.fromkeys(("cpu.yaml", "gpu.yaml"), usual) | {
        "small.yaml": usual | {"READER_PASSWORD"},
        "gang": set(),
    }
    assert secret == secrets[name]
    assert not [volume for volume in spec["volumes"] if volume.keys() & {"secret", "projected", "hostPath"}]


def test_settings_of_pods() -> None:
    assert not beyond(set(of_kind("ConfigMap")["settings"]["data"]), reader=False)


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="the Airflow environment is not built; run `make setup`")
def test_airflow_s_worker_needs_no_more(tmp_path: Path) -> None:
    """Airflow's own modules of a worker and of a pod's task, under such an environment."""
    told = environment_of(tmp_path, "worker-gpu")
    for module in ("airflow.providers.celery.executors.celery_executor", "airflow.sdk.execution_time.execute_workload"):
        command = [str(PYTHON), "-c", f"import {module}, airflow.sdk.execution_time.supervisor"]
        done = subprocess.run(command, env=told, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
