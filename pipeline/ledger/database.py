"""The ledger's database: open it, verify it, and write to it in one transaction at a time."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

from sqlalchemy import Connection, create_engine, event, exc
from sqlalchemy.engine import Engine, make_url

from pipeline.ground.errors import LedgerMissing, LedgerNewer, LedgerTampered, ServiceUnavailable
from pipeline.ground.settings import Settings
from pipeline.ledger import receipts, results, schema, triggers
from pipeline.ledger.chain import Ends, ends, forget, lacks, problems_of, require_whole, written
from pipeline.ledger.last_check import LastCheck, State
from pipeline.ledger.migrations import versioning
from pipeline.ledger.receipts import ChainEntry, Receipt, Receipts


@contextmanager
def transaction(database: Engine) -> Iterator[Connection]:
    try:
        with database.begin() as connection:
            schema.serialise(connection)
            forget(connection)
            yield connection
    except exc.OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:  # a column that is gone
            raise LedgerTampered(f"the privacy ledger was altered: {error.orig}; restore it from a backup") from error
        raise ServiceUnavailable(f"the privacy ledger's database does not answer: {error.orig}") from error
    except exc.DatabaseError as error:
        raise LedgerTampered(f"the privacy ledger cannot be read or written: {error.orig}; restore it") from error
    except exc.MultipleResultsFound as error:
        raise LedgerTampered(
            "the privacy ledger was altered: a row that is there once stands twice; restore it"
        ) from error


def address(url: str) -> str:
    """Address of a ledger for messages: a file, or the URL without its password."""
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database
    return str(parsed.database) if is_file else parsed.render_as_string(hide_password=True)


def missing(where: str, receipts: int = 0) -> LedgerMissing:
    """Error for an address without a ledger, with the fix.

    Args:
      receipts: number of receipts of a ledger that launches on this machine hold.
    """
    if receipts:
        return LedgerMissing(
            f"launches here hold {receipts} receipts of a privacy ledger that is not at {where}: a new one would "
            "forget what they spent. Restore it, or set TACIT_LEDGER_URL to its address"
        )
    return LedgerMissing(
        f"there is no privacy ledger at {where}. If there was one, restore it from its backup. "
        "If this is a new installation, make it: tacit ledger init. If it is elsewhere, set TACIT_LEDGER_URL"
    )


def engine(url: str, *, make: bool = False) -> Engine:
    try:
        place = make_url(url)
    except exc.ArgumentError as error:
        raise ValueError(
            "TACIT_LEDGER_URL: not a database URL; use sqlite:////absolute/path/ledger.db or "
            "postgresql://user:password@host/database"
        ) from error
    dialect = place.get_backend_name()
    if dialect in ("postgresql", "postgres"):
        # Whatever driver the address names: one is installed.
        return create_engine(place.set(drivername="postgresql+psycopg2"), pool_pre_ping=True)
    if dialect != "sqlite":
        raise ValueError(f"TACIT_LEDGER_URL: {dialect!r} is not supported; use sqlite or postgresql")
    file = schema.sqlite_file(place.database)
    if make:
        schema.make_sqlite_file(file)
    if not file.is_file():
        raise missing(str(file))  # Connecting would make an empty database.
    made = create_engine(url, connect_args={"timeout": 60})
    event.listen(made, "connect", schema.sqlite_manual_transactions)
    event.listen(made, "begin", schema.sqlite_begin_immediate)
    return made


class WholeLedger:
    """The ledger behind a SQLAlchemy URL; SQLite and PostgreSQL are supported.

    Guarantee: nothing is written to a ledger that is not whole, that is behind a receipt, or that a newer version has
    updated, even since it was opened.
    """

    def __init__(self, url: str, outside: Receipts | None = None) -> None:
        """Open the ledger, and add tables that an older version lacks.

        Args:
          outside: receipts outside the database, and beside them the last check; None checks the database alone,
            whole before every write.

        Raises:
          ValueError: the URL is not one of a supported database.
          LedgerMissing: there is no ledger at the URL.
          LedgerTampered: the database is damaged.
          LedgerNewer: a newer version has updated its tables.
          ServiceUnavailable: the database does not answer.
        """
        self._engine = engine(url)
        self._receipts = outside
        self._last_check = LastCheck(outside.root) if outside else None
        self.address = address(url)
        with self.transaction() as connection:
            self._require_known_version(connection)
            versioning.upgrade(connection)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Open the installation's ledger, checked against the receipts on this machine; raises as ``__init__``."""
        return cls(settings.ledger_url, Receipts(settings.runs_dir))

    @classmethod
    def create(cls, url: str) -> Self:
        """Make the ledger if there is none, and open it."""
        made = engine(url, make=True)
        with transaction(made) as connection:
            if versioning.version(connection) is None:
                versioning.upgrade(connection)
        made.dispose()
        return cls(url)

    def verify(self, anchors: Iterable[str] = ()) -> list[str]:
        """List problems of the ledger; an empty list means that it is whole.

        Args:
          anchors: entry hashes known from elsewhere, such as stage records; each must be in the chain.
        """
        with self.transaction() as connection:
            return problems_of(connection, anchors, self._receipts.read() if self._receipts else ())

    def require_whole(self, elsewhere: Mapping[str, str]) -> None:
        """Check that the ledger is whole, and is behind no receipt on this machine or elsewhere.

        Args:
          elsewhere: texts of ``heads`` that are kept elsewhere, by place.

        Raises:
          LedgerTampered: it is not whole, or lacks an entry of a receipt; restore it.
        """
        with self.writing(receipts.by_place(elsewhere)):
            pass

    def heads(self) -> str:
        """Receipts of the last entries, which cover all earlier ones, as text to keep elsewhere."""
        with self.transaction() as connection:
            last = ends(connection)
            return receipts.heads(written(connection, Ends(last.entries - 1, last.results - 1)))

    def head(self) -> tuple[int, str]:
        """Number of entries, and the hash of the last one."""
        with self.transaction() as connection:
            return schema.read_head(connection)

    def bind_result(self, launch_id: str, stage: str, digest: str) -> str:
        """Record the digest of a finished stage's result, and return its receipt; repeating it is free."""
        with self.writing() as connection:
            return results.write(connection, launch_id, stage, digest)

    def bound_results(self, launch_id: str) -> dict[str, tuple[str, str]]:
        """Digest and receipt of the latest result of each stage of a launch."""
        with self.transaction() as connection:
            return results.latest(connection, launch_id)

    def all_bound_results(self) -> dict[tuple[str, str], str]:
        """Digest of the latest result of each stage of every launch, by launch and stage."""
        with self.transaction() as connection:
            return results.latest_of_all(connection)

    def holds_digest(self, digest: str) -> bool:
        """True if the ledger ever recorded a digest, as of a bundle."""
        with self.transaction() as connection:
            return results.holds(connection, digest)

    @contextmanager
    def writing(self, elsewhere: Sequence[Receipt] = ()) -> Iterator[Connection]:
        """Begin a writing transaction: check the ledger before it, and write receipts of its entries after it."""
        state = None
        with self.transaction() as connection:
            self._require_known_version(connection)
            without = self._checked(connection, elsewhere)
            before = ends(connection)
            yield connection
            new = written(connection, before)
            if self._last_check:
                state = State.of(connection, wrote=bool(new))
        if self._receipts and self._last_check and state:
            self._receipts.keep([*without, *new])
            self._remember(state)

    def _remember(self, state: State) -> None:
        """Keep the state in which a transaction left the database."""
        assert self._last_check is not None
        if state.complete:
            self._last_check.keep(state)
            return
        with self.transaction() as connection:
            now = State.of(connection)
        # Another process may have written in between: its own check counts.
        if now.versions == state.versions:
            self._last_check.keep(now)

    def _checked(self, connection: Connection, elsewhere: Sequence[Receipt]) -> list[ChainEntry]:
        """Check that the ledger is whole; return its entries without a receipt."""
        if (
            self._last_check
            and self._last_check.holds(connection)
            and not (triggers.problems(connection) or lacks(connection, elsewhere))
        ):
            return []
        outside = self._receipts.read() if self._receipts else []
        require_whole(connection, (), [*outside, *elsewhere])
        return receipts.missing(outside, written(connection))

    def _require_known_version(self, connection: Connection) -> None:
        version = versioning.version(connection)
        if version is None:
            raise missing(self.address)
        if version in versioning.REVISIONS:
            return
        known = f"this tacit knows versions up to {versioning.REVISIONS[-1]}"
        if version.isdecimal() and int(version) > int(versioning.REVISIONS[-1]):
            raise LedgerNewer(
                f"the privacy ledger {self.address} has tables of version {version}, and {known}: a newer tacit has "
                "updated it; update tacit here, then run the command again"
            )
        raise LedgerTampered(
            f"the privacy ledger {self.address} has tables of version {version}, and {known}; restore it from a backup"
        )

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Begin a transaction that excludes all others, of any process and machine."""
        with transaction(self._engine) as connection:
            yield connection
