"""Populations in the database: registered, their budgets changed, their devices known.

A registration and every later change of the budget are entries of the chain; the secrets stand in a table beside it.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, insert, select, update

from pipeline.errors import BudgetExceeded, LedgerConflict, LedgerTampered
from pipeline.ledger import devices, schema
from pipeline.ledger.budget import Budget, Population, registered, require_registered
from pipeline.ledger.chain import append, entries_of
from pipeline.ledger.entries import Entry

SECRET_BYTES = 32


def register(
    connection: Connection, name: str, budget: Budget, by: str, raised_by: tuple[str, ...], simulated: bool
) -> Population:
    """Write a population down with a secret of its own; see ``PrivacyLedger.register``."""
    old = registered(entries_of(connection), name)
    if old is not None:
        if (old.budget, old.raised_by, old.simulated) != (budget, raised_by, simulated):
            raise LedgerConflict(
                f"population {name!r}: registered by {old.registered_by} with rho {old.budget.max_rho:g}; "
                f"{' or '.join(old.raised_by)} may change that: tacit ledger budget {name}"
            )
        return old
    # Nobody is to be protected in a simulation, and its runs can be repeated anywhere.
    secret = (
        hashlib.sha256(f"tacit simulated {name}".encode()).digest() if simulated else secrets.token_bytes(SECRET_BYTES)
    )
    made = Population(
        name=name,
        budget=budget,
        raised_by=raised_by,
        registered_by=by,
        secret_digest=_secret_digest(secret),
        simulated=simulated,
    )
    lists = {"devices": b"", "withdrawn": b""}
    connection.execute(insert(schema.POPULATIONS).values(name=name, split_secret=secret.hex(), **lists))
    append(connection, "register", name, "", name, None, made.model_dump(mode="json"))
    return made


def change_budget(connection: Connection, name: str, budget: Budget, by: str, reason: str) -> Population:
    """Write another budget down; see ``PrivacyLedger.change_budget``."""
    if not reason.strip():
        raise LedgerConflict(f"population {name!r}: say why its budget changes: --reason ...")
    entries = entries_of(connection)
    population = require_registered(entries, name)
    if by not in population.raised_by:
        raise LedgerConflict(
            f"population {name!r}: its budget may be changed by {' or '.join(population.raised_by)}, not by {by}"
        )
    change = {"budget": budget.model_dump(), "by": by, "reason": reason}
    append(connection, "budget", name, "", _numbered(entries, "budget", name), None, change)
    return population.model_copy(update={"budget": budget})


def split_secret(connection: Connection, name: str) -> bytes:
    """A population's split secret; see ``PrivacyLedger.split_secret``."""
    population = require_registered(entries_of(connection), name)
    of_name = select(schema.POPULATIONS.c.split_secret).where(schema.POPULATIONS.c.name == name)
    text = connection.execute(of_name).scalar_one_or_none()
    secret = bytes.fromhex(text) if text else b""
    if _secret_digest(secret) != population.secret_digest:
        raise LedgerTampered(
            f"population {name!r}: its split secret is not the one it was registered with. Restore the ledger from a "
            "backup"
        )
    return secret


def bind_devices(connection: Connection, name: str, device_ids: Iterable[str]) -> None:
    """Compare devices with those of other populations and keep them; see ``PrivacyLedger.bind_devices``."""
    entries = entries_of(connection)
    require_registered(entries, name)
    key = bytes.fromhex(connection.execute(select(schema.META.c.device_key)).scalar_one())
    sample = devices.hashes(device_ids, key)
    sealed = {row.name: row.devices for row in connection.execute(select(schema.POPULATIONS))}
    _require_unchanged(entries, sealed)
    for other in sorted(sealed.keys() - {name}):
        if devices.shared(sample, devices.from_bytes(sealed[other])) > devices.MOST_SHARED:
            raise BudgetExceeded(
                f"private_text.name: {name!r}, but these are devices of population {other!r}, whose budget they spend "
                f"from; write name: {other}. If they are others that merely have the same ids, make the ids unique, as "
                "by a prefix"
            )
    content = devices.to_bytes(devices.joined(devices.from_bytes(sealed[name]), sample))
    if content != sealed[name]:
        connection.execute(update(schema.POPULATIONS).where(schema.POPULATIONS.c.name == name).values(devices=content))
        noted = {"digest": devices.digest(content)}
        append(connection, "devices", name, "", _numbered(entries, "devices", name), None, noted)


def _require_unchanged(entries: Iterable[Entry], sealed: Mapping[str, bytes]) -> None:
    """See that each population's devices are those that its latest entry names."""
    latest = {entry.population: json.loads(entry.binding)["digest"] for entry in entries if entry.kind == "devices"}
    for name, digest in latest.items():
        if devices.digest(sealed.get(name, b"")) != digest:
            raise LedgerTampered(
                f"population {name!r}: what the ledger keeps of its devices is not what was written. Restore it "
                "from a backup"
            )


def _numbered(entries: Iterable[Entry], kind: str, name: str) -> str:
    """What stands for the stage in an entry of which a population may have several."""
    return f"{name} {sum((entry.kind, entry.population) == (kind, name) for entry in entries) + 1}"


def _secret_digest(secret: bytes) -> str:
    return hashlib.sha256(b"tacit split secret" + secret).hexdigest()
