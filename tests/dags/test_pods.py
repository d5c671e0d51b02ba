"""Pods of stages, as Airflow's Kubernetes executor makes them from the rendered templates."""

from pathlib import Path

import pytest
import yaml

from .conftest import ROOT


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_the_executor_makes_a_stage_s_pod_from_its_template(kind: str, tmp_path: Path):
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

    manifests = yaml.safe_load_all((ROOT / "docker" / "kubernetes" / "airflow.yaml").read_text(encoding="utf-8"))
    (templates,) = (each["data"] for each in manifests if each["metadata"]["name"] == "pods")
    path = tmp_path / f"{kind}.yaml"
    path.write_text(templates[f"{kind}.yaml"], encoding="utf-8")
    pod = PodGenerator.construct_pod(
        dag_id="demo",
        task_id="fine_tune",
        pod_id="demo-fine-tune",
        try_number=1,
        kube_image=None,
        date=None,
        args=["python", "-m", "airflow"],
        pod_override_object=None,
        base_worker_pod=PodGenerator.deserialize_model_file(str(path)),
        namespace="tacit",
        scheduler_job_id="1",
    )
    (container,) = pod.spec.containers
    assert (container.command, container.args) == (["env"], ["python", "-m", "airflow"])
    assert container.security_context.read_only_root_filesystem
    assert pod.metadata.labels["role"] == "stage"
    assert {mount.name for mount in container.volume_mounts} >= {"runs", "clients"}
    assert ("nvidia.com/gpu" in container.resources.limits) == (kind == "gpu")


def test_stages_that_train_on_a_gpu_name_its_template(dagbag):
    task = dagbag.dags["scheduled"].get_task("fine_tune")
    assert task.executor_config == {"pod_template_file": "/opt/tacit/pods/gpu.yaml"}
    assert dagbag.dags["scheduled"].get_task("report").executor_config == {}
