"""``PrivacyLedger``: the spends of every launch on every population, append-only.

Guarantee: with all writers going through this class, what one device of a population loses (``loss.added`` of what
was reserved, or of what was committed in its place) never passes the ceilings named at the reservation, for ever or in
any window of days (``budget``), as long as no stage spends more than it reserved (if one does, that is recorded, and
nothing more can be reserved). A reservation counts as spent from the moment it is written, before any noise is drawn,
also if the launch dies. zCDP composes by addition over launches (Bun & Steinke 2016, lemma 1.7).

Launches choose their parameters as they go, by the results of earlier ones, so each ceiling is a privacy filter (Rogers
et al. 2016, *Privacy Odometers and Filters*): a spend that would pass one is refused, and the ceiling never moves.

- Rho, by noise: every noised release is a Gaussian mechanism of mu^2 = 2 rho, and the sum of mu^2 is a filter for
  Gaussian DP (Smith & Thakurta 2022, *Fully Adaptive Composition for Gaussian Differential Privacy*; as zCDP: Feldman &
  Zrnic 2021, *Individual Privacy Accounting via a Renyi Filter*), so the exact curve holds at the ceiling.
- Epsilon of a device to words found locally: sums of epsilons and deltas are a filter (Rogers et al. 2016, basic
  composition). Failures of noised releases add to the same sum of deltas (union bound).
- Both together: each filter is one interactive mechanism, and a launch that chooses between words and noise by what it
  saw composes the two concurrently, which costs what composition in sequence does (Haney et al. 2023, *Concurrent
  Composition for Interactive Differential Privacy with Adaptive Privacy-Loss Parameters*). So ``Budget.epsilon`` holds:
  epsilons add up, and so do deltas.

A ceiling on total epsilon itself is no filter, as its terms trade at a rate that depends on what was spent: a launch
that chooses between words and noise by an output loses more (``tests/pipeline/ledger/test_filter.py``). Epsilons of
typed words have a ceiling of their own beside these; no sum of one unit joins another's.

Each entry holds the SHA-256 of its own canonical JSON, is signed by the ledger's key, and is a leaf of a transparency
log outside the database (``outside``), whose tree commits to their order. Results of stages, registrations, keys and
reviewers are entries too; secrets are beside them, bound by entries (``rows``). Triggers refuse updates, deletions,
and insertions but at the end. ``verify`` finds changes that bypassed them and entries that nobody signed; the log,
its witness and MLflow expose a ledger that was rewritten with its key, or reset to an earlier state. Nothing is written
to a ledger that is not whole, or that is behind any of their checkpoints, and there is no cache of that check.

A ledger is created on purpose (``PrivacyLedger.create``, `tacit ledger init`): a missing ledger is an error, never an
empty one. A population has a budget once it is registered, and a launch can only ask for less.
"""

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Self

from sqlalchemy import Connection

from federated.config.population import PopulationKey, is_simulation
from federated.devices.withdrawals import Withdrawals
from pipeline.ground import keys
from pipeline.ground.errors import LedgerConflict, LedgerNewer, LedgerTampered, PopulationUnknown
from pipeline.ground.keys import Role
from pipeline.ground.settings import Settings
from pipeline.ledger import budget as budgets
from pipeline.ledger import database, entries, reviewers, rows
from pipeline.ledger.budget import (
    NO_RULES,
    REGISTRATION,
    Budget,
    Population,
    Rules,
    SpendRequest,
    require_once,
    require_room,
)
from pipeline.ledger.entries import AS_OF, DIGEST, NO_UNIT, SECRET, SPLIT_RULE, WITNESS, Entry, Leaf, Spend, canonical
from pipeline.ledger.log.note import Inclusion, Signed
from pipeline.ledger.loss import Unit, most_in_any, releases
from pipeline.ledger.migrations import versioning
from pipeline.ledger.outside import Known, Outside, is_successor, rotation_text
from pipeline.ledger.reviewers import AnswerKeys
from pretrain.randomness.entropy import fresh_bytes

