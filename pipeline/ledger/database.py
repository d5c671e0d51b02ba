"""The ledger's database: open it, verify it, and write to it in one transaction at a time."""

import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Self

from sqlalchemy import Connection, create_engine, event, exc
from sqlalchemy.engine import Engine, make_url

from pipeline.ground import keys
from pipeline.ground.errors import LedgerMissing, LedgerNewer, LedgerTampered, PermanentError, ServiceUnavailable, lasts
from pipeline.ground.settings import Settings, database_address
from pipeline.ledger import budget, chain, entries, schema, sealed
from pipeline.ledger.entries import SECRET, Entry, Leaf
from pipeline.ledger.log.note import Inclusion, Signed
from pipeline.ledger.log.tiles import Log
from pipeline.ledger.migrations import versioning
from pipeline.ledger.outside import Known, Outside, is_successor
from pretrain.files import widened

_MOST_SHOWN = 8  # of problems, in an error


@contextmanager
def transaction(database: Engine) -> Iterator[Connection]:
    try:
        with database.begin() as connection:
            schema.serialise(connection)
            chain.forget(connection)
            yield connection
    except exc.OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:  # a column that is gone
            raise LedgerTampered(f"the privacy ledger was altered: {error.orig}; restore it from a backup") from error
        if lasts(error.orig):
            raise PermanentError(
                f"the privacy ledger's database may not be opened or written: {error.orig}; let the account that owns "
                "it run the command, or make its disk writable"
            ) from error
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


def missing(here: Settings) -> LedgerMissing:
    """Error for an address without a ledger, with the fix."""
    where, size = address(here.ledger_url), Log(here.log_dir).size
    if size:
        return LedgerMissing(
            f"{here.log_dir} is the log of a privacy ledger with {size} entries that is not at {where}: a "
            "new one would forget what they spent. Restore it, or set TACIT_LEDGER_URL to its address"
        )
    return none_at(where)


def none_at(where: str) -> LedgerMissing:
    """Error for an address without a ledger."""
    return LedgerMissing(
        f"there is no privacy ledger at {where}. If there was one, restore it from its backup. "
        "If this is a new installation, make it: tacit ledger init. If it is elsewhere, set TACIT_LEDGER_URL"
    )


def engine(url: str, *, make: bool = False) -> Engine:
    place = make_url(database_address("TACIT_LEDGER_URL", url))
    if place.get_backend_name() == "postgresql":
        return create_engine(place, pool_pre_ping=True)
    file = Path(str(place.database))
    if make:
        schema.make_sqlite_file(file)
    if not file.is_file():
        raise none_at(str(file))  # Connecting would make an empty database.
    if mode := widened(file):
        raise LedgerTampered(
            f"{file}: has mode {mode}, so other accounts may read its secrets or write to it; chmod 600 {file}, then "
            "tacit ledger verify"
        )
    made = create_engine(url, connect_args={"timeout": 60})
    event.listen(made, "connect", schema.sqlite_manual_transactions)
    event.listen(made, "begin", schema.sqlite_begin_immediate)
    return made


