"""A SQLite ledger of which one value, column or table was damaged: noticed, and never a traceback.

SQLite takes any kind of value in a column of any kind, so only there can damage be of other kinds than a table's.
"""

import shutil
import sqlite3
from pathlib import Path

import pytest

from pipeline.ground.errors import LedgerMissing, LedgerTampered
from pipeline.ledger.database import ENTRIES, SECRETS
from pipeline.ledger.ledger import PrivacyLedger
from tests.helpers.launches.installed import at, registered
from tests.helpers.launches.spends import device, reserve

VALUES = ("x'ff00'", "NULL", "'text'", "-1", "1e308", "9999999999")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ledger with a commit, a result and no triggers."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    ledger = registered(PrivacyLedger.create(at(path.parent, f"sqlite:///{path}")), "people")
    reserve(ledger, "first", device(0.4))
    ledger.commit("first", "fine_tune", device(0.3))
    ledger.bind_result("first", "fine_tune", "digest")
    ledger.bind_devices("people", ["one", "two"])
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
@pytest.mark.parametrize("table", [ENTRIES, SECRETS], ids=lambda table: table.name)
def test_damage_is_noticed(whole: Path, tmp_path: Path, table):
    taken = 0
    for column in table.columns:
        for value in VALUES:
            took, noticed = ended(whole, tmp_path, f"UPDATE {table.name} SET {column.name} = {value}")
            taken += took
            assert noticed or not took, (column.name, value)
        _, noticed = ended(whole, tmp_path, f"ALTER TABLE {table.name} RENAME COLUMN {column.name} TO gone")
        assert noticed, column.name
    assert taken > 2
    assert ended(whole, tmp_path, f"DROP TABLE {table.name}") == (True, True)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO privacy_ledger_secrets SELECT kind, 'others', content FROM privacy_ledger_secrets",
        "INSERT INTO privacy_ledger_version VALUES ('other')",
        "DELETE FROM privacy_ledger_version",
        "DELETE FROM privacy_ledger_secrets",
    ],
)
def test_what_is_there_once_stands_once(whole: Path, tmp_path: Path, statement: str):
    assert ended(whole, tmp_path, statement) == (True, True)
