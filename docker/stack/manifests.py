"""Shared parts of Kubernetes manifests, service accounts with their rights, and network policies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
NAMESPACE, USER = "tacit", 50000
AIRFLOW = ("api-server", "scheduler", "dag-processor", "triggerer")
# Labels of pods for the network policies.
STAGE = {"app": "tacit", "role": "stage"}


def accounts() -> list[Object]:
    """Service accounts: only the scheduler may use the cluster's API, to create and delete pods."""
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ]
    return [
        *(
            {**head("v1", "ServiceAccount", name), "automountServiceAccountToken": name == "scheduler"}
            for name in ("scheduler", "service", "stage")
        ),
        {**head("rbac.authorization.k8s.io/v1", "Role", "scheduler"), "rules": rules},
        {
            **head("rbac.authorization.k8s.io/v1", "RoleBinding", "scheduler"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "scheduler"},
            "subjects": [{"kind": "ServiceAccount", "name": "scheduler", "namespace": NAMESPACE}],
        },
    ]


def network() -> list[Object]:
    """Network policies: deny all traffic except the listed connections and DNS."""
    airflow_pods = [{"app": "tacit", "service": name} for name in AIRFLOW]
    stage, setup = [STAGE], [{"app": "tacit", "service": "setup"}]
    into = {
        "postgres": (5432, [*airflow_pods, *setup, *stage, {"app": "tacit", "service": "mlflow"}]),
        "mlflow": (5000, stage),
        "api-server": (8080, [*airflow_pods[1:], *stage]),
    }
    dns = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    policies = [
        policy("default-deny", {}, {"policyTypes": ["Ingress", "Egress"]}),
        policy(
            "names",
            {},
            {"policyTypes": ["Egress"], "egress": [{"to": [{"namespaceSelector": {}}], "ports": dns}]},
        ),
    ]
    for service, (port, sources) in into.items():
        allowed = [{"podSelector": {"matchLabels": labels}} for labels in sources]
        ports = [{"port": port, "protocol": "TCP"}]
        target = {"app": "tacit", "service": service}
        policies.append(
            policy(
                f"into-{service}", target, {"policyTypes": ["Ingress"], "ingress": [{"from": allowed, "ports": ports}]}
            )
        )
        for labels in sources:
            out = {"to": [{"podSelector": {"matchLabels": target}}], "ports": ports}
            name = f"{labels.get('service', labels.get('role'))}-to-{service}"
            policies.append(policy(name, labels, {"policyTypes": ["Egress"], "egress": [out]}))
    # The cluster's API is outside the pods' network, at an address that only the cluster knows.
    api = {"ports": [{"port": port, "protocol": "TCP"} for port in (443, 6443)]}
    scheduler = {"app": "tacit", "service": "scheduler"}
    policies.append(policy("scheduler-to-cluster", scheduler, {"policyTypes": ["Egress"], "egress": [api]}))
    return policies


def namespace() -> Object:
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def head(version: str, kind: str, name: str) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}


def policy(name: str, labels: Mapping[str, str], rules: Object) -> Object:
    selector = {"matchLabels": dict(labels)} if labels else {}
    return {**head("networking.k8s.io/v1", "NetworkPolicy", name), "spec": {"podSelector": selector, **rules}}


def deployment(name: str, account: str, containers: list[Object], volumes: list[Object]) -> Object:
    labels = {"app": "tacit", "service": name}
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": template(labels, account, containers, volumes),
    }
    return {**head("apps/v1", "Deployment", name), "spec": spec}


def template(
    labels: Mapping[str, str], account: str, containers: list[Object], volumes: list[Object], user: int = USER
) -> Object:
    security = {"runAsNonRoot": True, "runAsUser": user, "fsGroup": user, "seccompProfile": {"type": "RuntimeDefault"}}
    spec: Object = {"serviceAccountName": account, "automountServiceAccountToken": account == "scheduler"}
    spec |= {"enableServiceLinks": False, "securityContext": security, "containers": containers, "volumes": volumes}
    return {"metadata": {"labels": dict(labels)}, "spec": spec}


def service(name: str, port: int) -> Object:
    spec = {"selector": {"app": "tacit", "service": name}, "ports": [{"port": port, "targetPort": port}]}
    return {**head("v1", "Service", name), "spec": spec}


def claim(name: str, mode: str, size: str) -> Object:
    return {**head("v1", "PersistentVolumeClaim", name), "spec": claim_spec(mode, size)}


def claim_spec(mode: str, size: str) -> Object:
    return {"accessModes": [mode], "resources": {"requests": {"storage": size}}}


def held(name: str) -> Object:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def empty(name: str, size: str) -> Object:
    return {"name": name, "emptyDir": {"sizeLimit": size}}


def resources(cpu: str, memory: str, most: str, gpu: bool = False) -> Object:
    limits: Object = {"memory": most, **({"nvidia.com/gpu": 1} if gpu else {})}
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}


def write(path: Path, objects: Sequence[Object]) -> Path:
    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

        def represent_text(self, data: str) -> yaml.Node:
            style = "|" if "\n" in data else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Plain.add_representer(str, Plain.represent_text)
    head = "# Rendered by `python docker/stack kubernetes` from docker/*.env and docker/compose.yaml: change those.\n"
    body = yaml.dump_all(objects, Dumper=Plain, sort_keys=False, width=120, allow_unicode=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + body, encoding="utf-8")
    return path
