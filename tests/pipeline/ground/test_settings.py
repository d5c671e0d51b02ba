"""Addresses come from the environment; the defaults stay inside the project."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from pipeline.ground import settings


def test_defaults_are_absolute_and_under_runs(tmp_path: Path):
    here = settings.load({"TACIT_HOME": str(tmp_path)})
    runs = tmp_path / "runs"
    assert (here.home, here.runs_dir) == (tmp_path, runs)
    assert here.ledger_url == f"sqlite:///{runs}/ledger.db"
    assert here.tracking_uri == f"sqlite:///{runs}/mlflow.db"
    assert here.artifact_root == f"file://{runs}/mlflow-artifacts"
    assert here.web_dir == tmp_path / ".venv" / "web"
    assert not runs.exists(), "reading settings makes nothing"


def test_the_working_directory_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The same command from another folder once made an empty ledger there, and passed a budget that was used up."""
    before = settings.load({})
    home = tmp_path / "home"
    home.mkdir()
    given = {"TACIT_HOME": str(home), "TACIT_RUNS_DIR": "elsewhere"}
    there = settings.load(given)
    monkeypatch.chdir(tmp_path)
    assert settings.load({}) == before
    assert before.home == Path(settings.__file__).resolve().parents[2]
    assert settings.load(given) == there
    assert there.runs_dir == home / "elsewhere"


def test_environment_wins(tmp_path: Path):
    given = {
        "TACIT_HOME": str(tmp_path),
        "TACIT_RUNS_DIR": str(tmp_path / "elsewhere"),
        "TACIT_LEDGER_URL": "postgresql+psycopg2://h/d",
        "MLFLOW_TRACKING_URI": "http://mlflow:5000",
        "TACIT_WEB": str(tmp_path / "web"),
        "TACIT_GIT_COMMIT": "abc",
    }
    here = settings.load(given)
    assert here.runs_dir == tmp_path / "elsewhere"
    assert here.ledger_url == "postgresql+psycopg2://h/d"
    assert (here.tracking_uri, here.artifact_root) == ("http://mlflow:5000", None)
    assert (here.web_dir, here.git_commit) == (tmp_path / "web", "abc")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"TACIT_HOME": "/nowhere/at/all"}, "TACIT_HOME"),
        ({"TACIT_HOME": "."}, "TACIT_HOME: '.' depends on the working directory"),
        ({"TACIT_REVIEW_KEY": "review.pem"}, "TACIT_REVIEW_KEY: 'review.pem' depends on the working directory"),
        ({"MLFLOW_TRACKING_URI": "./mlruns"}, "MLFLOW_TRACKING_URI"),
        ({"MLFLOW_TRACKING_URI": "file:///tmp/mlruns"}, "MLFLOW_TRACKING_URI"),
    ],
)
def test_wrong_values_name_the_variable(given: dict, field: str):
    with pytest.raises(ValueError, match=field):
        settings.load(given)


@pytest.mark.parametrize("name", ["MLFLOW_TRACKING_URI", "TACIT_LEDGER_URL"])
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("postgresql://", "names no database"),
        ("postgresql://h", "names no database"),
        ("postgresql://h/", "names no database"),
        ("postgresql+psycopg2://", "names no database"),
        ("postgresql+asyncpg://u:hunter2@h/d", "begins with 'postgresql.asyncpg'"),
        ("postgres://u:hunter2@h/d", "begins with 'postgres'"),
        ("mysql://u:hunter2@h/d", "begins with 'mysql'"),
        ("mssql://h/d", "begins with 'mssql'"),
        ("postgresql://u:hunter2@h:99999/d", "not an address"),
        ("postgresql://u:hunter2@h:port/d", "not an address"),
        ("postgresql://u:hunter2@[h/d", "not an address"),
        ("postgresql://u:hunter2@h/d b", "a space"),
        ("postgresql://u:hunter2@h/d\n", "a space"),
        ("sqlite://", "no absolute path"),
        ("sqlite:///:memory:", "no absolute path"),
        ("sqlite:///relative.db", "no absolute path"),
        ("sqlite:////", "no absolute path"),
        ("sqlite://host/a.db", "no absolute path"),
        ("sqlite:////a.db?mode=ro", "no absolute path"),
        ("sqlite:////folder/", "no absolute path"),
        ("a.db", "not an address"),
        ("://", "not an address"),
    ],
)
def test_an_address_of_a_database_is_checked_when_it_is_read(name: str, address: str, why: str, tmp_path: Path):
    with pytest.raises(ValueError, match=f"^{name}: .*{why}") as refused:
        settings.load({"TACIT_HOME": str(tmp_path), name: address})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", ["MLFLOW_TRACKING_URI", "TACIT_LEDGER_URL"])
