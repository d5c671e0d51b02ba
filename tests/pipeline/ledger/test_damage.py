"""A SQLite ledger of which one value, column or table was damaged: noticed, and never a traceback.

SQLite takes any kind of value in a column of any kind, so only there can damage be of other kinds than a table's.
"""

import shutil
import sqlite3
from pathlib import Path

import pytest

from pipeline.ground.errors import LedgerMissing, LedgerTampered
from pipeline.ledger import schema
from pipeline.ledger.ledger import PrivacyLedger
from tests.helpers.launches.installed import at, registered
from tests.helpers.launches.spends import device, reserve

VALUES = ("x'ff00'", "NULL", "'text'", "-1", "1e308", "9999999999")
# What a chain of hashes covers.
CHAINED = (schema.ENTRIES, schema.HEAD, schema.RESULTS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ledger with a commit, a result and no triggers."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    ledger = registered(PrivacyLedger.create(at(path.parent, f"sqlite:///{path}")), "people")
    reserve(ledger, "first", device(0.4))
    ledger.commit("first", "fine_tune", device(0.3))
    ledger.bind_result("first", "fine_tune", "digest")
    with sqlite3.connect(path) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
    return path


def ended(whole: Path, folder: Path, statement: str) -> tuple[bool, bool]:
    """Run a statement: True if the database took it, and True if the ledger notices more than the missing triggers."""
    path = folder / "damaged.db"
    shutil.copy(whole, path)
    database = sqlite3.connect(path)
    try:
        with database:
            database.execute(statement)
    except sqlite3.Error:
        return False, False
    finally:
        database.close()
    try:
        ledger = PrivacyLedger.of(at(whole.parent, f"sqlite:///{path}"))
        problems = [each for each in ledger.verify() if "trigger" not in each]
        ledger.entries(), ledger.all_bound_results()
    except (LedgerTampered, LedgerMissing):
        return True, True
    with pytest.raises(LedgerTampered):
        reserve(ledger, "second", device(0.1))
    return True, bool(problems)


@pytest.mark.slow
@pytest.mark.parametrize("table", [*CHAINED, schema.META, schema.POPULATIONS], ids=lambda table: table.name)
def test_damage_is_noticed(whole: Path, tmp_path: Path, table):
    taken = 0
    for column in (each for each in table.columns if each.name != "id"):
        for value in VALUES:
            took, noticed = ended(whole, tmp_path, f"UPDATE {table.name} SET {column.name} = {value}")
            taken += took
            assert noticed or not took or table not in CHAINED, (column.name, value)
        _, noticed = ended(whole, tmp_path, f"ALTER TABLE {table.name} RENAME COLUMN {column.name} TO gone")
        assert noticed or table not in CHAINED, column.name
    assert taken > 2
    # Without its table, the triggers of populations are gone, which is a problem of its own.
    assert ended(whole, tmp_path, f"DROP TABLE {table.name}") == (True, table is not schema.POPULATIONS)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO privacy_ledger_head SELECT 2, entries, hash FROM privacy_ledger_head",
        "INSERT INTO privacy_ledger_version VALUES ('other')",
        "DELETE FROM privacy_ledger_version",
        "DELETE FROM privacy_ledger_head",
    ],
)
def test_what_is_there_once_stands_once(whole: Path, tmp_path: Path, statement: str):
    assert ended(whole, tmp_path, statement) == (True, True)
