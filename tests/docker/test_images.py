"""Both images built, compose up from them, and a launch from the API to its publication, in an engine of its own."""

import json
from collections.abc import Iterator

import pytest

from tests.helpers.processes.engine import OWN, SERVICES, TINY, Composed, Engine, base_images, composed, reached, tiny
from tests.helpers.processes.server import until

# Installing into both images takes as long as the machine's other work lets it.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def services(container_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    base_images(container_engine)
    with composed(container_engine, tmp_path_factory.mktemp("launches")) as made:
        tiny(made, "tiny")
        made.compose("build")
        made.tacit("ledger", "init")
        made.tacit("ledger", "register", *TINY)
        made.compose("up", "--detach", "--wait")
        yield made


@pytest.mark.parametrize("image", ["tacit-airflow", "tacit-stages"])
def test_an_image_holds_what_its_packages_need_and_runs_as_nobody_special(services: Composed, image: str) -> None:
    environments = "for python in /opt/*-env/bin/python; do $python -m pip check || exit; done; "
    environments += "/opt/airflow-env/bin/python -c 'import kubernetes' && id -u"
    run = ["run", "--rm", "--network", "none", "--read-only", "--entrypoint", "sh", image, "-c", environments]
    told = services.engine.docker(*run).splitlines()
    assert told == ["No broken requirements found."] * (1 if image == "tacit-airflow" else 2) + ["50000"]


def test_every_service_gets_healthy_and_none_was_started_twice(services: Composed) -> None:
    assert services.well(*SERVICES)
    assert not [name for name in SERVICES if services.restarted(name)]


def test_databases_are_in_utf_8_whatever_the_cluster_s_locale(services: Composed) -> None:
    query = "select datname, pg_encoding_to_char(encoding) from pg_database"
    words = [
        "exec",
        "--no-TTY",
        "postgres",
        "psql",
        "--username=postgres",
        "--tuples-only",
        "--csv",
        f"--command={query}",
    ]
    encodings = dict(line.split(",") for line in services.compose(*words).splitlines())
    assert encodings["template1"] == "SQL_ASCII"
    assert {encodings[name] for name in ("airflow", "mlflow", "mlflow_login", "ledger")} == {"UTF8"}


def test_a_worker_reaches_its_services_alone(services: Composed) -> None:
    seen = reached(services)
    assert all(name in seen for name in OWN)


def test_a_launch_goes_from_the_api_to_a_champion_in_mlflow(services: Composed) -> None:
    run = services.trigger("tiny")
    until(lambda: services.ended("tiny", run), 1200)
    states = services.states("tiny", run)
    assert set(states.values()) == {"success"}, states
    entries = json.loads(services.tacit("ledger", "show", "--json"))["entries"]
    assert sorted(entry["stage"] for entry in entries if entry["kind"] == "commit") == ["discover", "fine_tune"]
    champion = services.mlflow("registered-models/alias", name="keyboard-en-US-NWP", alias="champion")["model_version"]
    assert any(tag["key"] == "tacit.launch" and tag["value"].startswith("tiny-") for tag in champion["tags"])