@pytest.mark.parametrize(
    "address", ["postgresql://u:p@h:5432/d", "postgresql+psycopg2:///d?host=/run/postgresql", "sqlite:////a/b c.db"]
)
def test_an_address_of_a_database_that_is_one_is_taken(name: str, address: str, tmp_path: Path):
    here = settings.load({"TACIT_HOME": str(tmp_path), name: address})
    expected = address.replace("postgresql:", "postgresql+psycopg2:")
    assert expected in (here.tracking_uri, here.ledger_url), "the driver that is installed"


def test_provenance(tmp_path: Path):
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "stages.lock").write_text("numpy==1\n")
    assert settings.load({"TACIT_HOME": str(tmp_path)}).git_commit is None

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "all", "--no-verify")
    here = settings.load({"TACIT_HOME": str(tmp_path)})
    assert here.git_commit == git("rev-parse", "HEAD")
    assert here.lock_digests == {"stages.lock": hashlib.sha256(b"numpy==1\n").hexdigest()}
    (tmp_path / "requirements" / "stages.lock").write_text("numpy==2\n")
    for stated in ({}, {"TACIT_GIT_COMMIT": git("rev-parse", "HEAD")}):
        here = settings.load({"TACIT_HOME": str(tmp_path), **stated})
        assert here.git_commit == git("rev-parse", "HEAD") + "-dirty", "a variable hides no change"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, settings.Telemetry()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, settings.Telemetry("otlp", "otlp")),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://p:9090/x"}, settings.Telemetry("none", "otlp")),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"},
            settings.Telemetry(metrics="otlp"),
        ),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none"}, settings.Telemetry("console")),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, settings.Telemetry()),
    ],
)
def test_telemetry_is_off_unless_the_standard_s_variables_say_otherwise(given: dict, expected: settings.Telemetry):
    assert settings.telemetry(given) == expected


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, "OTEL_METRICS_EXPORTER"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
    ],
)
def test_telemetry_that_cannot_be_is_named(given: dict, field: str):
    with pytest.raises(ValueError, match=field):
        settings.telemetry(given)


def test_forms_of_log_lines():
    assert [settings.log_form(each) for each in ({}, {"TACIT_LOG": "json"})] == ["text", "json"]
    with pytest.raises(ValueError, match="TACIT_LOG"):
        settings.log_form({"TACIT_LOG": "xml"})


def test_who_can_approve_and_the_account_that_asks_who_did(tmp_path: Path):
    users = {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin, ana:op,tacit-reader:viewer"}
    reader = {"TACIT_AIRFLOW_URL": "http://host:8080/", "TACIT_AIRFLOW_USER": "r", "TACIT_AIRFLOW_PASSWORD": "secret"}
    loaded = settings.load({"TACIT_HOME": str(tmp_path), **users, **reader})
    assert loaded.airflow_users == ("admin", "ana"), "a viewer cannot answer"
    assert loaded.airflow == settings.AirflowReader("http://host:8080", "r", "secret")
    assert "secret" not in repr(loaded)
    assert settings.load({"TACIT_HOME": str(tmp_path)}).airflow is None
    manager = "airflow.providers.keycloak.auth_manager.keycloak_auth_manager.KeycloakAuthManager"
    loaded = settings.load({"TACIT_HOME": str(tmp_path), "AIRFLOW__CORE__AUTH_MANAGER": manager, **users})
    assert (loaded.airflow_users, loaded.users_are_uuids) == (None, True)
    for name in reader:
        with pytest.raises(ValueError, match=f"^{name}: not set, but others"):
            settings.load({"TACIT_HOME": str(tmp_path), **{each: reader[each] for each in reader if each != name}})
    for address in ("host:8080", "ftp://host", "http://", "http://user:password@host", "http://host/?a"):
        with pytest.raises(ValueError, match="TACIT_AIRFLOW_URL: ") as refused:
            settings.load({"TACIT_HOME": str(tmp_path), **reader, "TACIT_AIRFLOW_URL": address})
        assert "password" not in str(refused.value)
