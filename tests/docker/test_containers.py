"""Rights and views of containers and pods: compose and the rendered manifests, read as files; no engine runs."""

import functools
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helpers.processes.stack import PYTHON, ROOT

KUBERNETES = ROOT / "docker" / "kubernetes"
COMPOSE = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
ONCE = {"setup", "demo"}
WORKERS = {"worker-cpu", "worker-gpu", "demo"}
PRIVATE = {"runs", "clients"}


@functools.cache
def objects() -> tuple[dict, ...]:
    files = [*sorted(KUBERNETES.glob("*.yaml")), ROOT / "docker" / "gang" / "kubernetes.yaml"]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return tuple(
        each for text in texts for each in yaml.load_all(text, yaml.CSafeLoader)
    )  # the C loader: 20 times faster


def of_kind(kind: str) -> dict[str, dict]:
    return {each["metadata"]["name"]: each for each in objects() if each["kind"] == kind}


@functools.cache
def pods() -> dict[str, dict]:
    """Every pod that there will be, by name: specifications, with labels."""
    made = {}
    for kind in ("Deployment", "StatefulSet", "Job"):
        made |= {name: each["spec"]["template"] for name, each in of_kind(kind).items()}
    templates = dict(of_kind("ConfigMap")["pods"]["data"])
    templates["gang"] = (ROOT / "dags" / "kubernetes_gang.yaml").read_text(encoding="utf-8")
    return made | {name: yaml.load(text, yaml.CSafeLoader) for name, text in templates.items()}


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_writes_to_its_image_or_gains_anything(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "cpus", "pids_limit"} <= service.keys()
    assert name in ONCE or "healthcheck" in service
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert "cap_add" not in service or name == "postgres"


def test_only_workers_see_private_folders_and_launch_files_are_mounted_everywhere() -> None:
    mounts = {name: [str(each) for each in service.get("volumes", ())] for name, service in SERVICES.items()}
    private = {name for name, each in mounts.items() if any("/runs" in one or "/private" in one for one in each)}
    assert private == WORKERS
    launches = {name for name, each in mounts.items() if any(one.endswith("/dags/launches:ro") for one in each)}
    assert launches == WORKERS | {
        name for name, service in SERVICES.items() if "../dags/airflow.env" in service.get("env_file", ())
    }
    assert all(":ro" in one for each in mounts.values() for one in each if "private" in one)


def test_profiles() -> None:
    named = {name: service.get("profiles") for name, service in SERVICES.items() if "profiles" in service}
    assert named == {
        "worker-gpu": ["gpu"],
        "demo": ["demo"],
        "prometheus": ["telemetry"],
        "grafana": ["telemetry"],
    }


@pytest.mark.parametrize("path", sorted((ROOT / "docker").glob("*.Dockerfile")), ids=lambda path: path.stem)
def test_images_are_built_in_stages_and_run_as_nobody_special(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert len(stages) > 1
    ends = [stage for stage in stages if "ENTRYPOINT" in stage]
    assert ends
    for stage in ends:
        assert re.search(r"^USER 50000:0$", stage, flags=re.MULTILINE)
        assert "HEALTHCHECK" in stage
        assert "pip install --no-cache-dir -r" not in stage
    assert "launches" not in "".join(re.findall(r"^COPY .*$", text, flags=re.MULTILINE))


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="the Airflow environment is not built; run `make setup`")
def test_manifests_are_rendered_from_the_files_that_compose_reads(tmp_path: Path) -> None:
    command = [str(PYTHON), "docker/stack", "kubernetes", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text(encoding="utf-8") for path in KUBERNETES.glob("*.yaml")}


@pytest.mark.parametrize("name", pods())
def test_no_pod_is_root_writes_to_its_image_or_holds_a_token(name: str) -> None:
    spec = pods()[name]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is (spec["serviceAccountName"] == "scheduler")
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claims = {volume["name"] for volume in spec["volumes"]}
        assert mounted <= claims | {"data"}


def test_only_pods_of_stages_mount_what_is_private() -> None:
    holders = {
        name
        for name, pod in pods().items()
        for volume in pod["spec"]["volumes"]
        if volume.get("persistentVolumeClaim", {}).get("claimName") in PRIVATE
    }
    assert holders == {"cpu.yaml", "gpu.yaml", "gang"}
    assert {pods()[name]["metadata"]["labels"]["role"] for name in holders} == {"stage", "gang"}


