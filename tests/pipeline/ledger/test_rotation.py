"""A rotated key: what the old one signed before stays valid, and what it signs afterwards is found."""

import re
import shutil
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from federated.config.population import PopulationKey
from pipeline.ground import keys
from pipeline.ground.errors import KeyUnusable, LedgerTampered, PermanentError
from pipeline.ground.settings import Settings
from pipeline.ledger.database import ENTRIES
from pipeline.ledger.entries import Leaf
from pipeline.ledger.ledger import PrivacyLedger, rotate
from pipeline.ledger.log.note import Signed
from pipeline.ledger.log.tiles import Log
from pipeline.ledger.log.witness import NAME, file_of
from pipeline.ledger.rows import append
from tests.helpers.launches.installed import registered
from tests.helpers.launches.spends import device, reserve


@pytest.fixture
def before(settings: Settings) -> PrivacyLedger:
    """A ledger with entries of the first key, which the witness saw."""
    ledger = registered(PrivacyLedger.of(settings), "people")
    reserve(ledger, "first", device(0.1))
    ledger.witnessed()
    return ledger


def public(settings: Settings, role: keys.Role) -> list[bytes]:
    return [bytes.fromhex(key.keyval["public"]) for key in keys.public_keys(settings, role)]


def test_a_rotated_key_signs_and_the_old_one_no_longer(before: PrivacyLedger, settings: Settings):
    old = keys.signer(settings, "ledger")
    done = rotate(settings, "ledger")
    found = [path.name for path in sorted(settings.keys_dir.glob("ledger-*.pem"))]
    assert found == ["ledger-1.pub.pem", "ledger-2.pem", "ledger-2.pub.pem"]
    ledger = PrivacyLedger.of(settings)
    (entry,) = ledger.entries_of_kind("key")
    # Ed25519 signs alike whenever it signs.
    signature = old.sign(f"tacit key ledger 2 {done.names('public')}".encode()).signature
    assert entry.content == {"role": "ledger", "number": 2, "public": done.names("public"), "signature": signature}
    reserve(ledger, "second", device(0.1))
    signed = Signed.parsed(ledger.witnessed())
    assert signed.is_signed_by(public(settings, "ledger")[1:])
    assert signed.cosigned_at(NAME, public(settings, "witness")) is not None
    assert ledger.verify() == []
    last = ledger.entries()[-1]
    forged = last.model_copy(update={"seq": last.seq + 1, "launch_id": "third"})
    digest = forged.expected_hash()
    signature = old.sign(Leaf(forged.seq, digest).message).signature
    forged = forged.model_copy(update={"hash": digest, "signature": signature})
    engine = create_engine(settings.ledger_url)
    with engine.begin() as connection:
        connection.execute(ENTRIES.insert().values(**forged.model_dump()))
    engine.dispose()
    with pytest.raises(LedgerTampered, match=rf"entry {forged.seq} .* was not signed by the ledger's key"):
        reserve(PrivacyLedger.of(settings), "fourth", device(0.1))


@pytest.mark.parametrize("died_at", ["note", "activate", "share"])
def test_a_rotation_that_died_goes_on_with_the_same_key(
    before: PrivacyLedger, settings: Settings, monkeypatch: pytest.MonkeyPatch, died_at: str
):
    def dies(*_: object, **__: object) -> None:
        raise OSError("the machine went away")

    with monkeypatch.context() as patched:
        patched.setattr(PrivacyLedger if died_at == "note" else keys, died_at, dies)
        with pytest.raises(OSError, match="went away"):
            rotate(settings, "ledger")
    if died_at == "activate":
        with pytest.raises(KeyUnusable, match="repeat it: tacit ledger rotate ledger"):
            reserve(PrivacyLedger.of(settings), "in between", device(0.1))
    if died_at != "share":
        rotate(settings, "ledger")
    keys.share(settings)
    assert len(public(settings, "ledger")) == 2
    ledger = PrivacyLedger.of(settings)
    assert [entry.names("public") for entry in ledger.entries_of_kind("key")] == [public(settings, "ledger")[1].hex()]
    reserve(ledger, "second", device(0.1))
    ledger.witnessed()
    assert ledger.verify() == []


