"""Kubernetes manifests of the production stack, from the files and commands that compose and `make stack` use.

Stages are pods of Airflow's Kubernetes executor, so there is no Redis and no Celery. All secrets are in one Secret;
settings refer to them as ``$(NAME)``, which the kubelet fills in.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

import passwords
from manifests import (
    AIRFLOW,
    NAMESPACE,
    STAGE,
    Object,
    accounts,
    claim,
    claim_spec,
    deployment,
    empty,
    head,
    held,
    namespace,
    network,
    resources,
    service,
    template,
    write,
)
from places import ROOT, compose_service, filled_in

SECRET = "tacit-secrets"
IMAGES = {"airflow": "tacit-airflow:latest", "stages": "tacit-stages:latest", "gpu": "tacit-stages-gpu:latest"}
_NOT_HERE = ("AIRFLOW__CELERY", "AIRFLOW__OPERATORS__DEFAULT_QUEUE", "NO_PROXY")
LOCKED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def render(folder: Path) -> list[Path]:
    """Write every manifest into a folder: one file per subject, and the file for `kubectl apply -k`."""
    files: dict[str, Sequence[Object]] = {
        "namespace": [namespace()],
        "accounts": accounts(),
        "network": network(),
        "storage": [claim("runs", "ReadWriteMany", "100Gi"), claim("clients", "ReadOnlyMany", "100Gi")],
        "postgres": postgres(),
        "mlflow": mlflow(),
        "airflow": [*airflow(), pod_templates()],
    }
    written = [write(folder / f"{name}.yaml", objects) for name, objects in files.items()]
    applied = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": [f"{name}.yaml" for name in files],
    }
    return [*written, write(folder / "kustomization.yaml", [applied])]


def secret_names() -> list[str]:
    """Names of all secrets in the files, as in ``secrets.env`` of `make stack`."""
    return list(passwords.NAMES)


def environment(kind: str) -> list[Object]:
    """Environment of a container: the secrets that its settings refer to, then the settings."""
    names = secret_names()
    values = {name: f"$({name})" for name in names} | {"EXECUTOR": "KubernetesExecutor", "PATH": "/usr/bin:/bin"}
    filled = filled_in(kind, values)
    shell = {"PATH", "PWD", "SHLVL", "_", "EXECUTOR", *names}
    fixed = {name: value for name, value in filled.items() if name not in shell and not name.startswith(_NOT_HERE)}
    asked = [name for name in names if any(f"$({name})" in value for value in fixed.values())]
    return [*map(from_secret, asked), *({"name": name, "value": fixed[name]} for name in sorted(fixed) if fixed[name])]


def from_secret(name: str) -> Object:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": name}}}


def postgres() -> list[Object]:
    """PostgreSQL server for a trial; a production uses its own, with backups, under the same service name."""
    stated = compose_service("postgres")
    names = [name for name in stated["environment"] if name in secret_names()]
    container = {
        "name": "postgres",
        "image": stated["image"],
        "env": [*map(from_secret, names), {"name": "PGDATA", "value": "/var/lib/postgresql/data/cluster"}],
        "ports": [{"containerPort": 5432}],
        "readinessProbe": {"exec": {"command": ["pg_isready", "--username", "postgres"]}, "periodSeconds": 10},
        "resources": resources("500m", "1Gi", "2Gi"),
        "securityContext": LOCKED,
        "volumeMounts": [
            {"name": "data", "mountPath": "/var/lib/postgresql/data"},
            {"name": "run", "mountPath": "/var/run/postgresql"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "databases", "mountPath": "/docker-entrypoint-initdb.d", "readOnly": True},
        ],
    }
    volumes = [empty("run", "16Mi"), empty("tmp", "256Mi"), {"name": "databases", "configMap": {"name": "databases"}}]
    script = (ROOT / "docker" / "databases.sh").read_text(encoding="utf-8")
    labels = {"app": "tacit", "service": "postgres"}
    spec = {
        "serviceName": "postgres",
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": template(labels, "service", [container], volumes, user=999),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim_spec("ReadWriteOnce", "20Gi")}],
    }
    return [
        {**head("v1", "ConfigMap", "databases"), "data": {"databases.sh": script}},
        {**head("apps/v1", "StatefulSet", "postgres"), "spec": spec},
        service("postgres", 5432),
    ]


def mlflow() -> list[Object]:
    """MLflow's server with login, on a volume of its own with only public artifacts."""
    variables = [*environment("mlflow"), {"name": "MLFLOW", "value": "/opt/stages-env/bin/mlflow"}]
    container = {
        "name": "mlflow",
        "image": IMAGES["stages"],
        "command": ["bash", "/scripts/mlflow.sh"],
        "env": variables,
        "ports": [{"containerPort": 5000}],
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": 5000, "httpHeaders": [{"name": "Host", "value": "mlflow:5000"}]}
        },
        "livenessProbe": {"tcpSocket": {"port": 5000}, "initialDelaySeconds": 120},
        "resources": resources("500m", "2Gi", "4Gi"),
        "securityContext": LOCKED,
        "volumeMounts": [
            {"name": "mlflow", "mountPath": "/mlflow"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "scripts", "mountPath": "/scripts", "readOnly": True},
        ],
    }
    script = (ROOT / "docker" / "mlflow.sh").read_text(encoding="utf-8")
    volumes = [held("mlflow"), empty("tmp", "1Gi"), {"name": "scripts", "configMap": {"name": "mlflow"}}]
    return [
        {**head("v1", "ConfigMap", "mlflow"), "data": {"mlflow.sh": script}},
        claim("mlflow", "ReadWriteOnce", "50Gi"),
        deployment("mlflow", "service", [container], volumes),
        service("mlflow", 5000),
    ]


