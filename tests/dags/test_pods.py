"""Pods of stages, as Airflow's executor makes them, a gang's Job, and values of the chart that Airflow reads."""

from importlib import import_module
from pathlib import Path

import pytest
import yaml

from .conftest import ROOT

FOLDER = ROOT / "docker" / "kubernetes"
VALUES = yaml.safe_load((FOLDER / "values.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", ["small", "cpu", "gpu"])
def test_the_executor_makes_a_pod_from_its_template(kind: str, monkeypatch: pytest.MonkeyPatch):
    from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

    settings = VALUES["config"]["kubernetes_executor"]
    assert settings.keys() >= {"worker_container_repository", "worker_container_tag"}, "the chart writes its own"
    for name, value in settings.items():
        monkeypatch.setenv(f"AIRFLOW__KUBERNETES_EXECUTOR__{name.upper()}", str(value))
    template = FOLDER / "pods" / f"{kind}.yaml"
    pod = PodGenerator.construct_pod(
        dag_id="demo",
        task_id="ingest_public",
        pod_id="demo-ingest-public",
        try_number=1,
        kube_image=KubeConfig().kube_image,
        date=None,
        args=["python", "-m", "airflow"],
        pod_override_object=None,
        base_worker_pod=PodGenerator.deserialize_model_file(str(template)),
        namespace="tacit",
        scheduler_job_id="1",
    )
    (container,) = pod.spec.containers
    assert f"image: {container.image}\n" in template.read_text(encoding="utf-8")
    assert (container.command, container.args) == (["env"], ["python", "-m", "airflow"])
    assert container.security_context.read_only_root_filesystem
    # By the task's label a network policy lets this task alone read public text from outside.
    assert {"role": "stage", "task_id": "ingest_public"}.items() <= pod.metadata.labels.items()
    assert {mount.name for mount in container.volume_mounts} >= {"runs", "clients"}
    assert ("nvidia.com/gpu" in container.resources.limits) == (kind == "gpu")


def test_each_task_takes_the_pod_that_it_needs(dagbag):
    """The check of a launch file takes 82 MiB, and would wait for a node with 8 GiB to spare."""
    default = VALUES["config"]["kubernetes_executor"]["pod_template_file"]
    tasks = {task.task_id: task for task in dagbag.dags["scheduled"].tasks}
    files = {name: task.executor_config.get("pod_template_file", default) for name, task in tasks.items()}
    (mount,) = (each for each in VALUES["volumeMounts"] if each["name"] == "pods")
    assert {path.rpartition("/")[0] for path in files.values()} == {mount["mountPath"]}
    kinds = {name: path.rpartition("/")[2] for name, path in files.items()}
    assert (kinds["check"], kinds["approve"], kinds["launch_or_hold"]) == ("small.yaml",) * 3
    assert (kinds["fine_tune"], kinds["report"]) == ("gpu.yaml", "cpu.yaml")
    small = yaml.safe_load((FOLDER / "pods" / "small.yaml").read_text(encoding="utf-8"))
    assert small["spec"]["containers"][0]["resources"]["requests"]["memory"] == "512Mi"


def test_a_gang_is_an_indexed_job_that_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As Airflow's operator would ask the cluster for it; no cluster is there."""
    monkeypatch.syspath_prepend(str(ROOT / "dags"))
    cluster = {"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "none", "context": {"cluster": "none", "user": "none"}}
    reached = {"clusters": [cluster], "contexts": [context], "current-context": "none"}
    reached |= {"apiVersion": "v1", "kind": "Config", "users": [{"name": "none", "user": {}}]}
    (tmp_path / "config").write_text(yaml.safe_dump(reached), encoding="utf-8")
    made = import_module("kubernetes_gang").job_of(3, ["env", "A=b c", "python"], str(tmp_path / "config"))
    made = made.build_job_request_obj().to_dict()
    job, labels = made["spec"], made["spec"]["template"]["metadata"]["labels"]
    assert (job["completion_mode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 3)
    assert job["backoff_limit"] == 0
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["env", "A=b c", "python"]
    assert "PET_NODE_RANK" in container["command"][2]
    assert container["resources"]["limits"]["nvidia.com/gpu"]
    assert [volume["name"] for volume in pod["volumes"]] == ["runs", "tmp", "memory"]
    objects = yaml.safe_load_all((ROOT / "docker" / "gang" / "kubernetes.yaml").read_text(encoding="utf-8"))
    (service,) = (each for each in objects if each["kind"] == "Service")
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["metadata"]["name"] == pod["subdomain"]


def test_values_set_options_that_airflow_has():
    from airflow.configuration import retrieve_configuration_description

    known = retrieve_configuration_description(include_providers=True)
    stated = [(section, option) for section, options in VALUES["config"].items() for option in options]
    assert [each for each in stated if each[1] not in known.get(each[0], {}).get("options", {})] == []


def test_the_auth_manager_is_airflow_s_and_answers_the_login_that_tacit_review_sends():
    from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager
    from airflow.providers.keycloak.auth_manager.datamodels.token import TokenBody, TokenPasswordBody

    module, _, name = VALUES["config"]["core"]["auth_manager"].rpartition(".")
    assert issubclass(getattr(import_module(module), name), BaseAuthManager)
    login = {"username": "tacit-reader", "password": "x"}  # pipeline/publication/airflow_answer.py
    assert isinstance(TokenBody.model_validate(login).root, TokenPasswordBody)
