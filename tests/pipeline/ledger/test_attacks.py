"""Attacks by somebody who may write to the database and to every file of the installation, and has no key."""

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.ground.errors import KeyUnusable, LaunchError, LedgerTampered
from pipeline.ground.settings import Settings
from pipeline.ledger import rows
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.log.note import Signed
from pipeline.ledger.log.tiles import CHECKPOINT, WIDTH, WITNESSED, Log
from tests.helpers.launches.installed import registered
from tests.helpers.launches.spends import device, reserve

IDS = [f"device-{number}" for number in range(99)]


@pytest.fixture
def ledger(settings: Settings) -> PrivacyLedger:
    """Every kind of what a ledger holds, all of it witnessed."""
    ledger = registered(PrivacyLedger.of(settings), "people", "renamed")
    ledger.bind_devices("people", IDS)
    ledger.withdraw("people", ["anna", "ben"])
    reserve(ledger, "first", device(0.4))
    ledger.commit("first", "fine_tune", device(0.3))
    ledger.bind_result("first", "decide", "a" * 64)
    ledger.register_reviewer(
        "people", "ana", "9b32dc09316dc2f16e2062d5c3be49666e3e96b1ac61887836b9d69be63a0af6", "tests"
    )
    ledger.require_whole({})
    assert ledger.verify() == []
    return ledger


def past_triggers(here: Settings, *statements: str) -> None:
    """Run statements as somebody with all rights, who leaves the triggers as they were."""
    with closing(sqlite3.connect(here.runs_dir / "ledger.db")) as database, database:
        made = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in made:
            database.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert database.execute(statement).rowcount, statement
        for _, sql in made:
            database.execute(sql)


