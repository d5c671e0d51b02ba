"""The ledger's database: where it is, how it is opened, one transaction at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, create_engine, event, exc
from sqlalchemy.engine import Engine, make_url

from pipeline.errors import LedgerMissing, LedgerTampered, ServiceUnavailable
from pipeline.ledger import schema


@contextmanager
def transaction(database: Engine) -> Iterator[Connection]:
    try:
        with database.begin() as connection:
            schema.serialise(connection)
            yield connection
    except exc.OperationalError as error:
        raise ServiceUnavailable(f"the privacy ledger's database does not answer: {error.orig}") from error
    except exc.DatabaseError as error:
        raise LedgerTampered(f"the privacy ledger cannot be read or written: {error.orig}; restore it") from error


def address(url: str) -> str:
    """Where a ledger is, for people: a file, or the URL without its password."""
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database
    return str(parsed.database) if is_file else parsed.render_as_string(hide_password=True)


def missing(where: str, receipts: int = 0) -> LedgerMissing:
    """No ledger at an address, and what to do about it.

    Args:
      receipts: that launches on this machine hold of one.
    """
    if receipts:
        return LedgerMissing(
            f"launches here hold {receipts} receipts of a privacy ledger that is not at {where}: a new one would "
            "forget what they spent. Restore it, or set TACIT_LEDGER_URL to where it is"
        )
    return LedgerMissing(
        f"there is no privacy ledger at {where}. If there was one, restore it from its backup. "
        "If this is a new installation, make it: tacit ledger init. If it is elsewhere, set TACIT_LEDGER_URL"
    )


def engine(url: str, *, make: bool = False) -> Engine:
    try:
        dialect = make_url(url).get_backend_name()
    except exc.ArgumentError as error:
        raise ValueError(
            "TACIT_LEDGER_URL: not a database URL; use sqlite:////absolute/path/ledger.db or "
            "postgresql+psycopg2://user:password@host/database"
        ) from error
    if dialect not in ("sqlite", "postgresql"):
        raise ValueError(f"TACIT_LEDGER_URL: {dialect!r} is not supported; use sqlite or postgresql")
    if dialect == "postgresql":
        return create_engine(url, pool_pre_ping=True)
    file = schema.sqlite_file(make_url(url).database)
    if make:
        schema.make_sqlite_file(file)
    if not file.is_file():
        raise missing(str(file))  # Connecting would make an empty database.
    made = create_engine(url, connect_args={"timeout": 60})
    event.listen(made, "connect", schema.sqlite_manual_transactions)
    event.listen(made, "begin", schema.sqlite_begin_immediate)
    return made