class WholeLedger:
    """The ledger behind a SQLAlchemy URL; SQLite and PostgreSQL are supported.

    Guarantee: nothing is written to a ledger that is not whole, that is behind a checkpoint of its log, or that a newer
    version has updated, even since it was opened.
    """

    def __init__(self, url: str, here: Settings | None = None) -> None:
        """Open the ledger, and add tables that an older version lacks.

        Args:
          here: the installation, whose keys sign what is written, and whose log it is held against; None opens the
            database alone, to be read.

        Raises:
          ValueError: the URL is not one of a supported database.
          LedgerMissing: there is no ledger at the URL.
          LedgerTampered: the database is damaged.
          LedgerNewer: a newer version has updated its tables.
          ServiceUnavailable: the database does not answer.
        """
        self._engine = engine(url)
        self._outside = Outside(here) if here else None
        self.address = address(url)
        with self.transaction() as connection:
            self._require_known_version(connection)
            versioning.upgrade(connection)

    @classmethod
    def of(cls, here: Settings) -> Self:
        """Open the installation's ledger; raises as ``__init__``."""
        return cls(here.ledger_url, here)

    @classmethod
    def create(cls, here: Settings) -> Self:
        """Make the installation's ledger and its keys if there is none, and open it."""
        keys.make(here)
        made = engine(here.ledger_url, make=True)
        with transaction(made) as connection:
            if versioning.version(connection) is None:
                versioning.upgrade(connection)
        made.dispose()
        return cls.of(here)

    def verify(self, anchors: Iterable[str] = ()) -> list[str]:
        """List problems of the ledger; an empty list means that it is whole.

        Args:
          anchors: entry hashes known from elsewhere, such as stage records; each must be in the ledger.
        """
        with self.transaction() as connection:
            return _problems(connection, self._outside, anchors=anchors)

    def require_whole(self, elsewhere: Mapping[str, str]) -> None:
        """Check that the ledger is whole, and is behind no checkpoint on this machine, elsewhere, or of the witness.

        Args:
          elsewhere: texts of checkpoints that are kept elsewhere, by place.

        Raises:
          LedgerTampered: it is not whole, or does not continue one of the checkpoints; restore it.
        """
        with self.writing(elsewhere):
            pass
        self.witnessed()

    def witnessed(self) -> str:
        """Have the witness cosign the log up to the last entry, and return the checkpoint, to be kept elsewhere.

        Raises:
          LedgerTampered: the witness has cosigned another log, or more of this one.
        """
        outside = self.outside_files()
        if outside.log.checkpoint() is None:
            self._extend(outside)
        return outside.witnessed()

    def inclusions(self, launch_id: str, hashes: Container[str]) -> dict[str, Inclusion]:
        """Prove that the log has entries of a launch, under a checkpoint that the witness cosigned.

        Args:
          hashes: of the entries; one that is not the launch's is left out.

        Returns:
          Proofs by hash, each with what may be shown of its entry.

        Raises:
          LedgerTampered, ServiceUnavailable: as ``witnessed``.
        """
        log, signed = self.outside_files().log, Signed.parsed(self.witnessed())
        with self.transaction() as connection:
            found = [entry for entry in chain.of_launch(connection, launch_id) if entry.hash in hashes]
        size = signed.checkpoint.size
        return {
            entry.hash: Inclusion(
                entry.seq - 1, tuple(log.inclusion(entry.seq - 1, size)), signed, entry.revealed.encode()
            )
            for entry in found
        }

    def verifier_keys(self) -> dict[str, list]:
        """Return the public keys of the log and of its witness, as other tools take them, and its rotations."""
        with self.transaction() as connection:
            rotated = [dict(entry.content) for entry in chain.rotations(connection, "witness")]
        return self.outside_files().verifier_keys | {"rotations": rotated}

    def checkpoint(self) -> str:
        """Return the log's checkpoint, which covers all entries, as text to keep elsewhere."""
        signed = self.outside_files().log.checkpoint()
        return signed.note if signed else ""

    def head(self) -> tuple[int, str]:
        """Number of entries, and the hash of the last one."""
        with self.transaction() as connection:
            count = chain.length(connection)
            return count, chain.hash_at(connection, count)

    def hash_at(self, seq: int) -> str:
        """Hash of the entry at a place, from 1; empty without one."""
        with self.transaction() as connection:
            return chain.hash_at(connection, seq)

    def bind_result(self, launch_id: str, stage: str, digest: str) -> str:
        """Record the digest of a finished stage's result, and return its receipt; repeating it is free."""
        with self.writing() as connection:
            return chain.bind_result(connection, launch_id, stage, digest)

    def bound_results(self, launch_id: str) -> dict[str, tuple[str, str]]:
        """Digest and receipt of the latest result of each stage of a launch."""
        with self.transaction() as connection:
            return chain.latest_results(connection, launch_id)

    def all_bound_results(self) -> dict[tuple[str, str], str]:
        """Digest of the latest result of each stage of every launch, by launch and stage."""
        with self.transaction() as connection:
            return chain.latest_results_of_all(connection)

    def holds_digest(self, digest: str) -> bool:
        """True if the ledger ever recorded a digest, as of a bundle."""
        with self.transaction() as connection:
            return chain.holds_result(connection, digest)

    @contextmanager
    def writing(
        self, elsewhere: Mapping[str, str] = MappingProxyType({}), *, any_witness: bool = False
    ) -> Iterator[Connection]:
        """Begin a writing transaction: check the ledger before it, and extend the log by its entries after it.

        Args:
          any_witness: allow another witness than the registered one, to register it.
        """
        outside = self.outside_files()
        with self.transaction() as connection:
            self._require_known_version(connection)
            known = outside.parsed(elsewhere)
            if found := _problems(connection, outside, known, thorough=False, any_witness=any_witness):
                shown = "; ".join(found[:_MOST_SHOWN]) + ("; ..." if len(found) > _MOST_SHOWN else "")
                raise LedgerTampered(f"the privacy ledger was altered: {shown}. Restore it from a backup")
            chain.sign_with(connection, outside.signer, chain.keys(connection, outside.first_key))
            yield connection
            count = chain.length(connection)
        if count > outside.log.size:
            self._extend(outside)

    def outside_files(self) -> Outside:
        if self._outside is None:
            raise ValueError(f"{self.address}: opened to be read; open the installation's ledger to write to it")
        return self._outside

    def _extend(self, outside: Outside) -> None:
        """Bring the log up to the ledger."""
        with outside.log.writing():
            with self.transaction() as connection:
                new, valid = chain.leaves(connection, outside.log.size), chain.keys(connection, outside.first_key)
            outside.extend(new, valid)

    def _require_known_version(self, connection: Connection) -> None:
        version = versioning.version(connection)
        if version is None:
            raise none_at(self.address)
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


