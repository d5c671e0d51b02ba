"""Permanent withdrawals from a population: keyed hashes of devices, each change recorded in the chain.

Guarantee: the ledger holds no device id, and no entry says who withdrew or how many did: it names a digest of all
hashes, which cannot be guessed without the population's secret. A list that was cut or changed is refused, so an edit
of the database cannot undo a withdrawal.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Connection, select, update

from federated.config.population import PopulationKey
from federated.devices.withdrawals import HASH_BYTES, NOBODY, Withdrawals, withdrawal_key
from pipeline.ground.errors import LedgerMissing, LedgerTampered, PopulationUnknown
from pipeline.ledger import populations, schema
from pipeline.ledger.budget import REGISTRATION, require_registered
from pipeline.ledger.chain import append, of_kinds
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger

_KIND = "withdrawal"


def withdraw(ledger: PrivacyLedger, population: PopulationKey, device_ids: Iterable[str]) -> Withdrawals:
    """Exclude devices from a population permanently; repeating the same call is free.

    Raises:
      PopulationUnknown: it is not registered.
      LedgerTampered: the ledger cannot be relied on.
    """
    with ledger.writing() as connection:
        noted = of_kinds(connection, _KIND, population=population)
        before = _read(connection, population, noted)
        hashes = before.hashes | set(map(before.hashed, device_ids))
        if hashes != before.hashes:
            content = bytes.fromhex("".join(sorted(hashes)))
            of_key = schema.POPULATIONS.c.population == population
            connection.execute(update(schema.POPULATIONS).where(of_key).values(withdrawn=content))
            stage = f"{population} {len(noted) + 1}"
            append(connection, _KIND, population, "", stage, None, {"digest": _digest(content)})
        return replace(before, hashes=frozenset(hashes))


def withdrawn(url: str, population: PopulationKey) -> Withdrawals:
    """Return the devices that are excluded from a population.

    Raises:
      PopulationUnknown: it is not registered.
      LedgerTampered: the list does not match its entry.
    """
    with PrivacyLedger(url).transaction() as connection:
        return _read(connection, population, of_kinds(connection, _KIND, population=population))


def lists(url: str) -> dict[PopulationKey, Withdrawals]:
    """Return the excluded devices of each population from which any withdrew; raises as ``withdrawn``."""
    with PrivacyLedger(url).transaction() as connection:
        noted = of_kinds(connection, _KIND)
        keys = sorted({entry.population for entry in noted})
        return {key: _read(connection, key, [each for each in noted if each.population == key]) for key in keys}


def foreseen_of(url: str, population: PopulationKey) -> Withdrawals:
    """Return the devices that a launch will exclude; empty if no ledger has the population yet."""
    try:
        return withdrawn(url, population)
    except (LedgerMissing, PopulationUnknown):
        return NOBODY


def _read(connection: Connection, population: PopulationKey, noted: Sequence[Entry]) -> Withdrawals:
    """Read a population's list, and hold it against the last of its entries."""
    rules = require_registered(of_kinds(connection, *REGISTRATION, population=population), population).rules
    key = withdrawal_key(population, populations.split_secret(connection, population))
    of_key = select(schema.POPULATIONS.c.withdrawn).where(schema.POPULATIONS.c.population == population)
    content = connection.execute(of_key).scalar_one()
    if _digest(content) != (noted[-1].names("digest") if noted else _digest(b"")):
        raise LedgerTampered(
            f"population {population!r}: the list of withdrawals does not match its entry, so no text may be read. "
            "Restore the ledger from a backup"
        )
    digits = content.hex()
    hashes = frozenset(digits[at : at + 2 * HASH_BYTES] for at in range(0, len(digits), 2 * HASH_BYTES))
    return Withdrawals(key, hashes, rules.case_sensitive_ids)


def _digest(content: bytes) -> str:
    return hashlib.sha256(b"tacit withdrawn" + content).hexdigest()