def airflow() -> list[Object]:
    """Airflow's services with compose's commands; the first start creates the tables."""
    variables, objects = environment("airflow"), []
    health: Mapping[str, Object] = {
        "api-server": {"httpGet": {"path": "/api/v2/version", "port": 8080}},
        "scheduler": {"exec": {"command": ["airflow", "jobs", "check", "--job-type", "SchedulerJob", "--local"]}},
        "dag-processor": {
            "exec": {"command": ["airflow", "jobs", "check", "--job-type", "DagProcessorJob", "--local"]}
        },
        "triggerer": {"exec": {"command": ["airflow", "jobs", "check", "--job-type", "TriggererJob", "--local"]}},
    }
    mounts = [
        {"name": "logs", "mountPath": "/opt/airflow/logs"},
        {"name": "state", "mountPath": "/opt/airflow/state"},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "launches", "mountPath": "/opt/tacit/dags/launches", "readOnly": True},
        {"name": "pods", "mountPath": "/opt/tacit/pods", "readOnly": True},
    ]
    volumes = [
        held("logs"),
        empty("state", "256Mi"),
        empty("tmp", "1Gi"),
        {"name": "launches", "configMap": {"name": "launches"}},
        {"name": "pods", "configMap": {"name": "pods"}},
    ]
    shared = {"image": IMAGES["airflow"], "env": variables, "securityContext": LOCKED, "volumeMounts": mounts}
    for name in AIRFLOW:
        probe = {
            "livenessProbe": {**health[name], "initialDelaySeconds": 90, "periodSeconds": 60, "timeoutSeconds": 30}
        }
        container = {"name": name, **shared, "args": compose_service(name)["command"], **probe}
        container["resources"] = resources("250m", "1Gi", "2Gi")
        if name == "api-server":
            start = [word.replace("$$", "$") for word in compose_service(name)["entrypoint"]]
            container |= {"ports": [{"containerPort": 8080}], "readinessProbe": health[name], "command": start}
            container["env"] = [from_secret("READER_PASSWORD"), *variables]
        account = "scheduler" if name == "scheduler" else "service"
        objects.append(deployment(name, account, [container], volumes))
    setup = {"name": "setup", **shared, "command": compose_service("setup")["entrypoint"]}
    setup["resources"] = resources("250m", "1Gi", "2Gi")
    labels = {"app": "tacit", "service": "setup"}
    pod = template(labels, "service", [setup], volumes)
    pod["spec"]["restartPolicy"] = "Never"
    objects.append({**head("batch/v1", "Job", "setup"), "spec": {"backoffLimit": 6, "template": pod}})
    return [claim("logs", "ReadWriteMany", "20Gi"), *objects, service("api-server", 8080)]


def pod_templates() -> Object:
    """Pod templates of Airflow's executor for stages; a stage that trains on a GPU uses the second."""
    files = {f"{kind}.yaml": yaml.safe_dump(stage_pod(kind), sort_keys=False) for kind in ("cpu", "gpu")}
    return {**head("v1", "ConfigMap", "pods"), "data": files}


def stage_pod(kind: str) -> Object:
    """Pod of one stage; only these pods mount client text."""
    gpu = kind == "gpu"
    container = {
        "name": "base",  # the name that Airflow's executor requires
        "image": IMAGES["gpu" if gpu else "stages"],
        "command": ["env"],  # replaces the image's entry point: the executor gives the whole command
        "env": environment("worker-gpu" if gpu else "worker-cpu"),
        "resources": resources("2", "8Gi", "64Gi" if gpu else "16Gi", gpu),
        "securityContext": LOCKED,
        "volumeMounts": _STAGE_MOUNTS,
    }
    spec = template(STAGE, "stage", [container], _stage_volumes(gpu))["spec"]
    spec |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 120}
    if gpu:
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stage", "labels": STAGE}, "spec": spec}


_STAGE_MOUNTS = [
    {"name": "runs", "mountPath": "/opt/tacit/runs"},
    {"name": "clients", "mountPath": "/opt/tacit/data/private", "readOnly": True},
    {"name": "launches", "mountPath": "/opt/tacit/dags/launches", "readOnly": True},
    {"name": "logs", "mountPath": "/opt/airflow/logs"},
    {"name": "state", "mountPath": "/opt/airflow/state"},
    {"name": "tmp", "mountPath": "/tmp"},
    {"name": "memory", "mountPath": "/dev/shm"},
]


def _stage_volumes(gpu: bool) -> list[Object]:
    shared = {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi" if gpu else "256Mi"}}
    return [
        held("runs"),
        {"name": "clients", "persistentVolumeClaim": {"claimName": "clients", "readOnly": True}},
        {"name": "launches", "configMap": {"name": "launches"}},
        held("logs"),
        empty("state", "256Mi"),
        empty("tmp", "8Gi"),
        shared,
    ]
