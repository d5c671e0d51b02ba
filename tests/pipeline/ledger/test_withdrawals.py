"""Withdrawals stand beside the population's secret: for good, as hashes, and nobody can take a name off."""

import pytest
from sqlalchemy import create_engine, text

from pipeline.ground.errors import LedgerMissing, LedgerTampered, PopulationUnknown
from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from tests.helpers.launches.spends import budget


@pytest.fixture
def ledger(there: Settings) -> PrivacyLedger:
    made = PrivacyLedger.create(there)
    for name in ("people", "others"):
        made.register(name, budget(max_rho=1.0), "owner")
    return made


def test_a_list_only_grows_and_the_same_again_is_free(ledger: PrivacyLedger, there: Settings):
    assert PrivacyLedger(there.ledger_url).withdrawn("people").hashes == frozenset()
    ledger.withdraw("people", ["b", "a"])
    ledger.withdraw("people", ["a"])
    ledger.withdraw("people", ["c", "a"])
    left_out = PrivacyLedger(there.ledger_url).withdrawn("people")
    assert [left_out.has(device) for device in ("a", "b", "c", "d")] == [True, True, True, False]
    assert not PrivacyLedger(there.ledger_url).withdrawn("others").has("a"), "an id is one of its population"
    assert [entry.kind for entry in ledger.entries("people")] == ["register", "withdrawal", "withdrawal"]
    assert ledger.verify() == []


def test_the_ledger_holds_no_id_and_its_entries_do_not_count(ledger: PrivacyLedger, there: Settings):
    ledger.withdraw("people", ["device-of-anna"])
    ledger.withdraw("others", [f"device-{number}" for number in range(1000)])
    one, many = (entry for entry in ledger.entries() if entry.kind == "withdrawal")
    assert len(one.binding) == len(many.binding)
    assert not set(PrivacyLedger(there.ledger_url).withdrawn("people").hashes) & set(
        str(ledger.entries()).replace("'", '"').split('"')
    )
    with create_engine(there.ledger_url).connect() as connection:
        rows = str(connection.execute(text("SELECT * FROM privacy_ledger_secrets")).all())
    assert "anna" not in rows
    assert b"anna".hex() not in rows


@pytest.mark.parametrize("content", [b"", b"0" * 16, b"0" * 15])
def test_a_list_that_was_edited_is_refused(ledger: PrivacyLedger, there: Settings, content: bytes):
    ledger.withdraw("people", ["a", "b"])
    with create_engine(there.ledger_url).begin() as connection:
        statement = text("UPDATE privacy_ledger_secrets SET content = :content WHERE kind = 'withdrawal'")
        connection.execute(statement, {"content": content})
    with pytest.raises(LedgerTampered, match="list of withdrawals of population 'people' is not the one"):
        PrivacyLedger(there.ledger_url).withdrawn("people")
    with pytest.raises(LedgerTampered, match="list of withdrawals"):
        ledger.withdraw("people", ["c"])


def test_a_list_without_an_entry_is_refused(ledger: PrivacyLedger, there: Settings):
    with create_engine(there.ledger_url).begin() as connection:
        connection.execute(
            text("INSERT INTO privacy_ledger_secrets VALUES ('withdrawal', 'people', :content)"), {"content": b"0" * 16}
        )
    with pytest.raises(LedgerTampered, match="list of withdrawals"):
        PrivacyLedger(there.ledger_url).withdrawn("people")


def test_nobody_withdraws_of_a_population_that_nobody_registered(ledger: PrivacyLedger, there: Settings):
    with pytest.raises(PopulationUnknown, match="not registered"):
        ledger.withdraw("unknown", ["a"])


def test_without_a_ledger_nothing_is_written(tmp_path_factory: pytest.TempPathFactory):
    url = f"sqlite:///{tmp_path_factory.mktemp('none') / 'ledger.db'}"
    with pytest.raises(LedgerMissing):
        PrivacyLedger(url).withdraw("people", ["a"])