@pytest.mark.parametrize("role", ["launch", "model", "witness", "answers"])
def test_every_role_is_rotated(before: PrivacyLedger, settings: Settings, role: keys.Role):
    done = rotate(settings, role)
    assert (done.content["number"], keys.public_keys(settings, role)[-1].keyval["public"]) == (2, done.names("public"))
    assert keys.signer(settings, role).public_key.keyval["public"] == done.names("public")
    ledger = PrivacyLedger.of(settings)
    assert Signed.parsed(ledger.witnessed()).cosigned_at(NAME, public(settings, "witness")[-1:]) is not None
    assert ledger.verify() == []


def test_a_key_that_is_missing_is_not_rotated(before: PrivacyLedger, settings: Settings):
    (settings.keys_dir / "launch-1.pem").unlink()
    with pytest.raises(KeyUnusable, match=r"launch-1\.pem: missing"):
        rotate(settings, "launch")
    assert before.entries_of_kind("key") == []


def another_witness(settings: Settings) -> str:
    """A witness of one's own in the place of the registered one, with all that the log knows of it; its public key."""
    folder = Path(settings.witness)
    shutil.rmtree(folder)
    keys.add(folder, "witness")
    shutil.copy(folder / "witness-1.pub.pem", settings.keys_dir)
    shutil.copy(settings.keys_dir / "ledger-1.pub.pem", folder)
    log = Log(settings.log_dir)
    signed = log.checkpoint()
    assert signed is not None
    shutil.copy(log.root / "witnessed", folder / file_of(signed.checkpoint.origin))
    return public(settings, "witness")[0].hex()


def test_a_registration_of_people_names_the_witness(before: PrivacyLedger, settings: Settings):
    (first,) = public(settings, "witness")
    assert before.population("people").rules.witness == first.hex()
    assert registered(before, "made_up_files:some").population("made_up_files:some").rules.witness == ""
    rotate(settings, "witness")
    owned = registered(PrivacyLedger.of(settings), "people").population("people")
    assert owned.rules.witness == first.hex(), "repeating a registration changes nothing"


@pytest.mark.parametrize("known_to", ["nobody", "the ledger's key"])
def test_another_witness_than_the_registered_one_ends_spends(before: PrivacyLedger, settings: Settings, known_to: str):
    """Whoever holds the ledger's key may write a rotation, which the old witness' key did not sign."""
    named = another_witness(settings)
    if known_to == "the ledger's key":
        number, signature = 2, keys.signer(settings, "ledger").sign(f"tacit key witness 2 {named}".encode()).signature
        forged = {"role": "witness", "number": number, "public": named, "signature": signature}
        with before.writing(any_witness=True) as connection:
            append(connection, "key", PopulationKey(""), "", "witness 2", None, forged)
    ledger = PrivacyLedger.of(settings)
    why = rf"population 'people' was registered with the witness [0-9a-f]{{16}}, and the one here is {named[:16]}"
    for refused in (lambda: reserve(ledger, "second", device(0.1)), lambda: ledger.require_whole({})):
        with pytest.raises(LedgerTampered, match=why + ".*tacit ledger budget people --witness"):
            refused()
    (found,) = ledger.verify()
    assert re.match(why, found)
    people = ledger.population("people")
    ledger.change_budget("people", people.budget, "tests", "replaced", replace_witness=True)
    assert ledger.population("people").rules.witness == named
    reserve(ledger, "second", device(0.1))
    ledger.require_whole({})
    assert ledger.verify() == []


def test_a_rotated_witness_is_the_registered_one(before: PrivacyLedger, settings: Settings):
    for _ in range(2):
        rotate(settings, "witness")
    ledger = PrivacyLedger.of(settings)
    reserve(ledger, "second", device(0.1))
    ledger.require_whole({})
    assert ledger.verify() == []


def test_a_cosignature_of_an_older_key_than_the_newest_is_none(before: PrivacyLedger, settings: Settings):
    rotate(settings, "witness")
    (Path(settings.witness) / "witness-2.pem").unlink()
    shutil.rmtree(settings.witness)
    keys.add(Path(settings.witness), "witness")
    shutil.copy(settings.keys_dir / "ledger-1.pub.pem", settings.witness)
    shutil.copy(Path(settings.witness) / "witness-1.pub.pem", settings.keys_dir)
    before.note("attempt", PopulationKey(""), "a", "b", {})
    origin = Log(settings.log_dir).checkpoint().checkpoint.origin
    shutil.copy(settings.log_dir / "witnessed", Path(settings.witness) / file_of(origin))
    with pytest.raises(PermanentError, match="not cosigned by the witness' key"):
        before.witnessed()
