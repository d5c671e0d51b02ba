"""Rights and views of containers: compose and the Dockerfiles, read as files; no engine runs."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helpers.processes.stack import ROOT

COMPOSE = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
ONCE = {"setup", "demo"}
WORKERS = {"worker-cpu", "worker-gpu", "demo"}


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_writes_to_its_image_or_gains_anything(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit"} <= service.keys()
    assert "cpus" not in service, "an engine refuses more cores than its host has"
    assert name in ONCE or "healthcheck" in service
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert "cap_add" not in service or name == "postgres"


def test_what_holds_client_text_is_in_a_network_that_leads_nowhere() -> None:
    assert COMPOSE["networks"]["inside"]["internal"] is True
    published = {name for name, service in SERVICES.items() if "ports" in service}
    assert {name for name, service in SERVICES.items() if service["networks"] != ["inside"]} == published
    assert not published & WORKERS
    assert all(service["dns"] == ["127.0.0.1"] for service in SERVICES.values())


def test_only_workers_see_private_folders_and_launch_files_are_mounted_everywhere() -> None:
    mounts = {name: [str(each) for each in service.get("volumes", ())] for name, service in SERVICES.items()}
    private = {name for name, each in mounts.items() if any("/runs" in one or "/private" in one for one in each)}
    assert private == WORKERS
    launches = {name for name, each in mounts.items() if any(one.endswith("/dags/launches:ro") for one in each)}
    assert launches == WORKERS | {
        name for name, service in SERVICES.items() if "../dags/airflow.env" in service.get("env_file", ())
    }
    assert all(":ro" in one for each in mounts.values() for one in each if "private" in one)


def test_the_api_server_draws_no_password(tmp_path: Path) -> None:
    """Its entry point, run here: the file holds a password for every user, so that none is drawn and logged."""
    service = SERVICES["api-server"]
    (tmp_path / "airflow").write_text("#!/bin/sh\n")
    (tmp_path / "airflow").chmod(0o755)
    variables = {name: f"of-{name}" for name in service["environment"]}
    command = [word.replace("$$", "$") for word in [*service["entrypoint"], *service["command"]]]
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin", "AIRFLOW_HOME": str(tmp_path)}
    subprocess.run(command, env=variables | path, check=True)
    file = tmp_path / "simple_auth_manager_passwords.json.generated"
    made = json.loads(file.read_text(encoding="utf-8"))
    shared = (ROOT / "dags" / "airflow.env").read_text(encoding="utf-8")
    users = re.search(r"^AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS=(.*)$", shared, flags=re.MULTILINE)
    assert users
    assert made.keys() == {user.partition(":")[0] for user in users[1].split(",")}
    assert set(made.values()) == set(variables.values())
    assert file.stat().st_mode & 0o77 == 0


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
