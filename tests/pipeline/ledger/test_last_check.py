"""An operation hashes what it writes, unless anything in the database is other than the last operation left it."""

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from pipeline.ground.errors import LedgerTampered
from pipeline.ground.settings import Settings
from pipeline.ledger import clock, last_check
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.outside import Outside
from tests.helpers.launches.installed import at, registered
from tests.helpers.launches.spends import device, reserve

WRITTEN = 5  # entries of the fixture


@pytest.fixture
def opened(there: Settings) -> Callable[[], PrivacyLedger]:
    """Open a ledger of an installation, with two registrations, two reservations, a commit and a result."""
    ledger = registered(PrivacyLedger.create(there), "people", "others")
    reserve(ledger, "first", device(0.4))
    ledger.commit("first", "fine_tune", device(0.3))
    reserve(ledger, "second", device(0.2))
    ledger.bind_result("first", "fine_tune", "a" * 64)
    return lambda: PrivacyLedger.of(there)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Places of the entries that were hashed."""
    places, before = list[int](), Entry.expected_hash

    def counted(entry: Entry) -> str:
        places.append(entry.seq)
        return before(entry)

    monkeypatch.setattr(Entry, "expected_hash", counted)
    return places


def past_triggers(url: str, *statements: str) -> None:
    """Run statements as somebody with all rights, who leaves the triggers as they were."""
    engine = create_engine(url)
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        else:
            made = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")).all()
            for name, _ in made:
                connection.execute(text(f"DROP TRIGGER {name}"))
            statements += tuple(sql for _, sql in made)
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def test_an_operation_hashes_the_entry_that_it_writes_alone(opened: Callable, hashed: list[int]):
    ledger = opened()
    reserve(ledger, "third", device(0.1))
    ledger.commit("third", "fine_tune", device(0.1))
    opened().bind_result("third", "fine_tune", "b" * 64)
    opened().require_whole({"MLflow": ledger.checkpoint()})
    assert hashed == [WRITTEN + 1, WRITTEN + 2]
    assert ledger.verify() == []
    assert hashed[2:] == list(range(1, WRITTEN + 3)), "a verification hashes all"


ALTERATIONS = {
    "an amount": "UPDATE privacy_ledger SET rho = 0.001 WHERE seq = 4",
    "another population's": "UPDATE privacy_ledger SET binding = '{}' WHERE seq = 2",
    "a population": "UPDATE privacy_ledger SET population = 'others' WHERE seq = 4",
    "an end": "DELETE FROM privacy_ledger WHERE seq = 5",
    "the head": "UPDATE privacy_ledger_head SET entries = 4",
    "a result": f"UPDATE privacy_ledger_results SET digest = '{'f' * 64}'",
    "no result": "DELETE FROM privacy_ledger_results",
}


@pytest.mark.parametrize("statement", ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_old_row_that_was_altered_is_found_by_the_next_operation(opened: Callable, there: Settings, statement: str):
    opened().require_whole({})
    past_triggers(there.ledger_url, statement)
    with pytest.raises(LedgerTampered):
        reserve(opened(), "third", device(0.1))


def test_what_is_altered_beside_an_operation_is_found(
    opened: Callable, there: Settings, monkeypatch: pytest.MonkeyPatch
):
    """Between its commit and the state that it keeps."""
    extend = Outside.extend

    def slow(outside: Outside, *leaves: object) -> None:
        extend(outside, *leaves)
        past_triggers(there.ledger_url, ALTERATIONS["an amount"])

    monkeypatch.setattr(Outside, "extend", slow)
    reserve(opened(), "third", device(0.1))
    monkeypatch.undo()
    with pytest.raises(LedgerTampered, match="entry 4"):
        reserve(opened(), "fourth", device(0.1))


def test_bytes_that_were_altered_past_the_database_are_found(tmp_path: Path):
    """With the file's size, its time and its count of transactions as they were."""
    file = tmp_path / "ledger.db"
    here = at(tmp_path, f"sqlite:///{file}")
    ledger = registered(PrivacyLedger.create(here), "people")
    reserve(ledger, "first", device(0.4), stage="fine_tune")
    time.sleep(0.02)  # a tick of the file system's clock
    before, content = file.stat(), file.read_bytes()
    with file.open("r+b") as altered:
        altered.write(content.replace(b"zero-out", b"zero-OUT"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(LedgerTampered, match="was altered"):  # an open connection would go on with the pages it has
        reserve(PrivacyLedger.of(here), "second", device(0.1))


def test_another_day_checks_the_whole_ledger(opened: Callable, hashed: list[int], monkeypatch: pytest.MonkeyPatch):
    tomorrow = clock.now() + timedelta(days=1)
    monkeypatch.setattr(clock, "now", lambda: tomorrow)
    opened().require_whole({})
    assert hashed == list(range(1, WRITTEN + 1))
    opened().require_whole({})
    assert len(hashed) == WRITTEN


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff", b"[" * 9999])
def test_a_state_that_is_gone_or_damaged_counts_for_nothing(
    opened: Callable, hashed: list[int], tmp_path: Path, content: bytes | None
):
    kept = tmp_path / "runs" / last_check.FILE
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.unlink()
    if content is not None:
        kept.write_bytes(content)
    opened().require_whole({})
    assert hashed == list(range(1, WRITTEN + 1))


def test_a_write_ahead_log_has_no_state(tmp_path: Path, hashed: list[int]):
    """Its file changes long after a transaction."""
    file = tmp_path / "ledger.db"
    here = at(tmp_path, f"sqlite:///{file}")
    PrivacyLedger.create(here)
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA journal_mode = WAL")
    ledger = registered(PrivacyLedger.of(here), "people")
    hashed.clear()
    ledger.require_whole({})
    assert hashed == [1]
    assert not (here.runs_dir / last_check.FILE).exists()
