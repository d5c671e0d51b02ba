"""Keys are made once on purpose, and a key that is missing later is an error that names its file."""

import dataclasses
from pathlib import Path

import pytest
from securesystemslib.exceptions import UnverifiedSignatureError

from pipeline.ground import keys
from pipeline.ground.errors import KeyUnusable
from pipeline.ground.settings import Settings
from pipeline.ledger.statement import create


@pytest.fixture
def here(settings: Settings, tmp_path: Path) -> Settings:
    """An installation without a ledger or keys."""
    runs = tmp_path / "new"
    return dataclasses.replace(
        settings, runs_dir=runs, ledger_url=f"sqlite:///{runs}/ledger.db", keys_dir=runs / "keys"
    )


def test_keys_are_made_where_the_ledger_is_created_and_never_again(here: Settings):
    with pytest.raises(KeyUnusable, match=r"ledger-1\.pub\.pem: missing.*tacit ledger init"):
        keys.signer(here, "ledger")
    create(here)
    made = {role: keys.signer(here, role).public_key for role in keys.ROLES}
    assert len({key.keyid for key in made.values()}) == len(keys.ROLES)
    create(here)
    assert {role: keys.public_keys(here, role) for role in keys.ROLES} == {role: (key,) for role, key in made.items()}
    assert {oct(path.stat().st_mode)[-3:] for path in here.keys_dir.glob("*-1.pem")} == {"600"}
    (here.keys_dir / "launch-1.pem").unlink()
    create(here)
    with pytest.raises(KeyUnusable, match=r"launch-1\.pem: missing.*restore it from a backup"):
        keys.signer(here, "launch")


def test_a_public_key_stays_valid_for_what_was_signed_before_the_next(here: Settings):
    keys.make(here)
    before = keys.signer(here, "ledger")
    signed = before.sign(b"before")
    begun = keys.begin(here.keys_dir, "ledger")
    assert (keys.begin(here.keys_dir, "ledger"), keys.signer(here, "ledger").public_key) == (begun, before.public_key)
    keys.activate(here.keys_dir, "ledger")
    first, second = keys.public_keys(here, "ledger")
    first.verify_signature(signed, b"before")
    with pytest.raises(UnverifiedSignatureError):
        second.verify_signature(signed, b"before")
    assert keys.signer(here, "ledger").public_key == second
    assert not (here.keys_dir / "ledger-1.pem").exists()


@pytest.mark.parametrize("damage", [b"", b"-----BEGIN PRIVATE KEY-----\n", b"\x00\xff"])
def test_a_damaged_key_is_an_error_that_names_the_file(here: Settings, damage: bytes):
    keys.make(here)
    (here.keys_dir / "launch-1.pem").write_bytes(damage)
    with pytest.raises(KeyUnusable, match=r"launch-1\.pem: damaged, or not the private key of launch-1\.pub\.pem"):
        keys.signer(here, "launch")
    (here.keys_dir / "witness-1.pub.pem").write_bytes(damage)
    with pytest.raises(KeyUnusable, match=r"witness-1\.pub\.pem: no public key in PEM"):
        keys.public_keys(here, "witness")


def test_the_private_key_of_another_role_is_refused(here: Settings):
    keys.make(here)
    (here.keys_dir / "launch-1.pem").write_bytes((here.keys_dir / "ledger-1.pem").read_bytes())
    with pytest.raises(KeyUnusable, match="not the private key of"):
        keys.signer(here, "launch")
