"""MLflow's SQLite file: made whole or not at all."""

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pipeline.errors import PermanentError
from pretrain.files import atomic

_log = logging.getLogger(__name__)


def ensure(path: Path, make: Callable[[Path], object]) -> None:
    """Have ``make`` fill the database if there is none; one that was cut off while it was made is set aside.

    For one process at a time. A kill leaves a temporary file, never a part of the tables.

    Raises:
      PermanentError: a file that is no database, or one with runs that lacks its version.
    """
    if path.exists() and _has_version(path):
        return
    if path.exists():
        aside = path.with_name(f"{path.name}.cut-off")
        path.replace(aside)
        _log.warning("%s was cut off while it was made, before any run; it is set aside as %s", path, aside.name)
    with atomic(path) as temporary:
        make(temporary)


def _has_version(path: Path) -> bool:
    """Whether MLflow's tables were made to the end, which is when their version is written."""
    try:
        with closing(sqlite3.connect(path)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "alembic_version" in tables and database.execute("SELECT * FROM alembic_version").fetchone():
                return True
            if "runs" in tables and database.execute("SELECT 1 FROM runs").fetchone():
                raise PermanentError(f"{path}: MLflow's database has runs but no version; restore it from a backup")
            return False
    except sqlite3.DatabaseError as error:
        raise PermanentError(f"{path}: not MLflow's database; restore it from a backup: {error}") from error
