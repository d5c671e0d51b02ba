"""Versions of the ledger's tables: each opens and goes on, and what migrations make is what the code reads."""

import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from pipeline.ground.errors import LedgerTampered
from pipeline.ground.settings import Settings
from pipeline.ledger.database import ENTRIES, trigger_problems
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.migrations import versioning


@pytest.fixture
def ledger(there: Settings) -> PrivacyLedger:
    return PrivacyLedger.create(there)


def test_the_versions_are_those_of_the_scripts() -> None:
    scripts = ScriptDirectory(str(Path(versioning.__file__).parent))
    assert tuple(script.revision for script in reversed(list(scripts.walk_revisions()))) == versioning.REVISIONS


def test_migrations_make_the_tables_and_triggers_that_the_code_reads(ledger: PrivacyLedger, there: Settings) -> None:
    engine = create_engine(there.ledger_url)
    with engine.connect() as connection:
        known = ENTRIES.metadata
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "include_name": lambda name, kind, parents: kind != "table" or name in known.tables,
            },
        )
        assert compare_metadata(context, known) == []
        assert trigger_problems(connection) == []
        assert versioning.version(connection) == versioning.REVISIONS[-1]
    engine.dispose()


def test_a_ledger_that_lost_its_version_is_refused(ledger: PrivacyLedger, there: Settings) -> None:
    for table in (versioning.TABLE,):
        engine = create_engine(there.ledger_url)
        with engine.begin() as connection:
            kept = connection.execute(text(f"SELECT * FROM {table}")).mappings().one()
            connection.execute(text(f"DELETE FROM {table}"))
        with pytest.raises(LedgerTampered, match="version none"):
            PrivacyLedger.of(there)
        with engine.begin() as connection:
            columns, values = ", ".join(kept), ", ".join(f":{name}" for name in kept)
            connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({values})"), dict(kept))
        engine.dispose()
    PrivacyLedger.of(there)


def test_opening_a_ledger_that_is_up_to_date_needs_no_alembic(
    ledger: PrivacyLedger, there: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose import would be felt in every command."""
    for name in ("alembic", "alembic.command", "alembic.config"):
        monkeypatch.setitem(sys.modules, name, None)
    PrivacyLedger.of(there)
