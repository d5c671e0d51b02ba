"""An entry's hash commits to all of it, and with what a proof publishes it tells nothing of what is withheld."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from pipeline.ground import clock
from pipeline.ground.settings import Settings
from pipeline.ledger import rows
from pipeline.ledger.entries import Entry, canonical, revealed, sha256_of
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.log.note import parsed_key
from tests.helpers.launches.installed import registered
from tests.helpers.launches.spends import device, reserve

TRIES = 2_000  # microseconds on either side of the time; an hour has 3,600 million, which a laptop hashes in an hour
PUBLIC = {"seq", "kind", "population", "launch_id", "stage", "unit", "adjacency", "rho", "epsilon", "delta"}
PUBLIC_BY_KIND = {
    "commit": PUBLIC | {"failure", "split", "messages", "device_epsilon", "device_delta", "config", "witness"},
    "result": PUBLIC | {"digest"},
}


@pytest.fixture
def ledger(settings: Settings) -> PrivacyLedger:
    ledger = PrivacyLedger.of(settings)
    registered(ledger, "people")
    reserve(ledger, "first", device(0.4))
    ledger.commit("first", "fine_tune", device(0.3))
    ledger.bind_result("first", "fine_tune", "d" * 64)
    return ledger


def last(ledger: PrivacyLedger, kind: str) -> tuple[str, dict[str, object]]:
    """The part of the only entry of a kind that may be shown, and its row."""
    (entry,) = ledger.entries_of_kind(kind)
    return entry.revealed, entry.model_dump()


def finds_time(shown: str, known: Mapping[str, object], near: datetime) -> bool:
    """The attack: everything withheld is known but the time, which is tried."""
    wanted = json.loads(shown)["withheld"]
    for away in range(-TRIES, TRIES):
        guess = {**known, "created_at": clock.written(near + timedelta(microseconds=away))}
        if wanted in (sha256_of(canonical(guess)), sha256_of(canonical({**guess, "salt": ""}))):
            return True
    return False


@pytest.mark.parametrize("kind", PUBLIC_BY_KIND)
def test_no_time_is_found_from_what_a_proof_publishes(ledger: PrivacyLedger, kind: str):
    shown, row = last(ledger, kind)
    withheld = row.keys() - json.loads(shown).keys() - {"created_at", "salt", "hash", "signature"}
    known = {name: row[name] for name in withheld}
    near = datetime.fromisoformat(str(row["created_at"]))
    unsalted = revealed({}, {**known, "created_at": row["created_at"]})
    assert finds_time(unsalted, known, near), "the attack works where there is no salt"
    assert not finds_time(shown, known, near)


@pytest.mark.parametrize("kind", PUBLIC_BY_KIND)
def test_the_hash_covers_every_field_and_shows_those_that_are_public(ledger: PrivacyLedger, kind: str):
    shown, row = last(ledger, kind)
    assert sha256_of(shown) == row["hash"]
    assert json.loads(shown).keys() == PUBLIC_BY_KIND[kind] | {"withheld"}
    for name in row.keys() - {"hash", "signature"}:
        changed = {**row, name: "another"}
        assert Entry.model_construct(**changed).revealed != shown, name


def test_bindings_of_entries_that_spend_nothing_are_withheld(ledger: PrivacyLedger):
    """They hold accounts, reasons and digests of other launches, under names of their own."""
    entry = ledger.note("review", ledger.entries()[-1].population, "first", "publish", {"config": "c", "split": "s"})
    assert not json.loads(entry.revealed).keys() & {"config", "split", "binding", "note", "created_at", "salt"}


def test_every_entry_has_a_salt_of_its_own(ledger: PrivacyLedger):
    salts = [entry.salt for entry in ledger.entries()] + [str(last(ledger, "result")[1]["salt"])]
    assert len({*salts}) == len(salts) == 4
    assert all(len(bytes.fromhex(each)) >= 16 for each in salts)


def test_proofs_of_a_launch_are_of_its_own_entries_and_name_nothing_else(ledger: PrivacyLedger, settings: Settings):
    reserve(ledger, "second", device(0.1))
    ledger.release("first", "fine_tune", "for a reason of ours")
    ledger.note("review", ledger.entries()[0].population, "first", "publish", {"account": "somebody"})
    with ledger.transaction() as connection:
        every = {leaf.hash: leaf for leaf in rows.leaves(connection, 0)}
    proofs = ledger.inclusions("first", every)
    own = {entry.hash for entry in ledger.entries_of_launch("first")} | {ledger.bound_results("first")["fine_tune"][1]}
    assert proofs.keys() == own
    for digest, found in proofs.items():
        assert sha256_of(found.extra.decode()) == digest
        assert found.holds(every[digest].content)
        assert not found.holds(every[ledger.entries()[0].hash].content)
        text = found.text + found.extra.decode()
        assert not any(each in text for each in ("second", "somebody", "reason", "2026-", "2027-"))
    (checkpoint,) = {found.signed for found in proofs.values()}
    named = ledger.verifier_keys()
    (log,), (witness,) = (list(map(parsed_key, named[role])) for role in ("log", "witness"))
    assert log[0] == checkpoint.checkpoint.origin
    assert checkpoint.is_signed_by([log[1]])
    assert checkpoint.cosigned_at(*witness[:1], [witness[1]]) is not None
    assert not checkpoint.is_signed_by([witness[1]])
