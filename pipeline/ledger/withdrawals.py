"""Permanent withdrawals from a population: keyed hashes of devices, each change an entry (``sealed``).

Guarantee: the ledger holds no device id, and no entry says who withdrew or how many did. A list that was cut or changed
is refused, so an edit of the database cannot undo a withdrawal.
"""

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection

from federated.config.population import PopulationKey
from federated.devices.withdrawals import HASH_BYTES, NOBODY, Withdrawals, withdrawal_key
from pipeline.ground.errors import LedgerMissing, PopulationUnknown
from pipeline.ledger import populations, sealed
from pipeline.ledger.budget import REGISTRATION, require_registered
from pipeline.ledger.chain import of_kinds
from pipeline.ledger.ledger import PrivacyLedger

_KIND = "withdrawal"


def withdraw(ledger: PrivacyLedger, population: PopulationKey, device_ids: Iterable[str]) -> Withdrawals:
    """Exclude devices from a population permanently; repeating the same call is free.

    Raises:
      PopulationUnknown: it is not registered.
      LedgerTampered: the ledger cannot be relied on.
    """
    with ledger.writing() as connection:
        before = _read(connection, population)
        hashes = before.hashes | set(map(before.hashed, device_ids))
        if hashes != before.hashes:
            sealed.write(connection, _KIND, bytes.fromhex("".join(sorted(hashes))), population)
        return replace(before, hashes=frozenset(hashes))


def withdrawn(url: str, population: PopulationKey) -> Withdrawals:
    """Return the devices that are excluded from a population.

    Raises:
      PopulationUnknown: it is not registered.
      LedgerTampered: the list does not match its entry.
    """
    with PrivacyLedger(url).transaction() as connection:
        return _read(connection, population)


def lists(url: str) -> dict[PopulationKey, Withdrawals]:
    """Return the excluded devices of each population from which any withdrew; raises as ``withdrawn``."""
    with PrivacyLedger(url).transaction() as connection:
        return {
            key: _read(connection, key) for key in sorted({each.population for each in of_kinds(connection, _KIND)})
        }


def foreseen_of(url: str, population: PopulationKey) -> Withdrawals:
    """Return the devices that a launch will exclude; empty if no ledger has the population yet."""
    try:
        return withdrawn(url, population)
    except (LedgerMissing, PopulationUnknown):
        return NOBODY


def _read(connection: Connection, population: PopulationKey) -> Withdrawals:
    """Read a population's list."""
    rules = require_registered(of_kinds(connection, *REGISTRATION, population=population), population).rules
    key = withdrawal_key(population, populations.split_secret(connection, population))
    digits = sealed.read(connection, _KIND, population).hex()
    hashes = frozenset(digits[at : at + 2 * HASH_BYTES] for at in range(0, len(digits), 2 * HASH_BYTES))
    return Withdrawals(key, hashes, rules.case_sensitive_ids)
