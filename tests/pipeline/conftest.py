"""Ledgers on both databases, and settings that keep everything in a temporary folder."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url

from pipeline.ground import settings as settings_module
from pipeline.ground.settings import Settings
from pipeline.ledger import outside
from pipeline.ledger.log.witness import Witness
from tests.helpers.launches.installed import at, installed
from tests.helpers.launches.public_stages import Public
from tests.helpers.launches.tracking_database import prepared, put


@pytest.fixture(autouse=True)
def witness_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each answer takes a tenth of a second, of hundreds of launches; ``test_witness`` starts them."""
    monkeypatch.setattr(outside, "own_process", lambda folder, body: Witness(folder).add_checkpoint(body))


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with an empty ledger: to make one takes fifteen times as long as to copy it, for each of 800 tests."""
    home = tmp_path_factory.mktemp("empty")
    installed(home)
    return home


@pytest.fixture
def settings(tmp_path: Path, empty_home: Path) -> Settings:
    """An installation of its own, with an empty ledger."""
    shutil.copytree(empty_home, tmp_path, dirs_exist_ok=True)
    return settings_module.load({"TACIT_HOME": str(tmp_path)})


@pytest.fixture(scope="session")
def one_database(postgres_url: str) -> Iterator[Engine]:
    """Emptied for each test, in which one of its own would take a quarter of a second to make."""
    server, name = make_url(postgres_url), f"ledger_{uuid.uuid4().hex}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    engine = create_engine(server.set(database=name), isolation_level="AUTOCOMMIT")
    yield engine
    engine.dispose()


@pytest.fixture
def empty_database(one_database: Engine) -> str:
    """URL of a PostgreSQL database without tables."""
    with one_database.connect() as connection:
        # A test before that left a transaction open would be waited for.
        for statement in ("SET lock_timeout = '20s'", "DROP SCHEMA public CASCADE", "CREATE SCHEMA public"):
            connection.execute(text(statement))
    return one_database.url.render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services)])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return request.getfixturevalue("empty_database")


@pytest.fixture
def there(ledger_url: str, tmp_path: Path) -> Settings:
    """An installation whose ledger is to be made in an empty database of each kind."""
    return at(tmp_path, ledger_url)


@pytest.fixture(scope="session")
def tracking_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with its tables and nothing in them."""
    return prepared(tmp_path_factory)


@pytest.fixture
def tracked(settings: Settings, tracking_database: Path) -> Settings:
    """Settings whose tracking database has its tables already: making them takes seconds."""
    put(tracking_database, settings.home)
    return settings


@pytest.fixture
def public(tmp_path: Path) -> Public:
    """Public stages in small, on a text of their own."""
    given = tmp_path / "given.txt"
    given.write_text("public words", encoding="utf-8")
    return Public(given)
