"""MLflow's SQLite file: made whole or not at all."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pipeline.ground.errors import PermanentError
from pretrain.files import atomic


def ensure(path: Path, make: Callable[[Path], object]) -> None:
    """Have ``make`` fill the database if there is none.

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
