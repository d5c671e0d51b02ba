"""The variables that `tacit` gets from a worker: by a list, whatever the worker was told."""

import copy

import pytest

from .conftest import StandIn, operator
from .test_approval import answered

pytestmark = pytest.mark.timeout(300)

SECRETS = (
    "AIRFLOW__API_AUTH__JWT_SECRET",
    "AIRFLOW__API__SECRET_KEY",
    "AIRFLOW__CORE__FERNET_KEY",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
    "AIRFLOW__CELERY__BROKER_URL",
    "AIRFLOW__CELERY__RESULT_BACKEND",
    "AIRFLOW_CONN_SMTP_DEFAULT",
    "AIRFLOW_HOME",
    "KUBERNETES_SERVICE_HOST",
    "AWS_SECRET_ACCESS_KEY",
    "POSTGRES_PASSWORD",
    "READER_PASSWORD",
    "ADMIN_PASSWORD",
    "REVIEWER_PASSWORD",
)
READER = ("TACIT_AIRFLOW_URL", "TACIT_AIRFLOW_USER", "TACIT_AIRFLOW_PASSWORD")
NEEDED = (
    "TACIT_HOME",
    "TACIT_LEDGER_URL",
    "TACIT_RUNS_DIR",
    "MLFLOW_TRACKING_PASSWORD",
    "PATH",
    "OMP_NUM_THREADS",
)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was told everything."""
    for name in (*SECRETS, *READER, *NEEDED):
        if name not in ("PATH", "TACIT_HOME", "AIRFLOW_HOME", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"):
            monkeypatch.setenv(name, "x")


def test_a_stage_is_told_no_secret_of_airflow_and_a_review_who_may_read(
    dagbag, stand_in: StandIn, worker: None, monkeypatch: pytest.MonkeyPatch
):
    assert operator(dagbag).run_command(["stage", "plan"])[0] == 0
    stand_in.tries()
    assert copy.copy(dagbag.dags["experiment-scheduled"].get_task("logs")).poke({"params": {"launch": "a"}})
    answered(dagbag, monkeypatch, "Approve", {"id": "privacy-reviewer", "name": "Privacy Reviewer"})
    *others, review = stand_in.variables()
    assert len(others) == 2
    for told in (*others, review):
        assert not told & set(SECRETS)
        assert told >= set(NEEDED)
    assert all(not told & set(READER) for told in others)
    assert review >= set(READER)