def test_secrets_stand_in_the_secret_alone_and_are_known_before_they_are_used() -> None:
    for name, pod in pods().items():
        for container in pod["spec"]["containers"]:
            known: set[str] = set()
            for variable in container["env"]:
                if "fieldRef" in variable.get("valueFrom", {}):
                    continue
                if "valueFrom" in variable:
                    assert variable["valueFrom"]["secretKeyRef"] == {"name": "tacit-secrets", "key": variable["name"]}
                    known.add(variable["name"])
                    continue
                asked = set(re.findall(r"\$\((\w+)\)", variable["value"]))
                assert asked <= known, (name, variable["name"])
                secret = re.search("PASSWORD|SECRET|FERNET|_CONN$|_URI$|LEDGER_URL$", variable["name"])
                assert asked or not secret or "://mlflow:5000" in variable["value"], (name, variable["name"])


def reaches(source: dict[str, str]) -> set[str]:
    """The services that pods with these labels may reach: both sides must allow it."""
    policies = of_kind("NetworkPolicy").values()

    def selects(selector: dict, labels: dict[str, str]) -> bool:
        return selector.get("matchLabels", {}).items() <= labels.items()

    out = [
        target["podSelector"]["matchLabels"]
        for policy in policies
        if selects(policy["spec"]["podSelector"], source)
        for rule in policy["spec"].get("egress", ())
        for target in rule.get("to", ())
        if "podSelector" in target
    ]
    return {
        labels.get("service") or labels["role"]
        for labels in out
        for policy in policies
        if policy["spec"]["podSelector"].get("matchLabels") == labels
        for rule in policy["spec"].get("ingress", ())
        if any(selects(each["podSelector"], source) for each in rule["from"])
    }


def test_nothing_reaches_anything_but_what_is_named() -> None:
    deny = of_kind("NetworkPolicy")["default-deny"]["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    stage = {"app": "tacit", "role": "stage"}
    assert reaches(stage) == {"postgres", "mlflow", "api-server"}
    assert reaches({"app": "tacit", "role": "gang"}) == {"gang"}
    assert reaches({"app": "tacit", "service": "scheduler"}) == {"postgres", "api-server"}
    assert reaches({"app": "tacit", "service": "mlflow"}) == {"postgres"}
    assert reaches({"app": "tacit", "service": "postgres"}) == set()
    assert reaches({"app": "somebody"}) == set()


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="the Airflow environment is not built; run `make setup`")
def test_a_gang_is_an_indexed_job_that_is_not_tried_again(tmp_path: Path) -> None:
    """As Airflow's operator would ask the cluster for it; no cluster is there."""
    cluster = {"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "none", "context": {"cluster": "none", "user": "none"}}
    reached = {"clusters": [cluster], "contexts": [context], "current-context": "none"}
    reached |= {"apiVersion": "v1", "kind": "Config", "users": [{"name": "none", "user": {}}]}
    (tmp_path / "config").write_text(yaml.safe_dump(reached), encoding="utf-8")
    script = (
        "import json, sys, kubernetes_gang\n"
        "made = kubernetes_gang.job_of(3, ['env', 'A=b c', 'python'], sys.argv[1]).build_job_request_obj()\n"
        "print(json.dumps(made.to_dict(), default=str))\n"
    )
    command, variables = [str(PYTHON), "-c", script, str(tmp_path / "config")], {"AIRFLOW_HOME": str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT / "dags", env=os.environ | variables, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout.splitlines()[-1])["spec"]
    assert (job["completion_mode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 3)
    assert job["backoff_limit"] == 0
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["env", "A=b c", "python"]
    assert "PET_NODE_RANK" in container["command"][2]
    assert container["resources"]["limits"]["nvidia.com/gpu"]
    assert [volume["name"] for volume in pod["volumes"]] == ["runs", "tmp", "memory"]
    service = of_kind("Service")["gang"]
    assert service["spec"]["selector"].items() <= job["template"]["metadata"]["labels"].items()
    assert service["metadata"]["name"] == pod["subdomain"]