Content = Mapping[str, object]
_MOST_SHOWN = 8  # of problems, in an error
_SECRET_BYTES = 32


class PrivacyLedger:
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
        self._engine = database.engine(url)
        self._outside = Outside(here) if here else None
        self.address = database.address(url)
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
        made = database.engine(here.ledger_url, make=True)
        with database.transaction(made) as connection:
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
            found = [entry for entry in rows.of_launch(connection, launch_id) if entry.hash in hashes]
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
            rotated = [dict(entry.content) for entry in rows.rotations(connection, "witness")]
        return self.outside_files().verifier_keys | {"rotations": rotated}

    def checkpoint(self) -> str:
        """Return the log's checkpoint, which covers all entries, as text to keep elsewhere."""
        signed = self.outside_files().log.checkpoint()
        return signed.note if signed else ""

    def head(self) -> tuple[int, str]:
        """Number of entries, and the hash of the last one."""
        with self.transaction() as connection:
            count = rows.length(connection)
            return count, rows.hash_at(connection, count)

    def hash_at(self, seq: int) -> str:
        """Hash of the entry at a place, from 1; empty without one."""
        with self.transaction() as connection:
            return rows.hash_at(connection, seq)

    def bind_result(self, launch_id: str, stage: str, digest: str) -> str:
        """Record the digest of a finished stage's result, and return its receipt; repeating it is free."""
        with self.writing() as connection:
            return rows.bind_result(connection, launch_id, stage, digest)

    def bound_results(self, launch_id: str) -> dict[str, tuple[str, str]]:
        """Digest and receipt of the latest result of each stage of a launch."""
        with self.transaction() as connection:
            return rows.latest_results(connection, launch_id)

    def all_bound_results(self) -> dict[tuple[str, str], str]:
        """Digest of the latest result of each stage of every launch, by launch and stage."""
        with self.transaction() as connection:
            results = rows.selected(connection, rows.IS_RESULT)
        return {(entry.launch_id, entry.stage): entry.names(DIGEST) for entry in results}

    def holds_digest(self, digest: str) -> bool:
        """True if the ledger ever recorded a digest, as of a bundle."""
        where = rows.IS_RESULT & (database.ENTRIES.c.binding == canonical({DIGEST: digest}))
        with self.transaction() as connection:
            return bool(rows.selected(connection, where))

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
            rows.sign_with(connection, outside.signer, rows.keys(connection, outside.first_key))
            yield connection
            count = rows.length(connection)
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
                new, valid = rows.leaves(connection, outside.log.size), rows.keys(connection, outside.first_key)
            outside.extend(new, valid)

    def _require_known_version(self, connection: Connection) -> None:
        version = versioning.version(connection)
        if version is None:
            raise database.none_at(self.address)
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
        with database.transaction(self._engine) as connection:
            yield connection

    def register(
        self, key: PopulationKey, budget: Budget, by: str, raised_by: Iterable[str] = (), rules: Rules = NO_RULES
    ) -> Population:
        """Register a population with its budget and its split secret, once; repeating the same call is free.

        Args:
          by: the account that registers, or the launch file of a simulation.
          raised_by: accounts that may change the budget and the rules; by default ``by``.

        Raises:
          LedgerConflict: it is registered with another budget, other rules or other people.
          LedgerTampered: the ledger cannot be relied on.
        """
        with self.writing() as connection:
            accounts = tuple(sorted(set(raised_by))) or (by,)
            if not is_simulation(key):
                rules = rules.model_copy(update={"witness": self.outside_files().witness_key})
            old = budgets.registered(rows.entries_of(connection, key), key)
            if old is not None:
                rules = rules.model_copy(update={"witness": old.rules.witness})  # It may have been rotated since.
                if (old.budget, old.rules, old.raised_by) != (budget, rules, accounts):
                    raise LedgerConflict(
                        f"population {key!r}: registered by {old.registered_by} with rho {old.budget.max_rho:g}; "
                        f"{' or '.join(old.raised_by)} may change that: tacit ledger budget {key}"
                    )
                return old
            # A simulation protects no one, and its secret is a function of its key so that runs repeat anywhere.
            repeatable = hashlib.sha256(f"tacit split secret of {key}".encode()).digest()
            secret, salt = (repeatable, repeatable) if is_simulation(key) else (fresh_bytes(_SECRET_BYTES), None)
            made = Population(
                key=key,
                budget=budget,
                rules=rules,
                raised_by=accounts,
                registered_by=by,
                **rows.put_secret(connection, "register", key, secret, salt),
            )
            rows.append(connection, "register", key, "", key, None, made.model_dump(mode="json"))
            return made

    def change_budget(
        self,
        key: PopulationKey,
        budget: Budget,
        by: str,
        reason: str,
        rules: Rules | None = None,
        *,
        replace_witness: bool = False,
    ) -> Population:
        """Replace a population's budget and rules; None for ``rules`` leaves them as they are.

        Args:
          replace_witness: register the witness whose key is here now.

        Raises:
          PopulationUnknown: it is not registered.
          LedgerConflict: ``by`` may not change the budget, or the reason is empty.
        """
        with self.writing(any_witness=replace_witness) as connection:
            if not reason.strip():
                raise LedgerConflict(f"population {key!r}: say why its budget changes: --reason ...")
            population = rows.population(connection, key)
            if by not in population.raised_by:
                raise LedgerConflict(
                    f"population {key!r}: its budget may be changed by {' or '.join(population.raised_by)}, not by {by}"
                )
            witness = self.outside_files().witness_key if replace_witness else population.rules.witness
            rules = (rules or population.rules).model_copy(update={"witness": witness})
            if rules.case_sensitive_ids != population.rules.case_sensitive_ids:
                raise LedgerConflict(
                    f"population {key!r}: --case-sensitive-ids is fixed at the registration, as devices are counted "
                    "by it"
                )
            change = {"budget": budget.model_dump(), "rules": rules.model_dump(mode="json"), "by": by, "reason": reason}
            rows.append_numbered(connection, "budget", key, change)
            return population.model_copy(update={"budget": budget, "rules": rules})

    def registered(self, key: PopulationKey) -> Population | None:
        """Return a population; None if it is not registered."""
        with suppress(PopulationUnknown):
            return self.population(key)
        return None

    def population(self, key: PopulationKey) -> Population:
        """Return a registered population.

        Raises:
          PopulationUnknown: it is not registered.
        """
        with self.transaction() as connection:
            return rows.population(connection, key)

    def register_reviewer(self, key: PopulationKey, account: str, public: str, by: str) -> Entry:
        """Register a reviewer's public key for launches on a population; repeating the same call is free.

        Guarantee: answers given before keep the reviewer's earlier key. In a simulation each account may register its
        own key.

        Args:
          account: the reviewer's name in the operating system.
          public: 64 hexadecimal digits.

        Raises:
          PopulationUnknown: people that are not registered.
          LedgerConflict: ``by`` may not change the budget, or ``public`` is no key or that of another reviewer.
        """
        with self.writing() as connection:
            found = rows.of_kinds(connection, *REGISTRATION, reviewers.KIND, population=key)
            old = reviewers.require_new(found, key, account, public, by)
            stated = {"account": account, "public": public, "by": by}
            return old or rows.append_numbered(connection, reviewers.KIND, key, stated)

    def answer_keys(self, key: PopulationKey) -> AnswerKeys:
        """Return the public keys that sign answers about launches on a population.

        Raises:
          KeyUnusable: the installation's own public key for answers is missing or damaged.
        """
        first = self.outside_files().first_of_answers
        with self.transaction() as connection:
            found = rows.of_kinds(connection, *REGISTRATION, reviewers.KIND, population=key)
            return AnswerKeys(reviewers.in_force(found, key), rows.keys(connection, first, "answers"))

    def split_secret(self, key: PopulationKey) -> bytes:
        """Secret that decides the split of a population's devices: 32 bytes, the same for all its launches.

        Raises:
          PopulationUnknown: it is not registered.
          LedgerTampered: the secret is not the one that was drawn at the registration.
        """
        with self.transaction() as connection:
            return rows.split_secret(connection, key)

    def withdraw(self, key: PopulationKey, device_ids: Iterable[str]) -> Withdrawals:
        """Exclude devices from a population permanently; repeating the same call is free.

        Guarantee: the ledger holds no device id, and no entry says who withdrew or how many did. A list that was cut or
        changed is refused, so an edit of the database cannot undo a withdrawal.

        Raises:
          PopulationUnknown: it is not registered.
          LedgerTampered: the ledger cannot be relied on.
        """
        with self.writing() as connection:
            before = rows.withdrawn(connection, key)
            hashes = before.hashes | set(map(before.hashed, device_ids))
            if hashes != before.hashes:
                rows.write_secret(connection, "withdrawal", bytes.fromhex("".join(sorted(hashes))), key)
            return replace(before, hashes=frozenset(hashes))

    def withdrawn(self, key: PopulationKey) -> Withdrawals:
        """Return the devices that are excluded from a population; raises as ``split_secret``."""
        with self.transaction() as connection:
            return rows.withdrawn(connection, key)

    def bind_devices(self, key: PopulationKey, device_ids: Iterable[str]) -> None:
        """Record which devices a population has, and refuse devices of another population.

        Guarantee: a device spends from one budget, under any name of its population in a launch file, up to the
        share that two populations may honestly have in common (``devices.MOST_SHARED``). None is in a simulation and
        among people, and those of a simulation never change, so people's text cannot join one.

        Raises:
          PopulationUnknown: it is not registered.
          BudgetExceeded: the devices are those of another population, or not those of the simulation.
        """
        from pipeline.ledger import devices  # numpy, which no other use of the ledger needs

        with self.writing() as connection:
            devices.bind(connection, key, device_ids)

    def reserve(
        self,
        *,
        population: PopulationKey,
        launch_id: str,
        stage: str,
        spend: Spend,
        asked: budgets.Ceilings,
        binding: Mapping[str, str],
    ) -> Entry:
        """Reserve a spend before it happens; repeating the same reservation is free.

        Args:
          asked: the launch file's own ceilings, checked beside those of the budget.

        Raises:
          PopulationUnknown: the population is not registered.
          BudgetExceeded: no room is left, the launch asks for more than the registered budget, or its date has spent.
          LedgerConflict: this stage of this launch already reserved something else, or another one has its key.
          LedgerTampered: the ledger cannot be relied on.
          PermanentError: the clock is far ahead of the population's last entry.
        """
        with self.writing() as connection:
            old = rows.standing_reservation(connection, launch_id, stage)
            if old:
                rows.require_same(old, population, spend, binding)
                return old
            rows.require_own_key(connection, launch_id, stage, binding)
            entries = rows.entries_of(connection, population)
            registered = budgets.require_registered(entries, population)
            binding = {**binding, WITNESS: registered.rules.witness} if registered.rules.witness else binding
            budgets.require_no_more(registered, asked)
            require_once(entries, population, launch_id)
            request = SpendRequest(population, launch_id, binding.get(SPLIT_RULE, ""), binding.get(AS_OF, ""))
            require_room(entries, request, spend, budgets.ceilings(registered, asked))
            kind = rows.numbered(connection, "reserve", launch_id, stage)
            return rows.append(connection, kind, population, launch_id, stage, spend, binding)

    def release(self, launch_id: str, stage: str, reason: str) -> Entry | None:
        """Give back the reservation of a stage that refused before any device took part; None if there is none.

        Guarantee: a committed spend is never given back; the runner ensures that no device has contributed to a
        reservation that is, and the entry states the reason. The stage may reserve again.
        """
        with self.writing() as connection:
            reserved = rows.standing_reservation(connection, launch_id, stage)
            if reserved is None or rows.find(connection, launch_id, stage, "commit"):
                return None
            nothing = reserved.spend.model_copy(
                update={"rho": None if reserved.rho is None else 0.0, "epsilon": 0.0, "delta": 0.0}
                | {"failure": 0.0, "messages": 0, "device_epsilon": 0.0, "device_delta": 0.0, "note": reason}
            )
            kind, binding = rows.numbered(connection, "release", launch_id, stage), json.loads(reserved.binding)
            return rows.append(connection, kind, reserved.population, launch_id, stage, nothing, binding)

    def note(self, kind: str, population: PopulationKey, launch_id: str, stage: str, content: Content) -> Entry:
        """Record a fact that spends nothing; repeating the same call is free.

        Raises:
          LedgerConflict: the ledger holds another fact in its place.
          LedgerTampered: the ledger cannot be relied on.
        """
        with self.writing() as connection:
            old = rows.find(connection, launch_id, stage, kind)
            if old is None:
                return rows.append(connection, kind, population, launch_id, stage, None, content)
            if old.binding != canonical(dict(content)):
                raise LedgerConflict(f"{launch_id}: the ledger holds another {kind} of {stage}: {old.binding}")
            return old

    def noted(self, kind: str, launch_id: str, stage: str) -> Entry | None:
        """Return the entry that ``note`` wrote; None if there is none."""
        with self.transaction() as connection:
            return rows.find(connection, launch_id, stage, kind)

    def reserved(self, launch_id: str, stage: str) -> Entry | None:
        """Return a stage's reservation, committed or not; None if there is none, or it was given back."""
        with self.transaction() as connection:
            return rows.standing_reservation(connection, launch_id, stage)

    def attempt(
        self, population: PopulationKey, launch_id: str, stage: str, family: Content, *, write: bool = True
    ) -> int:
        """Return a launch's attempt number, from 1, at the same comparison on the same held-out devices.

        Guarantee: an attempt is recorded before it reads a device, and stays: neither a deleted run nor another
        launch id removes it. A retry of the same launch is the same attempt.

        Args:
          family: identifies the comparison: feature, locale and baseline.
          write: False only counts, so that a finished launch can be derived again.

        Raises:
          LedgerTampered: the ledger cannot be relied on.
        """
        with self.writing() as connection:
            asked = [
                entry.launch_id
                for entry in rows.entries_of(connection, population)
                if (entry.does, entry.stage) == ("attempt", stage) and entry.binding == canonical(dict(family))
            ]
            if launch_id not in asked and write:
                kind = rows.numbered(connection, "attempt", launch_id, stage)
                rows.append(connection, kind, population, launch_id, stage, None, family)
            return asked.index(launch_id) + 1 if launch_id in asked else len(asked) + 1

    def commit(self, launch_id: str, stage: str, spend: Spend) -> Entry:
        """Replace a reservation's amount by the actual spend; repeating the same commit is free.

        The ledger records a spend above its reservation as it happened; the launch's gates then
        refuse the launch.

        Raises:
          LedgerConflict: nothing was reserved, or another amount was committed.
        """
        with self.writing() as connection:
            reserved = rows.standing_reservation(connection, launch_id, stage)
            if reserved is None:
                raise LedgerConflict(f"{launch_id}/{stage}: nothing was reserved; reserve before any noise is drawn")
            binding = json.loads(reserved.binding)
            old = rows.find(connection, launch_id, stage, "commit")
            if old:
                rows.require_same(old, reserved.population, spend, binding)
                return old
            if (spend.unit, spend.adjacency, spend.split) != (reserved.unit, reserved.adjacency, reserved.split):
                raise LedgerConflict(
                    f"{launch_id}/{stage}: reserved per {reserved.unit} ({reserved.adjacency}, {reserved.split}), "
                    f"committed per {spend.unit} ({spend.adjacency}, {spend.split}); the two cannot replace each other"
                )
            return rows.append(connection, "commit", reserved.population, launch_id, stage, spend, binding)

    def entries(self, population: PopulationKey | None = None) -> list[Entry]:
        """Return all entries in order but results of stages, or those of one population."""
        with self.transaction() as connection:
            return rows.entries_of(connection, population)

    def entries_of_launch(self, launch_id: str) -> list[Entry]:
        """Return the entries of a launch, in order."""
        with self.transaction() as connection:
            return rows.of_launch(connection, launch_id)

    def entries_of_kind(self, kind: str) -> list[Entry]:
        """Return the entries of a kind that bears no number, in order."""
        with self.transaction() as connection:
            return rows.of_kinds(connection, kind)

    def spends(self) -> list[Entry]:
        """Return the entries that spend, in order."""
        return [entry for entry in self.entries() if entry.unit != NO_UNIT]

    def total(self, population: PopulationKey, unit: Unit = "device", days: int | None = None) -> float:
        """Largest loss of one unit, on a population, in any window of ``days`` days; None for all time."""
        return most_in_any(releases(self.entries(population), population, unit), days)


