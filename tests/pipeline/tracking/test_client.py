"""The first use of a tracking database: by several processes at once, and after a kill in the middle of it."""

import errno
import multiprocessing
import os
import resource
import signal
import sqlite3
from pathlib import Path

import pytest

from pipeline.ground import settings as settings_module
from pipeline.ground.errors import PermanentError, ServiceUnavailable
from pipeline.tracking import client, mlflow_tracker

# MLflow's own code uses what SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")


def fill(path: Path) -> None:
    """Tables as MLflow makes them: some, then the version."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE runs (name TEXT)")
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES ('1')")


def cut_off(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE runs (name TEXT)")


def test_a_database_is_made_once(tmp_path: Path):
    path, made = tmp_path / "mlflow.db", []
    for _ in range(2):
        client.ensure_database(path, lambda temporary: (made.append(temporary), fill(temporary)))
    assert len(made) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_while_it_is_made_leaves_nothing(tmp_path: Path):
    def fails(temporary: Path) -> None:
        cut_off(temporary)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        client.ensure_database(tmp_path / "mlflow.db", fails)
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_left_of_it_goes(tmp_path: Path):
    for name in (".mlflow.db.123.tmp", ".mlflow.db.123.tmp-journal"):
        (tmp_path / name).touch()
    client.ensure_database(tmp_path / "mlflow.db", fill)
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


def test_what_is_not_whole_is_never_overwritten(tmp_path: Path):
    path = tmp_path / "mlflow.db"
    cut_off(path)
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO runs VALUES ('a launch')")
    with pytest.raises(PermanentError, match="restore it"):
        client.ensure_database(path, fill)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(PermanentError, match="not MLflow's database"):
        client.ensure_database(path, fill)


@pytest.mark.slow
def test_a_disk_that_is_full_while_tables_are_made_is_temporary_and_leaves_nothing(tmp_path: Path):
    """At every table: MLflow makes forty, one after another."""
    here = settings_module.load({"TACIT_HOME": str(tmp_path)})
    mlflow_tracker.load()

    def full(most_bytes: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        try:
            mlflow_tracker.connect(here)
        except ServiceUnavailable as error:
            os._exit(0 if "MLFLOW_TRACKING_URI" in str(error) and len(str(error).splitlines()) == 1 else 1)
        os._exit(2)

    context = multiprocessing.get_context("fork")
    for most_bytes in (4096, 40_960, 200_000, 400_000):
        process = context.Process(target=full, args=(most_bytes,))
        process.start()
        process.join(240)
        assert (process.exitcode, [path.name for path in here.runs_dir.iterdir()]) == (0, [".mlflow.lock"])
    assert mlflow_tracker.connect(here).search_experiments()


def _connect(home: str, results: multiprocessing.Queue) -> None:
    import warnings

    warnings.simplefilter("ignore")
    results.put(len(mlflow_tracker.connect(settings_module.load({"TACIT_HOME": home})).search_experiments()))


@pytest.mark.slow
def test_three_processes_that_start_together_on_an_empty_folder(tmp_path: Path):
    # Forks of one that has imported MLflow, so that they really start together.
    settings_module.quiet_mlflow()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow"])
    results = context.Queue()
    processes = [context.Process(target=_connect, args=(str(tmp_path), results)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(240)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert {results.get(timeout=300) for _ in processes} == {1}
    assert [path.name for path in (tmp_path / "runs").glob("*.db*")] == ["mlflow.db"]


def _die(path: str) -> None:
    """End, as a power cut would, once the first tables are there."""
    client.ensure_database(Path(path), lambda temporary: (cut_off(temporary), os._exit(9)))


@pytest.mark.slow
def test_a_kill_in_the_first_seconds_is_repaired(tmp_path: Path):
    path = tmp_path / "runs" / "mlflow.db"
    process = multiprocessing.get_context("fork").Process(target=_die, args=(str(path),))
    process.start()
    process.join(240)
    assert process.exitcode == 9
    assert not path.exists()
    client = mlflow_tracker.connect(settings_module.load({"TACIT_HOME": str(tmp_path)}))
    assert len(client.search_experiments()) == 1


@pytest.mark.parametrize("refuses", [False, True])
def test_a_file_stands_once_where_the_system_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool):
    own, logged = tmp_path / "own.txt", tmp_path / "a b" / "logged.txt"
    logged.parent.mkdir()
    for path in (own, logged):
        path.write_text("content", encoding="utf-8")

    def refused(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    if refuses:
        monkeypatch.setattr(os, "link", refused)
    client.stand_once(own, f"mlflow-artifacts:{logged}")
    assert not logged.samefile(own), "it is on a server"
    for _ in range(2):
        client.stand_once(own, logged.as_uri())
        assert logged.samefile(own) == (not refuses)
        assert logged.read_text(encoding="utf-8") == "content"
        assert [*logged.parent.iterdir()] == [logged]
