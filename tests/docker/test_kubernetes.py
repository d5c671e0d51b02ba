"""Kubernetes: scripts, run here; and values for Airflow's chart and manifests of our own, read as files.

No cluster runs. What is read is what would let somebody in, and where two files must agree.
"""

import functools
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.helpers.processes.stack import ROOT

DOCKER = ROOT / "docker"
SERVICES = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"]
FOLDER = DOCKER / "kubernetes"
VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "values.yaml").read_text(encoding="utf-8"))
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((DOCKER / "kustomization.yaml").read_text(encoding="utf-8"))
KEYS = (Path(__file__).parent / "airflow_chart_keys.txt").read_text(encoding="utf-8").splitlines()
# ConfigMaps that are made from files outside `docker` (docker/README.md).
BY_HAND = {"launches", "pools"}
# The chart's names of Airflow's services, and the key of each in its values.
COMPONENTS = {
    "api-server": "apiServer",
    "scheduler": "scheduler",
    "dag-processor": "dagProcessor",
    "triggerer": "triggerer",
}
PRIVATE = {"runs", "clients"}
STAGE = {"app": "tacit", "role": "stage"}


@functools.cache
def objects() -> tuple[dict[str, Any], ...]:
    files = [DOCKER / name for name in KUSTOMIZATION["resources"]] + [DOCKER / "gang" / "kubernetes.yaml"]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return tuple(each for text in texts for each in yaml.safe_load_all(text))


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in objects() if each["kind"] == kind}


@functools.cache
def pods() -> dict[str, dict[str, Any]]:
    """Every pod that is not the chart's, by name: specification, with labels."""
    made = {
        name: each["spec"]["template"] for kind in ("Deployment", "StatefulSet") for name, each in of_kind(kind).items()
    }
    made |= {name: each["spec"]["jobTemplate"]["spec"]["template"] for name, each in of_kind("CronJob").items()}
    templates = {path.name: path for path in sorted((FOLDER / "pods").glob("*.yaml"))}
    templates["gang"] = ROOT / "dags" / "kubernetes_gang.yaml"
    return made | {name: yaml.safe_load(path.read_text(encoding="utf-8")) for name, path in templates.items()}


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, container) for name, pod in pods().items() for container in pod["spec"]["containers"])


