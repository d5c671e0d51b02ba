"""Public keys of reviewers, registered in the ledger by an account that may raise the population's budget.

A reviewer's private key never comes to the installation, so the ledger's key gives no answer in a reviewer's name.
Whoever holds that key can still register a key of their own for a reviewer, but not in secret: a registration is an
entry, it stays in the log, and answers given before it keep the reviewer's earlier key.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from federated.config.population import PopulationKey, is_simulation
from pipeline.ground.errors import LedgerConflict
from pipeline.ledger.budget import REGISTRATION, Population, registered, require_registered
from pipeline.ledger.chain import append, of_kinds
from pipeline.ledger.entries import Entry, Keys
from pipeline.ledger.populations import numbered_stage

_KIND = "reviewer"
_PUBLIC = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class AnswerKeys:
    """Public keys that sign answers about launches on one population, 32 bytes each, the oldest first.

    Attributes:
      reviewers: entries that register a reviewer's key, of accounts that may.
      on_behalf: keys of this installation that sign answers given in Airflow, by the entry from which each signs.
    """

    reviewers: Sequence[Entry]
    on_behalf: Keys

    def registration(self, account: str, before: int | None = None) -> Entry | None:
        """Return the entry that registers an account's newest key; None if there is none.

        Args:
          account: name in the operating system.
          before: place of an answer, which no later key signed; None for an answer to come.
        """
        own = [entry for entry in self.reviewers if entry.names("account") == account]
        return next((each for each in reversed(own) if before is None or each.seq < before), None)

    def installation(self, before: int | None = None) -> bytes:
        """Return the installation's key for answers given in Airflow; ``before`` as in ``registration``."""
        return next(key for begin, key in reversed(self.on_behalf) if before is None or begin <= before)


def register(connection: Connection, key: PopulationKey, account: str, public: str, by: str) -> Entry:
    """Register a reviewer's public key for launches on a population; see ``PrivacyLedger.register_reviewer``."""
    if not _PUBLIC.fullmatch(public):
        raise LedgerConflict(
            f"--key: {public[:80]!r} is no public key of 64 digits; the reviewer's 'tacit ledger key' prints it"
        )
    entries = of_kinds(connection, *REGISTRATION, _KIND, population=key)
    owner = registered(entries, key) if is_simulation(key) else require_registered(entries, key)
    if not _may_register(key, owner, account, by):
        them = " or ".join(owner.raised_by) if owner else account
        raise LedgerConflict(f"population {key!r}: reviewers' keys may be registered by {them}, not by {by}")
    earlier = of_registered(entries, key)
    taken = [entry for entry in earlier if entry.names("public") == public]
    if other := next((entry.names("account") for entry in taken if entry.names("account") != account), None):
        raise LedgerConflict(f"--key: {public[:16]} is the key of {other}; each reviewer has a key of their own")
    newest = AnswerKeys(earlier, ()).registration(account)
    if newest is not None and newest.names("public") == public:
        return newest
    if taken:
        raise LedgerConflict(f"--key: {public[:16]} is an earlier key of {account}; register a new one")
    stated = {"account": account, "public": public, "by": by}
    return append(connection, _KIND, key, "", numbered_stage(entries, _KIND, key), None, stated)


def of_registered(entries: Iterable[Entry], key: PopulationKey) -> list[Entry]:
    """Entries that register reviewers' keys, without those whose author may not."""
    entries = list(entries)
    owner = registered(entries, key)
    return [
        entry
        for entry in entries
        if entry.kind == _KIND
        and _PUBLIC.fullmatch(entry.names("public"))
        and _may_register(key, owner, entry.names("account"), entry.names("by"))
    ]


def in_force(connection: Connection, key: PopulationKey) -> list[Entry]:
    """Entries of the ledger that register reviewers' keys for a population."""
    return of_registered(of_kinds(connection, *REGISTRATION, _KIND, population=key), key)


def _may_register(key: PopulationKey, owner: Population | None, account: str, by: str) -> bool:
    """Return whether an account may register a reviewer's key: a simulation protects no one, and anyone their own."""
    return (owner is not None and by in owner.raised_by) or (is_simulation(key) and account == by)