def _other_witness(entries: Sequence[Entry], here: str) -> list[str]:
    """List populations that were registered with another witness than the one whose key is here, as messages.

    Args:
      entries: registrations and rotations, in order.
    """
    rotated = [entry.content for entry in entries if (entry.kind, entry.names("role")) == ("key", "witness")]
    found = []
    for name in sorted({entry.population for entry in entries if entry.kind in budget.REGISTRATION}):
        owned = budget.registered(entries, name)
        if owned and owned.rules.witness and not is_successor(here, owned.rules.witness, rotated):
            found.append(
                f"population {name!r} was registered with the witness {owned.rules.witness[:16]}, and the one here is "
                f"{here[:16]}: restore witness-N.pub.pem in TACIT_KEYS, and TACIT_WITNESS; or, if its keeper replaced "
                f"it, let {' or '.join(owned.raised_by)} say so: tacit ledger budget {name} --witness --reason ..."
            )
    return found


def _problems(
    connection: Connection,
    outside: Outside | None,
    elsewhere: Sequence[Known] = (),
    anchors: Iterable[str] = (),
    *,
    thorough: bool = True,
    any_witness: bool = False,
) -> list[str]:
    """List the problems of the ledger, as messages.

    Args:
      outside: None leaves out signatures and the log.
      elsewhere: checkpoints that are kept elsewhere.
      anchors: hashes of entries that must be there.
      thorough: hold every secret against its entry, which is otherwise done where one is read, and verify the
        signatures of entries that a witnessed checkpoint covers.
      any_witness: see ``writing``.
    """
    held, bound, named = list[Leaf](), dict[tuple[str, str], str](), list[Entry]()

    def read() -> Iterator[Entry]:
        for entry in chain.walk(connection):
            held.append(Leaf(entry.seq, entry.hash, entry.signature))
            if entry.kind in sealed.KINDS:
                bound[entry.kind, entry.population] = entry.names(SECRET)
            if entry.kind in (*budget.REGISTRATION, "key"):
                named.append(entry)
            yield entry

    found = entries.problems_of(read()) + schema.trigger_problems(connection)
    if thorough:
        found += sealed.problems(connection, bound)
        unknown = sorted(set(anchors) - {leaf.hash for leaf in held})
        found += [f"entry {anchor[:12]} is recorded by a launch but not in the ledger" for anchor in unknown]
    if outside is not None:
        found += outside.problems(held, elsewhere, chain.keys(connection, outside.first_key), thorough=thorough)
        # An altered registration may not be readable.
        found += [] if found or any_witness else _other_witness(named, outside.witness_key)
    return found
