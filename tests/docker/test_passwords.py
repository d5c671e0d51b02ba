"""Passwords of `make up`: one each, for this user alone, the same at the next start."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AIRFLOW = ROOT / ".venv" / "airflow" / "bin" / "python"
USERS = ("admin", "privacy-reviewer", "tacit-reader", "mlflow-reader")

pytestmark = pytest.mark.skipif(not AIRFLOW.exists(), reason="the Airflow environment is not built; run `make setup`")


def passwords(home: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "AIRFLOW_HOME": str(home)}
    command = [str(AIRFLOW), "docker/stack", "local", "environment", "airflow"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_everyone_has_a_file_that_only_this_user_reads(tmp_path: Path):
    said = passwords(tmp_path)
    folder = tmp_path / "up" / "passwords"
    secret = {name: (folder / name).read_text(encoding="utf-8").strip() for name in USERS}
    assert all(len(value) >= 20 for value in secret.values())
    assert len(set(secret.values())) == len(USERS)
    assert not any(value in said for value in secret.values())
    assert all(path.stat().st_mode & 0o77 == 0 for path in (folder, *folder.iterdir()))
    airflow = json.loads((folder / ".airflow.json").read_text(encoding="utf-8"))
    assert airflow == {name: secret[name] for name in USERS[:3]}


def test_the_next_start_keeps_them_and_closes_files_that_were_opened(tmp_path: Path):
    passwords(tmp_path)
    folder = tmp_path / "up" / "passwords"
    before = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    for path in (folder, *folder.iterdir()):
        path.chmod(0o777)
    passwords(tmp_path)
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == before
    assert all(path.stat().st_mode & 0o77 == 0 for path in (folder, *folder.iterdir()))


def test_one_command_makes_the_secrets_of_compose(tmp_path: Path):
    """With the system's Python alone, and every name that compose.yaml and its files of variables require."""
    command = ["python3", "-I", "docker/stack/passwords.py", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    file = tmp_path / "secrets.env"
    made = file.read_text(encoding="utf-8")
    subprocess.run(command, cwd=ROOT, check=True)
    assert file.read_text(encoding="utf-8") == made
    assert file.stat().st_mode & 0o77 == 0
    files = [ROOT / "docker" / "compose.yaml", *(ROOT / "docker").glob("*.env")]
    text = "".join(each.read_text(encoding="utf-8") for each in files)
    needed = {*re.findall(r"^[^#]*?\$\{(\w+):\?", text, flags=re.MULTILINE)}
    assert len(needed) == 16
    assert {line.partition("=")[0] for line in made.splitlines()} == needed


def test_mlflow_is_started_with_its_login():
    text = (ROOT / "docker" / "mlflow.sh").read_text(encoding="utf-8")
    assert text.count(" server --app-name basic-auth") == 1
    assert "MLFLOW_AUTH_CONFIG_PATH" in text