def paths(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from paths(value, (*above, name))


# The chart


def test_every_value_is_a_key_of_the_chart() -> None:
    known = {tuple(line.split(".")) for line in KEYS if not line.startswith("#")}
    inner = {path[:-1] for path in known}
    for path in paths(VALUES):
        # Sections of Airflow's configuration are free (tests/dags/test_pods.py), and so is all below the last key.
        above = next((path[:size] for size in range(1, len(path)) if path[:size] not in inner), ())
        assert path in known or path[0] == "config" or above in known, ".".join(path)


def test_values_and_keys_are_those_of_one_chart() -> None:
    chart = r"[Cc]hart\s([0-9.]+), apache/airflow commit\s(?:# )?([0-9a-f]{40})"
    heads = ["\n".join(KEYS[:2]), (FOLDER / "values.yaml").read_text(encoding="utf-8")]
    heads.append((DOCKER / "README.md").read_text(encoding="utf-8"))
    stated = [re.search(chart, head) for head in heads]
    assert len({found.groups() if found else None for found in stated}) == 1
    assert stated[0]
    assert f"apache-airflow=={VALUES['airflowVersion']}\n" in (ROOT / "requirements" / "airflow.in").read_text()


def test_the_chart_runs_its_programs_by_our_entry_point(tmp_path: Path) -> None:
    """The chart's arguments are programs, compose's are subcommands; probes and init containers cannot be set apart."""
    program = tmp_path / "airflow"
    program.write_text('#!/bin/sh\necho "airflow $*"\n')
    program.chmod(0o755)
    entry = ["sh", str(DOCKER / "entrypoint.sh")]

    def said(*words: str) -> str:
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run([*entry, *words], env=path, capture_output=True, text=True, check=True).stdout.strip()

    assert said("airflow", "db", "check-migrations") == "airflow db check-migrations"
    assert said(*VALUES["apiServer"]["args"]) == "airflow api-server --proxy-headers"
    assert said(*SERVICES["scheduler"]["command"]) == "airflow scheduler --skip-serve-logs"
    image = (DOCKER / "airflow.Dockerfile").read_text(encoding="utf-8")
    assert "COPY docker/entrypoint.sh /entrypoint\n" in image
    assert 'ENTRYPOINT ["/entrypoint"]' in image
    assert "!docker/entrypoint.sh" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()


# Rights and volumes


def test_no_start_of_a_pod_changes_modes_of_the_files_of_its_volumes() -> None:
    """With ``fsGroup`` alone the kubelet gives every file to the group, also a key that is its owner's alone."""
    contexts = [pod["spec"]["securityContext"] for pod in pods().values()] + [VALUES["securityContexts"]["pod"]]
    assert {(context["fsGroup"] > 0, context["fsGroupChangePolicy"]) for context in contexts} == {
        (True, "OnRootMismatch")
    }


def test_no_pod_is_root_writes_to_its_image_or_holds_a_token() -> None:
    locked = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    for name, pod in pods().items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name
        for container in spec["containers"]:
            assert container["securityContext"] == locked, name
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= {volume["name"] for volume in spec["volumes"]} | {"data"}, name
    contexts = [pod["spec"]["securityContext"] for pod in pods().values()] + [VALUES["securityContexts"]["pod"]]
    for context in contexts:
        assert (context["runAsNonRoot"], context["runAsUser"] > 0) == (True, True)
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert VALUES["securityContexts"]["containers"] == locked
    tokens = {name: VALUES[key]["serviceAccount"]["automountServiceAccountToken"] for name, key in COMPONENTS.items()}
    tokens["migrations"] = VALUES["migrateDatabaseJob"]["serviceAccount"]["automountServiceAccountToken"]
    assert [name for name, held in tokens.items() if held] == ["scheduler"]


def test_only_the_scheduler_creates_pods() -> None:
    assert VALUES["rbac"] == {"create": False}, "the chart's role also lets the triggerer create pods"
    bound = of_kind("RoleBinding")
    assert bound.keys() == {"scheduler", "gang"}
    assert [each["name"] for each in bound["scheduler"]["subjects"]] == ["airflow-scheduler"]
    (pods_rule, *rest) = of_kind("Role")["scheduler"]["rules"]
    assert pods_rule["resources"] == ["pods"]
    assert {verb for rule in rest for verb in rule["verbs"]} == {"get", "list"}


def test_only_pods_of_stages_mount_what_is_private() -> None:
    holders = {
        name
        for name, pod in pods().items()
        for volume in pod["spec"]["volumes"]
        if volume.get("persistentVolumeClaim", {}).get("claimName") in PRIVATE
    }
    assert holders == {"small.yaml", "cpu.yaml", "gpu.yaml", "gang"}
    assert {pods()[name]["metadata"]["labels"]["role"] for name in holders} == {"stage", "gang"}
    assert not PRIVATE & {volume["name"] for volume in VALUES["volumes"]}


def test_every_config_map_and_script_is_there() -> None:
    made = {each["name"]: each["files"] for each in KUSTOMIZATION["configMapGenerator"]}
    assert KUSTOMIZATION["generatorOptions"] == {"disableNameSuffixHash": True}
    assert [file for files in made.values() for file in files if not (DOCKER / file).is_file()] == []
    assert {f"kubernetes/{path.name}" for path in FOLDER.glob("*.yaml")} == {
        *KUSTOMIZATION["resources"],
        "kubernetes/values.yaml",
    }
    mounted = {each["configMap"]["name"] for each in VALUES["volumes"] if "configMap" in each}
    for pod in pods().values():
        mounted |= {each["configMap"]["name"] for each in pod["spec"]["volumes"] if "configMap" in each}
    assert mounted == (made.keys() - {"alerts"}) | BY_HAND
    commands = (DOCKER / "README.md").read_text(encoding="utf-8")
    assert all(f"create configmap {name} " in commands for name in BY_HAND)
    assert {Path(file).name for file in made["pods"]} == {path.name for path in (FOLDER / "pods").iterdir()}
    assert made["alerts"] == ["telemetry/rules.yaml"]


# Secrets, and who logs in


def test_keys_and_passwords_are_made_once_and_known_before_they_are_used() -> None:
    """An api-server that draws its own keys or passwords logs them, and ends every session when it starts again."""
    known: set[str]
    for name, container in containers():
        known = set()
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
            assert asked or not secret, (name, variable["name"])
    names = ("fernetKeySecretName", "apiSecretKeySecretName", "jwtSecretName")
    assert {VALUES[name] for name in names} | {VALUES["data"]["metadataSecretName"]} == {"tacit-secrets"}
    assert VALUES["enableBuiltInSecretEnvVars"] == {"AIRFLOW_CONN_AIRFLOW_DB": False}


def test_the_secret_has_every_key_that_is_asked_of_it(tmp_path: Path) -> None:
    names = re.findall(r"\$\{(\w+):\?", "".join(path.read_text(encoding="utf-8") for path in DOCKER.glob("*.env")))
    compose = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    names += re.findall(r"\$\{(\w+):\?", compose)
    file = tmp_path / "secrets.env"
    file.write_text("".join(f"{name}=of-{name}\n" for name in sorted(set(names))))
    command, variables = ["sh", str(FOLDER / "secrets.sh"), str(file)], {"PATH": "/usr/bin:/bin"}
    refused = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "KEYCLOAK_CLIENT_SECRET" in refused.stderr
    done = subprocess.run(
        command, env=variables | {"KEYCLOAK_CLIENT_SECRET": "x"}, capture_output=True, text=True, check=True
    )
    made = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert made["connection"] == "postgresql+psycopg2://airflow:of-AIRFLOW_DB_PASSWORD@postgres:5432/airflow"
    asked = {"connection", "fernet-key", "jwt-secret", "api-secret-key"}
    asked |= set(re.findall(r"name: tacit-secrets, key: ([\w-]+)", "".join(_texts())))
    asked |= {each["secretKey"] for each in VALUES["secret"]}
    assert asked >= {"LEDGER_DB_PASSWORD", "KEYCLOAK_CLIENT_SECRET", "READER_PASSWORD"}
    assert asked <= made.keys()


def _texts() -> Iterator[str]:
    return (path.read_text(encoding="utf-8") for path in sorted(FOLDER.rglob("*.yaml")))


def test_people_log_in_by_single_sign_on_over_tls() -> None:
    """Approvals rest on who logs in: not on a list of users with passwords in a file of the api-server's."""
    manager = VALUES["config"]["core"]["auth_manager"]
    settings = of_kind("ConfigMap")["settings"]["data"]
    assert manager.endswith(".KeycloakAuthManager")
    assert settings["AIRFLOW__CORE__AUTH_MANAGER"] == manager, "else `tacit check` takes users from dags/airflow.env"
    assert VALUES["config"]["keycloak_auth_manager"].keys() == {"server_url", "realm", "client_id"}
    given = {each["name"]: each for each in VALUES["apiServer"]["env"]}
    assert (
        given["AIRFLOW__KEYCLOAK_AUTH_MANAGER__CLIENT_SECRET"]["valueFrom"]["secretKeyRef"]["name"] == "tacit-secrets"
    )
    (host,) = VALUES["ingress"]["apiServer"]["hosts"]
    assert (VALUES["ingress"]["apiServer"]["enabled"], host["tls"]["enabled"]) == (True, True)
    address = VALUES["config"]["api"]["base_url"]
    assert (urlsplit(address).scheme, urlsplit(address).hostname) == ("https", host["name"])
    assert settings["AIRFLOW__API__BASE_URL"] == address, "links in notices"
    assert urlsplit(VALUES["config"]["keycloak_auth_manager"]["server_url"]).scheme == "https"
    assert VALUES["apiServer"]["args"][-1].endswith("--proxy-headers"), "else cookies are not marked as secure"


def test_settings_are_those_that_compose_reads() -> None:
    def names(*files: str) -> set[str]:
        lines = [line for name in files for line in (DOCKER / name).read_text(encoding="utf-8").splitlines()]
        return {line.partition("=")[0] for line in lines if line and not line.startswith("#")}

    given = {name: {each["name"] for each in container["env"]} for name, container in containers()}
    assert names("mlflow.env") <= given["mlflow"]
    settings = of_kind("ConfigMap")["settings"]["data"].keys()
    assert names("worker.env") <= settings | given["cpu.yaml"]
    assert names("worker.env", "approval.env") <= settings | given["small.yaml"]
    not_here = re.compile("AIRFLOW__CELERY.*|AIRFLOW__CORE__PARALLELISM")
    assert {name for name in names("stack.env") if not not_here.fullmatch(name)} <= settings


# Network


def chosen(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Tell if a label selector matches labels, as Kubernetes defines it for ``matchLabels`` and operator ``In``."""
    for each in selector.get("matchExpressions", ()):
        assert each["operator"] == "In"
        if labels.get(each["key"]) not in each["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def reaches(
    source: Mapping[str, str], target: Mapping[str, str], port: int, namespace: Mapping[str, str] | None = None
) -> bool:
    """Tell if pods may connect: the policies of both sides, or of one where the other is outside.

    Args:
      source: labels of the pod, or of its namespace if it is outside (no label ``app`` or ``tier``).
      namespace: labels of the target's namespace, if it is another; its own policies are not ours.
    """
    policies = [each["spec"] for each in of_kind("NetworkPolicy").values()]
    inside = bool(source.keys() & {"app", "tier"})

    def allowed(direction: str, pod: Mapping[str, str], peer: Mapping[str, str], within: bool) -> bool:
        for policy in policies:
            rules = policy.get(direction, ()) if chosen(policy["podSelector"], pod) else ()
            for rule in rules:
                if port not in [each["port"] for each in rule.get("ports", [{"port": port}])]:
                    continue
                peers = rule.get("from" if direction == "ingress" else "to")
                kind = "podSelector" if within else "namespaceSelector"
                if peers is None or any(kind in each and chosen(each[kind], peer) for each in peers):
                    return True
        return False

    if namespace is not None:
        return allowed("egress", source, namespace, within=False)
    return (not inside or allowed("egress", source, target, within=True)) and allowed("ingress", target, source, inside)


def airflow(component: str) -> dict[str, str]:
    return {"tier": "airflow", "release": "airflow", "component": component}


POSTGRES, MLFLOW, API = (
    {"app": "tacit", "service": "postgres"},
    {"app": "tacit", "service": "mlflow"},
    airflow("api-server"),
)


def test_nothing_reaches_anything_but_what_is_named() -> None:
    deny = of_kind("NetworkPolicy")["default-deny"]["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    sources = {name: airflow(name) for name in COMPONENTS} | {"stage": STAGE, "mlflow": MLFLOW, "postgres": POSTGRES}
    sources |= {"migrations": airflow("run-airflow-migrations"), "backup": {"app": "tacit", "service": "backup"}}
    sources |= {"gang": {"app": "tacit", "role": "gang"}, "stranger": {"app": "somebody"}}
    places = {"postgres": (POSTGRES, 5432), "mlflow": (MLFLOW, 5000), "api-server": (API, 8080)}
    seen = {
        name: {place for place, (target, port) in places.items() if reaches(labels, target, port)}
        for name, labels in sources.items()
    }
    services = {name: {"postgres", "api-server"} for name in (*COMPONENTS, "migrations")}
    assert seen == services | {
        "stage": {"postgres", "mlflow", "api-server"},
        "mlflow": {"postgres"},
        "backup": {"postgres"},
        "postgres": set(),
        "gang": set(),
        "stranger": set(),
    }
    assert reaches(sources["gang"], sources["gang"], 20000)


def test_alerts_telemetry_and_public_text_get_out_and_people_get_in() -> None:
    def out(source: Mapping[str, str], use: str, port: int) -> bool:
        return reaches(source, {}, port, namespace={f"serves-tacit/{use}": "true"})

    tasks = {name: STAGE | {"task_id": name} for name in ("ingest_public", "fine_tune", "approve")}
    for source in (*tasks.values(), *(airflow(name) for name in COMPONENTS)):
        assert out(source, "telemetry", 4318)
    for source in (*tasks.values(), airflow("dag-processor")):
        assert out(source, "alerts", 587)
        assert out(source, "alerts", 443)
    assert [name for name, source in tasks.items() if out(source, "public-text", 3128)] == ["ingest_public"]
    assert not out(STAGE, "ingress", 443)
    assert not out(STAGE, "somebody", 443)
    assert out(API, "login", 443)
    outside = [{"serves-tacit/ingress": "true"}, {"kubernetes.io/metadata.name": "default"}]
    for target, port in ((API, 8080), (MLFLOW, 5000)):
        assert [reaches(source, target, port) for source in outside] == [True, False]
    assert not reaches(outside[0], POSTGRES, 5432)
    uses = set(re.findall(r"serves-tacit/([a-z-]+): ", (FOLDER / "network.yaml").read_text(encoding="utf-8")))
    described = (DOCKER / "README.md").read_text(encoding="utf-8")
    assert uses == {"telemetry", "alerts", "public-text", "ingress"}
    assert all(f"serves-tacit/{use}=true" in described for use in uses)


# Backups


@pytest.mark.slow
@pytest.mark.services
def test_a_dump_restores_what_was_there(tmp_path: Path, postgres_url: str) -> None:
    """``backup.sh`` against a server: every database at first, then the ledger alone, and a dump that restores."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    address = urlsplit(postgres_url)
    login = {"PGHOST": address.hostname, "PGPORT": str(address.port), "PGUSER": address.username}
    variables = {key: str(value) for key, value in login.items()} | {"PGPASSWORD": str(address.password)}
    variables["PATH"] = f"{found}:/usr/bin:/bin"

    def run(*command: str) -> str:
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout

    databases = ("ledger", "airflow", "mlflow", "mlflow_login")
    for name in databases:
        run("createdb", name)
    try:
        run("psql", "-c", "CREATE TABLE spends AS SELECT 7 AS rho", "ledger")
        for _ in range(2):
            run("sh", str(FOLDER / "backup.sh"), str(tmp_path))
            subprocess.run(["sleep", "1.1"], check=True)
        dumps = {name: sorted((tmp_path / name).iterdir()) for name in databases}
        assert {name: len(each) for name, each in dumps.items()} == {"ledger": 2} | dict.fromkeys(databases[1:], 1)
        assert all(each.stat().st_mode & 0o777 == 0o600 for files in dumps.values() for each in files)
        run("dropdb", "ledger")
        failed = subprocess.run(
            ["sh", str(FOLDER / "backup.sh"), str(tmp_path)], env=variables, capture_output=True, text=True
        )
        assert failed.returncode != 0, "a database that is gone is no empty dump"
        run("createdb", "ledger")
        run("pg_restore", "--dbname", "ledger", str(dumps["ledger"][-1]))
        assert run("psql", "-At", "-c", "SELECT rho FROM spends", "ledger").strip() == "7"
    finally:
        for name in databases:
            run("dropdb", "--if-exists", name)
