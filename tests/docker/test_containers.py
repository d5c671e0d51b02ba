"""Rights and views of containers: compose and the Dockerfiles, read as files; no engine runs."""

import re
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
