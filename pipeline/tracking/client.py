"""A client of MLflow, imported at its first use; with ``mlflow_tracker`` the only code that imports it."""

import fcntl
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.ground.errors import PermanentError, ServiceUnavailable
from pipeline.ground.settings import Settings, quiet_mlflow
from pretrain.files import atomic

if TYPE_CHECKING:
    from mlflow import MlflowClient

_SQLITE = "sqlite:///"


def connect(settings: Settings) -> "MlflowClient":
    """A client of the tracking store and registry, made if this is their first use.

    MLflow is imported here and not above: it takes seconds, and commands that find their work
    done never need it.

    Raises:
      ServiceUnavailable: the server or database does not answer.
      PermanentError: the database was made by an older MLflow.
    """
    quiet_mlflow()
    from mlflow import MlflowClient

    # Of several processes that meet a database without tables, all but one would fail: making a client makes them.
    with answering(), one_process(settings):
        if settings.tracking_uri.startswith(_SQLITE):
            path = Path(settings.tracking_uri.removeprefix(_SQLITE))
            ensure_database(path, lambda made: MlflowClient(f"{_SQLITE}{made}").search_experiments(max_results=1))
        client = MlflowClient(tracking_uri=settings.tracking_uri, registry_uri=settings.tracking_uri)
        client.search_experiments(max_results=1)
        return client


@contextmanager
def answering() -> Iterator[None]:
    """Turn what MLflow raises when its store does not answer into a ``ServiceUnavailable``."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if "mlflow db upgrade" in str(error):
            raise PermanentError(
                "MLflow's database was made by another version; back it up and run 'mlflow db upgrade' with its URL"
            ) from error
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise PermanentError(f"MLflow does not hold what was asked for: {error.message}") from error
        if error.error_code in ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"):
            raise ServiceUnavailable(f"MLflow does not answer: {error.message}") from error
        raise


def load(uri: str = "") -> Any:
    """MLflow, imported at its first use as that takes seconds, and told of a tracking store."""
    quiet_mlflow()
    import mlflow

    if uri:
        mlflow.set_tracking_uri(uri)
        mlflow.set_registry_uri(uri)
    return mlflow


@contextmanager
def one_process(settings: Settings) -> Iterator[None]:
    settings.runs_dir.mkdir(parents=True, exist_ok=True)
    with (settings.runs_dir / ".mlflow.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ensure_database(path: Path, make: Callable[[Path], object]) -> None:
    """Have ``make`` fill MLflow's SQLite file, whole or not at all, if there is none.

    For one process at a time. A kill leaves a temporary file, never a part of the tables.

    Raises:
      PermanentError: a file that is no database, or one that lacks its version.
    """
    if path.exists():
        _require_version(path)
        return
    with atomic(path) as temporary:
        make(temporary)


def _require_version(path: Path) -> None:
    """See that MLflow's tables were made to the end, which is when their version is written."""
    try:
        with closing(sqlite3.connect(path)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            stated = "alembic_version" in tables and database.execute("SELECT * FROM alembic_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise PermanentError(f"{path}: not MLflow's database; restore it from a backup: {error}") from error
    if not stated:
        raise PermanentError(f"{path}: MLflow's database has no version; restore it from a backup")
