"""MLflow's client, imported at its first use; only this module and ``mlflow_tracker`` import MLflow."""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pipeline.ground.errors import PermanentError, ServiceUnavailable, lasts
from pipeline.ground.settings import Settings, quiet_mlflow
from pretrain.files import atomic
from pretrain.reading.paths import shown

if TYPE_CHECKING:
    from mlflow import MlflowClient

_SQLITE = "sqlite:///"


def connect(settings: Settings) -> "MlflowClient":
    """Connect to the tracking store and registry, and create them at their first use.

    MLflow is imported here and not above: it takes seconds, and commands whose work is already
    done never need it.

    Raises:
      ServiceUnavailable: the server or database does not answer.
      PermanentError: the database was made by an older MLflow.
    """
    quiet_mlflow()
    from mlflow import MlflowClient

    # A client creates the database's tables, and of several processes that do so at once all but one would fail.
    with answering(), one_process(settings):
        if settings.tracking_uri.startswith(_SQLITE):
            path = Path(settings.tracking_uri.removeprefix(_SQLITE))
            ensure_database(path, lambda made: MlflowClient(f"{_SQLITE}{made}").search_experiments(max_results=1))
        client = MlflowClient(tracking_uri=settings.tracking_uri, registry_uri=settings.tracking_uri)
        client.search_experiments(max_results=1)
        return client


@contextmanager
def answering() -> Iterator[None]:
    """Convert MLflow's errors for an unavailable store, and its database's own, to an error that states its fix."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:  # while it makes its tables
        kind = PermanentError if lasts(error.orig) else ServiceUnavailable
        raise kind(f"MLflow's database (MLFLOW_TRACKING_URI) cannot be made or written: {error.orig}") from error
    except MlflowException as error:
        if "mlflow db upgrade" in str(error):
            raise PermanentError(
                "MLflow's database was made by another version; back it up and run 'mlflow db upgrade' with its URL"
            ) from error
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise PermanentError(f"MLflow refused the request: {error.message}") from error
        if error.error_code in ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"):
            raise ServiceUnavailable(f"MLflow does not answer: {error.message}") from error
        raise


def load(uri: str = "") -> Any:
    """Import MLflow, which takes seconds, and set its tracking store."""
    quiet_mlflow()
    import mlflow

    if uri:
        mlflow.set_tracking_uri(uri)
        mlflow.set_registry_uri(uri)
    return mlflow


def require_own(address: str, settings: Settings) -> str:
    """Return an address of artifacts, if it is within this installation's own store.

    Guarantee: nobody who may write to MLflow has this account copy a file from elsewhere, or ask another server.

    Raises:
      PermanentError: it is not.
    """
    root, parts = settings.artifact_root, urlsplit(address)
    if ".." in unquote(address).split("/"):
        own = False
    elif root is None:  # A server's store, which clients reach through it or in a bucket.
        own = parts.scheme not in ("", "file", "http", "https", "ftp", "sftp", "models", "runs")
    elif root.startswith("file:") and parts.scheme == "file" and not parts.netloc + parts.query + parts.fragment:
        own = Path(unquote(parts.path)).resolve().is_relative_to(Path(unquote(urlsplit(root).path)).resolve())
    else:
        own = parts.scheme != "file" and address.startswith(f"{root.rstrip('/')}/")
    if not own:
        raise PermanentError(
            f"MLflow names {shown(address)} as a place of artifacts, and this installation's are in "
            f"{root or 'the store of its server'} (TACIT_ARTIFACT_ROOT): restore MLflow's database"
        )
    return address


def stand_once(path: Path, address: str) -> None:
    """Make MLflow's copy of a file a second name of it, if it is a file here; a copy stays where the system refuses.

    Files of a launch are only ever replaced whole, so an earlier record's file in MLflow keeps its content.
    """
    parts = urlsplit(address)
    if parts.scheme == "file":
        with suppress(OSError), atomic(Path(unquote(parts.path))) as temporary:
            temporary.unlink()
            os.link(path.resolve(), temporary)


@contextmanager
def one_process(settings: Settings) -> Iterator[None]:
    settings.runs_dir.mkdir(parents=True, exist_ok=True)
    with (settings.runs_dir / ".mlflow.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ensure_database(path: Path, make: Callable[[Path], object]) -> None:
    """Create MLflow's SQLite file with ``make``, atomically, if there is none.

    For one process at a time. A kill leaves a temporary file, never some of the tables.

    Raises:
      PermanentError: the file is not a database, or has no version.
    """
    if path.exists():
        _require_version(path)
        return
    for left in path.parent.glob(f".{path.name}.*.tmp*"):
        left.unlink()  # of a process that was killed, as no other one is here
    with atomic(path) as temporary:
        make(temporary)


def _require_version(path: Path) -> None:
    """Check that MLflow's tables are complete, as their version is written last."""
    try:
        with closing(sqlite3.connect(path)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            stated = "alembic_version" in tables and database.execute("SELECT * FROM alembic_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise PermanentError(f"{path}: not MLflow's database; restore it from a backup: {error}") from error
    if not stated:
        raise PermanentError(
            f"{path}: MLflow's database has no version, as one whose making was cut off; restore it from a backup or, "
            "if it was new, delete it: the next command makes it again"
        )
