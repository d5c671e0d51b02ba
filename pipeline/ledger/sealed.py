"""Secrets of the ledger beside its entries: device key, split secrets, devices and withdrawals of populations.

Guarantee: an entry binds each by the SHA-256 of a random salt and the secret, so that a reader of all entries can test
no guess of it. A row that its latest entry does not bind is refused whenever it is read, and found by ``problems``.
"""

import hashlib
from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, insert, select, update

from federated.config.population import PopulationKey
from pipeline.ground.errors import LedgerTampered
from pipeline.ledger.chain import append, of_kinds
from pipeline.ledger.entries import SECRET
from pipeline.ledger.schema import SECRETS
from pretrain.randomness.entropy import fresh_bytes

NOBODY = PopulationKey("")
# Kind of the binding entry -> the secret's name in messages.
KINDS = {
    "device_key": "key of device hashes",
    "register": "split secret",
    "devices": "list of devices",
    "withdrawal": "list of withdrawals",
}
_SALT_BYTES = 32


def read(connection: Connection, kind: str, population: PopulationKey = NOBODY) -> bytes:
    """Return a secret; empty if no entry binds one.

    Raises:
      LedgerTampered: it is gone, or not the one that its latest entry binds.
    """
    content, noted = _content(connection, kind, population), of_kinds(connection, kind, population=population)
    if (None if content is None else _digest(kind, content)) != (noted[-1].names(SECRET) if noted else None):
        raise LedgerTampered(f"the privacy ledger was altered: {_fault(kind, population)}; restore it from a backup")
    return b"" if content is None else content[_SALT_BYTES:]


def put(
    connection: Connection, kind: str, population: PopulationKey, secret: bytes, salt: bytes | None = None
) -> dict[str, object]:
    """Store a secret, and return what its entry, which the caller appends, says of it.

    Args:
      salt: by default random; that of a secret that everybody may know is constant.
    """
    content = (fresh_bytes(_SALT_BYTES) if salt is None else salt) + secret
    where = (SECRETS.c.kind == kind) & (SECRETS.c.population == population)
    if _content(connection, kind, population) is None:
        connection.execute(insert(SECRETS).values(kind=kind, population=population, content=content))
    else:
        connection.execute(update(SECRETS).where(where).values(content=content))
    return {SECRET: _digest(kind, content)}


def write(connection: Connection, kind: str, secret: bytes, population: PopulationKey = NOBODY) -> None:
    """Store a secret with an entry of its own."""
    stage = f"{population or kind} {len(of_kinds(connection, kind, population=population)) + 1}"
    append(connection, kind, population, "", stage, None, put(connection, kind, population, secret))


def problems(connection: Connection, bound: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """List secrets that are gone, that no entry binds, or that another entry binds, as messages.

    Args:
      bound: digest in the latest entry of each kind and population.
    """
    held = {(row.kind, row.population): _digest(row.kind, row.content) for row in connection.execute(select(SECRETS))}
    for place in sorted(bound.keys() | held.keys(), key=str):
        if bound.get(place) != held.get(place):
            yield _fault(*place)


def _content(connection: Connection, kind: str, population: str) -> bytes | None:
    where = (SECRETS.c.kind == kind) & (SECRETS.c.population == population)
    return connection.execute(select(SECRETS.c.content).where(where)).scalar_one_or_none()


def _digest(kind: str, content: object) -> str:
    """Digest of a salt and a secret; empty for what SQLite may hold in a column of bytes and is none."""
    return hashlib.sha256(f"tacit {kind}\n".encode() + content).hexdigest() if isinstance(content, bytes) else ""


def _fault(kind: str, population: str) -> str:
    owner = f" of population {population!r}" if population else ""
    return f"the {KINDS.get(kind, kind)}{owner} is not the one that its entry binds"