def rotate(here: Settings, role: Role) -> Entry:
    """Replace the key of a role, and return the entry that names the new one; after a crash, the same rotation goes on.

    Guarantee: the old private key stays until the new one, which the ledger names, may sign.

    Raises:
      KeyUnusable: the old private key is missing or damaged, as that of a witness that is elsewhere.
      LedgerTampered: the ledger cannot be relied on.
    """
    ledger, folder = PrivacyLedger.of(here), keys.folder_of(here, role)
    old, number = keys.signer(here, role), len(keys.public_keys(here, role)) + 1
    public = keys.begin(folder, role).keyval["public"]
    signature = old.sign(rotation_text(role, number, public)).signature
    content = {"role": role, "number": number, "public": public, "signature": signature}
    entry = ledger.note("key", PopulationKey(""), "", f"{role} {number}", content)
    keys.activate(folder, role)
    keys.share(here)
    PrivacyLedger.of(here).witnessed()
    return entry


def _other_witness(entries: Sequence[Entry], here: str) -> list[str]:
    """List populations that were registered with another witness than the one whose key is here, as messages.

    Args:
      entries: registrations and rotations, in order.
    """
    rotated = [entry.content for entry in entries if (entry.kind, entry.names("role")) == ("key", "witness")]
    found = []
    for name in sorted({entry.population for entry in entries if entry.kind in REGISTRATION}):
        owned = budgets.registered(entries, name)
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
        for entry in rows.walk(connection):
            held.append(Leaf(entry.seq, entry.hash, entry.signature))
            if entry.kind in rows.SECRETS_OF:
                bound[entry.kind, entry.population] = entry.names(SECRET)
            if entry.kind in (*REGISTRATION, "key"):
                named.append(entry)
            yield entry

    found = entries.problems_of(read()) + database.trigger_problems(connection)
    if thorough:
        found += rows.secret_problems(connection, bound)
        unknown = sorted(set(anchors) - {leaf.hash for leaf in held})
        found += [f"entry {anchor[:12]} is recorded by a launch but not in the ledger" for anchor in unknown]
    if outside is not None:
        found += outside.problems(held, elsewhere, rows.keys(connection, outside.first_key), thorough=thorough)
        # An altered registration may not be readable.
        found += [] if found or any_witness else _other_witness(named, outside.witness_key)
    return found
