"""Populations in the database: registration and budget changes.

Both are entries; the split secret is beside them (``sealed``).
"""

import hashlib
from collections.abc import Iterable

from sqlalchemy import Connection

from federated.config.population import PopulationKey, is_simulation
from pipeline.ground.errors import LedgerConflict
from pipeline.ledger import sealed
from pipeline.ledger.budget import REGISTRATION, Budget, Population, Rules, registered, require_registered
from pipeline.ledger.chain import append, entries_of, of_kinds
from pipeline.ledger.entries import Entry
from pretrain.randomness.entropy import fresh_bytes

SECRET_BYTES = 32


def register(
    connection: Connection, key: PopulationKey, budget: Budget, rules: Rules, by: str, raised_by: tuple[str, ...]
) -> Population:
    """Register a population, with a split secret of its own; see ``PrivacyLedger.register``."""
    old = registered(entries_of(connection, key), key)
    if old is not None:
        rules = rules.model_copy(update={"witness": old.rules.witness})  # It may have been rotated since.
        if (old.budget, old.rules, old.raised_by) != (budget, rules, raised_by):
            raise LedgerConflict(
                f"population {key!r}: registered by {old.registered_by} with rho {old.budget.max_rho:g}; "
                f"{' or '.join(old.raised_by)} may change that: tacit ledger budget {key}"
            )
        return old
    # A simulation protects no one, and its secret is a function of its key so that runs repeat anywhere.
    repeatable = hashlib.sha256(f"tacit split secret of {key}".encode()).digest()
    secret, salt = (repeatable, repeatable) if is_simulation(key) else (fresh_bytes(SECRET_BYTES), None)
    made = Population(
        key=key,
        budget=budget,
        rules=rules,
        raised_by=raised_by,
        registered_by=by,
        **sealed.put(connection, "register", key, secret, salt),
    )
    append(connection, "register", key, "", key, None, made.model_dump(mode="json"))
    return made


def change_budget(
    connection: Connection,
    key: PopulationKey,
    budget: Budget,
    by: str,
    reason: str,
    rules: Rules | None,
    witness: str,
) -> Population:
    """Record a changed budget and rules; see ``PrivacyLedger.change_budget``."""
    if not reason.strip():
        raise LedgerConflict(f"population {key!r}: say why its budget changes: --reason ...")
    entries = entries_of(connection, key)
    population = require_registered(entries, key)
    if by not in population.raised_by:
        raise LedgerConflict(
            f"population {key!r}: its budget may be changed by {' or '.join(population.raised_by)}, not by {by}"
        )
    rules = (rules or population.rules).model_copy(update={"witness": witness or population.rules.witness})
    if rules.case_sensitive_ids != population.rules.case_sensitive_ids:
        raise LedgerConflict(
            f"population {key!r}: --case-sensitive-ids is fixed at the registration, as devices are counted by it"
        )
    change = {"budget": budget.model_dump(), "rules": rules.model_dump(mode="json"), "by": by, "reason": reason}
    append(connection, "budget", key, "", numbered_stage(entries, "budget", key), None, change)
    return population.model_copy(update={"budget": budget, "rules": rules})


def split_secret(connection: Connection, key: PopulationKey) -> bytes:
    """Return a population's split secret; see ``PrivacyLedger.split_secret``."""
    require_registered(of_kinds(connection, *REGISTRATION, population=key), key)
    return sealed.read(connection, "register", key)


def numbered_stage(entries: Iterable[Entry], kind: str, key: PopulationKey) -> str:
    """Numbered stage name for an entry kind that a population may repeat."""
    return f"{key} {sum((entry.kind, entry.population) == (kind, key) for entry in entries) + 1}"