ENTRIES = {
    "a commit edited": "UPDATE privacy_ledger SET rho = 0.001 WHERE kind = 'commit'",
    "a commit moved to another population": "UPDATE privacy_ledger SET population = 'renamed' WHERE kind = 'commit'",
    "a commit of another launch": "UPDATE privacy_ledger SET launch_id = 'other' WHERE kind = 'commit'",
    "a commit deleted": "DELETE FROM privacy_ledger WHERE kind = 'commit'",
    "a budget raised": "UPDATE privacy_ledger SET binding = replace(binding, '\"max_rho\":1', '\"max_rho\":9')"
    " WHERE kind = 'register' AND population = 'people'",
    "a reviewer's key changed": "UPDATE privacy_ledger SET binding = replace(binding, '9b32', '9b33')"
    " WHERE kind = 'reviewer'",
    "a result replaced": "UPDATE privacy_ledger SET binding = replace(binding, 'aa', 'bb') WHERE kind = 'result'",
    "a result deleted": "DELETE FROM privacy_ledger WHERE kind = 'result'",
    "the time of a spend": "UPDATE privacy_ledger SET created_at = '2001' WHERE kind = 'reserve'",
    "two entries exchanged": "UPDATE privacy_ledger SET seq = CASE seq WHEN 1 THEN -2 ELSE -1 END WHERE seq < 3",
}
WRITES: dict[str, Callable[[PrivacyLedger], object]] = {
    "reserve": lambda ledger: reserve(ledger, "second", device(0.1)),
    "a stage or an alias": lambda ledger: ledger.require_whole({}),
    "bind a result": lambda ledger: ledger.bind_result("first", "publish", "c" * 64),
    "answer": lambda ledger: ledger.note("review", "people", "first", "publish", {"answer": "approve"}),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("edit", ENTRIES)
def test_nothing_goes_on_over_an_entry_that_was_edited(
    ledger: PrivacyLedger, settings: Settings, edit: str, write: str
) -> None:
    """No file beside the database says that a check may be left out."""
    past_triggers(settings, ENTRIES[edit])
    here = {path.name for path in settings.runs_dir.iterdir()}
    assert here <= {"ledger.db", "log", "keys", "witness", "people", "renamed"}, "no cache of an earlier check"
    with pytest.raises(LedgerTampered, match="was altered"):
        WRITES[write](PrivacyLedger.of(settings))
    assert PrivacyLedger.of(settings).verify()


SECRETS = {
    "the device key": "UPDATE privacy_ledger_secrets SET content = zeroblob(64) WHERE kind = 'device_key'",
    "no device key": "DELETE FROM privacy_ledger_secrets WHERE kind = 'device_key'",
    "the split secret": "UPDATE privacy_ledger_secrets SET content = zeroblob(64) WHERE kind = 'register'",
    "one population's secret for another's": "UPDATE privacy_ledger_secrets SET content = (SELECT content FROM"
    " privacy_ledger_secrets WHERE kind = 'register' AND population = 'renamed') WHERE kind = 'register'",
    "no population": "DELETE FROM privacy_ledger_secrets WHERE kind = 'register' AND population = 'people'",
    "another population": "INSERT INTO privacy_ledger_secrets VALUES ('register', 'forged', zeroblob(64))",
    "the devices": "UPDATE privacy_ledger_secrets SET content = substr(content, 1, 64) WHERE kind = 'devices'",
    "no devices": "DELETE FROM privacy_ledger_secrets WHERE kind = 'devices'",
    "devices as text": "UPDATE privacy_ledger_secrets SET content = 'text' WHERE kind = 'devices'",
    "a withdrawal less": "UPDATE privacy_ledger_secrets SET content = substr(content, 1, length(content) - 8)"
    " WHERE kind = 'withdrawal'",
    "no withdrawals": "DELETE FROM privacy_ledger_secrets WHERE kind = 'withdrawal'",
    "a withdrawal more": "INSERT INTO privacy_ledger_secrets VALUES ('withdrawal', 'renamed', zeroblob(40))",
}


@pytest.mark.parametrize("edit", SECRETS)
def test_a_secret_that_its_entry_does_not_bind_is_found(ledger: PrivacyLedger, settings: Settings, edit: str) -> None:
    past_triggers(settings, SECRETS[edit])
    assert any("is not the one that its entry binds" in problem for problem in ledger.verify())


READS: dict[str, Callable[[PrivacyLedger, Settings], object]] = {
    "device_key": lambda ledger, here: ledger.bind_devices("renamed", IDS),
    "register": lambda ledger, here: ledger.split_secret("people"),
    "devices": lambda ledger, here: ledger.bind_devices("renamed", IDS),
    "withdrawal": lambda ledger, here: PrivacyLedger(here.ledger_url).withdrawn("people"),
}


@pytest.mark.parametrize("statement", ["UPDATE {} SET content = zeroblob(72)", "DELETE FROM {}"])
@pytest.mark.parametrize("kind", READS)
def test_a_secret_is_held_against_its_entry_whenever_it_is_read(
    ledger: PrivacyLedger, settings: Settings, kind: str, statement: str
) -> None:
    """One UPDATE of the device key gave the same people a second budget."""
    past_triggers(settings, statement.format("privacy_ledger_secrets") + f" WHERE kind = '{kind}'")
    with pytest.raises(LedgerTampered, match="is not the one that its entry binds"):
        READS[kind](PrivacyLedger.of(settings), settings)


def test_entries_hold_no_secret_and_no_digest_that_a_guess_could_be_tested_on(
    ledger: PrivacyLedger, settings: Settings
) -> None:
    with closing(sqlite3.connect(settings.runs_dir / "ledger.db")) as database:
        rows = database.execute("SELECT kind, content FROM privacy_ledger_secrets").fetchall()
    written = str(ledger.entries()) + "".join(map(repr, Log(settings.log_dir).leaves(Log(settings.log_dir).size)))
    assert {kind for kind, _ in rows} == {"device_key", "register", "devices", "withdrawal"}
    for kind, content in rows:
        secret = content[32:]
        guesses = (secret, f"tacit {kind}\n".encode() + secret)
        assert secret.hex() not in written
        assert not any(hashlib.sha256(guess).hexdigest() in written for guess in guesses)
        assert hashlib.sha256(f"tacit {kind}\n".encode() + content).hexdigest() in written


@pytest.fixture
def tall(ledger: PrivacyLedger, settings: Settings) -> PrivacyLedger:
    """A ledger whose log has full tiles, partial ones, and a second level."""
    with ledger.writing() as connection:
        for number in range(WIDTH + 5):
            rows.bind_result(connection, "many", f"stage {number}", f"{number:064x}")
    ledger.require_whole({})
    return ledger


def tiles(here: Settings) -> list[Path]:
    return sorted(path for path in (here.log_dir / "tile").rglob("*") if path.is_file())


def test_a_flipped_bit_of_any_tile_is_never_signed_over(tall: PrivacyLedger, settings: Settings) -> None:
    before = (settings.log_dir / CHECKPOINT).read_bytes()
    assert {path.relative_to(settings.log_dir).parts[1] for path in tiles(settings)} == {"0", "1", "entries"}
    for path in tiles(settings):
        content = path.read_bytes()
        for place in (0, 1, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            assert any("tile" in problem for problem in tall.verify()), (path, place)
            for write in WRITES.values():
                with pytest.raises(LedgerTampered, match="is damaged"):
                    write(PrivacyLedger.of(settings))
            assert (settings.log_dir / CHECKPOINT).read_bytes() == before
        path.write_bytes(content)
    assert tall.verify() == []


def write_and_damage(ledger: PrivacyLedger, path: Path, digest: str) -> None:
    """Damage a tile after the check of the ledger, and before its log grows."""
    with ledger.writing() as connection:
        rows.bind_result(connection, "first", "publish", digest)
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize("level", ["0", "entries"])
def test_a_tile_that_is_damaged_while_an_entry_is_written_is_not_signed_over(
    ledger: PrivacyLedger, settings: Settings, level: str
) -> None:
    log = Log(settings.log_dir)
    before, path = log.checkpoint(), settings.log_dir / "tile" / level / "000.p" / str(log.size)
    content = path.read_bytes()
    with pytest.raises(LedgerTampered, match="tiles are not those of its checkpoint"):
        write_and_damage(ledger, path, "d" * 64)
    assert log.checkpoint() == before
    path.write_bytes(content)
    ledger.require_whole({})
    assert log.size == before.checkpoint.size + 1
    assert ledger.verify() == []


def test_a_log_that_was_set_aside_is_made_again(tall: PrivacyLedger, settings: Settings) -> None:
    """The fix that a damaged tile's message names."""
    before = Signed.parsed(tall.checkpoint()).checkpoint
    settings.log_dir.rename(settings.log_dir.with_name("aside"))
    tall.require_whole({})
    assert Signed.parsed(tall.checkpoint()).checkpoint == before
    assert tall.verify() == []


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o660, 0o604, 0o610])
def test_a_ledger_that_others_may_read_or_write_is_refused(
    ledger: PrivacyLedger, settings: Settings, mode: int
) -> None:
    file = settings.runs_dir / "ledger.db"
    file.chmod(mode)
    with pytest.raises(LedgerTampered, match=rf"has mode {mode:o}.*chmod 600 {file}"):
        PrivacyLedger.of(settings)
    file.chmod(0o600)
    assert PrivacyLedger.of(settings).verify() == []


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660])
@pytest.mark.parametrize("role", ["ledger", "witness"])
def test_a_key_that_others_may_read_signs_nothing(
    ledger: PrivacyLedger, settings: Settings, role: str, mode: int
) -> None:
    folder = settings.keys_dir if role == "ledger" else Path(settings.witness)
    key = folder / f"{role}-1.pem"
    key.chmod(mode)
    with pytest.raises(LaunchError, match=rf"{role}-1\.pem: has mode {mode:o}.*chmod 600 {key}") as refused:
        PrivacyLedger.of(settings).require_whole({})
    assert role == "witness" or isinstance(refused.value, KeyUnusable)
    key.chmod(0o600)
    PrivacyLedger.of(settings).require_whole({})


def test_a_checkpoint_that_nobody_signed_covers_no_entry(ledger: PrivacyLedger, settings: Settings) -> None:
    """Signatures of entries are left out under a checkpoint of the ledger's own key alone."""
    with ledger.transaction() as connection:
        leaves, valid = rows.leaves(connection, 0), [(1, ledger.outside_files().first_key)]
    roots = {len(leaves): Signed.parsed(ledger.checkpoint()).checkpoint.root}
    outside = ledger.outside_files()
    assert outside.covered_leaves(roots, valid) == len(leaves)
    assert outside.covered_leaves({len(leaves): bytes(32)}, valid) == 0, "of other entries"
    assert outside.covered_leaves(roots, [(1, valid[0][1]), (2, bytes(32))]) == 0, "by a key that was replaced"
    signed = Signed.parsed(ledger.checkpoint())
    outside.log.keep(Signed(signed.checkpoint, signed.lines[:1]), WITNESSED)
    assert outside.covered_leaves(roots, valid) == 0, "without a cosignature"
