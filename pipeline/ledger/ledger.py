"""``PrivacyLedger``: the spends of every launch on every population, append-only.

Guarantee: with all writers going through this class, what one device of a population loses (``loss.added`` of what
was reserved, or of what was committed in its place) never passes the ceilings named at the reservation, for ever or in
any window of days (``room``), as long as no stage spends more than it reserved (if one does, that is recorded, and
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
reviewers are entries too; secrets are beside them, bound by entries (``sealed``). Triggers refuse updates, deletions,
and insertions but at the end. ``verify`` finds changes that bypassed them and entries that nobody signed; the log,
its witness and MLflow expose a ledger that was rewritten with its key, or reset to an earlier state. Nothing is written
to a ledger that is not whole, or that is behind any of their checkpoints, and there is no cache of that check.

A ledger is created on purpose (``PrivacyLedger.create``, `tacit ledger init`): a missing ledger is an error, never an
empty one. A population has a budget once it is registered, and a launch can only ask for less.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from federated.config.population import PopulationKey, is_simulation
from pipeline.ground import keys
from pipeline.ground.errors import LedgerConflict
from pipeline.ground.keys import Role
from pipeline.ground.settings import Settings
from pipeline.ledger import budget as budgets
from pipeline.ledger import chain, populations, reviewers
from pipeline.ledger.budget import NO_RULES, Budget, Population, Rules, SpendRequest, require_once, require_room
from pipeline.ledger.chain import (
    append,
    entries_of,
    find,
    numbered,
    of_kinds,
    of_launch,
    require_own_key,
    require_same,
    standing_reservation,
)
from pipeline.ledger.database import WholeLedger
from pipeline.ledger.entries import AS_OF, NO_UNIT, SPLIT_RULE, WITNESS, Entry, Spend, canonical
from pipeline.ledger.loss import Unit, most_in_any, releases
from pipeline.ledger.outside import rotation_text
from pipeline.ledger.reviewers import AnswerKeys

Content = Mapping[str, object]


class PrivacyLedger(WholeLedger):
    """Registrations, reservations, spends and approvals; ``WholeLedger`` checks them against the log."""

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
            return populations.register(connection, key, budget, rules, by, accounts)

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
            witness = self.outside_files().witness_key if replace_witness else ""
            return populations.change_budget(connection, key, budget, by, reason, rules, witness)

    def registered(self, key: PopulationKey) -> Population | None:
        """Return a population; None if it is not registered."""
        with self.transaction() as connection:
            return budgets.registered(of_kinds(connection, *budgets.REGISTRATION, population=key), key)

    def population(self, key: PopulationKey) -> Population:
        """Return a registered population.

        Raises:
          PopulationUnknown: it is not registered.
        """
        with self.transaction() as connection:
            return budgets.require_registered(of_kinds(connection, *budgets.REGISTRATION, population=key), key)

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
            return reviewers.register(connection, key, account, public, by)

    def answer_keys(self, key: PopulationKey) -> AnswerKeys:
        """Return the public keys that sign answers about launches on a population.

        Raises:
          KeyUnusable: the installation's own public key for answers is missing or damaged.
        """
        first = self.outside_files().first_of_answers
        with self.transaction() as connection:
            return AnswerKeys(reviewers.in_force(connection, key), chain.keys(connection, first, "answers"))

    def split_secret(self, key: PopulationKey) -> bytes:
        """Secret that decides the split of a population's devices: 32 bytes, the same for all its launches.

        Raises:
          PopulationUnknown: it is not registered.
          LedgerTampered: the secret is not the one that was drawn at the registration.
        """
        with self.transaction() as connection:
            return populations.split_secret(connection, key)

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
            old = standing_reservation(connection, launch_id, stage)
            if old:
                require_same(old, population, spend, binding)
                return old
            require_own_key(connection, launch_id, stage, binding)
            entries = entries_of(connection, population)
            registered = budgets.require_registered(entries, population)
            binding = {**binding, WITNESS: registered.rules.witness} if registered.rules.witness else binding
            budgets.require_no_more(registered, asked)
            require_once(entries, population, launch_id)
            request = SpendRequest(population, launch_id, binding.get(SPLIT_RULE, ""), binding.get(AS_OF, ""))
            require_room(entries, request, spend, budgets.ceilings(registered, asked))
            kind = numbered(connection, "reserve", launch_id, stage)
            return append(connection, kind, population, launch_id, stage, spend, binding)

    def release(self, launch_id: str, stage: str, reason: str) -> Entry | None:
        """Give back the reservation of a stage that refused before any device took part; None if there is none.

        Guarantee: a committed spend is never given back; the runner ensures that no device has contributed to a
        reservation that is, and the entry states the reason. The stage may reserve again.
        """
        with self.writing() as connection:
            reserved = standing_reservation(connection, launch_id, stage)
            if reserved is None or find(connection, launch_id, stage, "commit"):
                return None
            nothing = reserved.spend.model_copy(
                update={"rho": None if reserved.rho is None else 0.0, "epsilon": 0.0, "delta": 0.0}
                | {"failure": 0.0, "messages": 0, "device_epsilon": 0.0, "device_delta": 0.0, "note": reason}
            )
            kind, binding = numbered(connection, "release", launch_id, stage), json.loads(reserved.binding)
            return append(connection, kind, reserved.population, launch_id, stage, nothing, binding)

    def note(self, kind: str, population: PopulationKey, launch_id: str, stage: str, content: Content) -> Entry:
        """Record a fact that spends nothing; repeating the same call is free.

        Raises:
          LedgerConflict: the ledger holds another fact in its place.
          LedgerTampered: the ledger cannot be relied on.
        """
        with self.writing() as connection:
            old = find(connection, launch_id, stage, kind)
            if old is None:
                return append(connection, kind, population, launch_id, stage, None, content)
            if old.binding != canonical(dict(content)):
                raise LedgerConflict(f"{launch_id}: the ledger holds another {kind} of {stage}: {old.binding}")
            return old

    def noted(self, kind: str, launch_id: str, stage: str) -> Entry | None:
        """Return the entry that ``note`` wrote; None if there is none."""
        with self.transaction() as connection:
            return find(connection, launch_id, stage, kind)

    def reserved(self, launch_id: str, stage: str) -> Entry | None:
        """Return a stage's reservation, committed or not; None if there is none, or it was given back."""
        with self.transaction() as connection:
            return standing_reservation(connection, launch_id, stage)

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
                for entry in entries_of(connection, population)
                if (entry.does, entry.stage) == ("attempt", stage) and entry.binding == canonical(dict(family))
            ]
            if launch_id not in asked and write:
                kind = numbered(connection, "attempt", launch_id, stage)
                append(connection, kind, population, launch_id, stage, None, family)
            return asked.index(launch_id) + 1 if launch_id in asked else len(asked) + 1

    def commit(self, launch_id: str, stage: str, spend: Spend) -> Entry:
        """Replace a reservation's amount by the actual spend; repeating the same commit is free.

        The ledger records a spend above its reservation as it happened; the launch's gates then
        refuse the launch.

        Raises:
          LedgerConflict: nothing was reserved, or another amount was committed.
        """
        with self.writing() as connection:
            reserved = standing_reservation(connection, launch_id, stage)
            if reserved is None:
                raise LedgerConflict(f"{launch_id}/{stage}: nothing was reserved; reserve before any noise is drawn")
            binding = json.loads(reserved.binding)
            old = find(connection, launch_id, stage, "commit")
            if old:
                require_same(old, reserved.population, spend, binding)
                return old
            if (spend.unit, spend.adjacency, spend.split) != (reserved.unit, reserved.adjacency, reserved.split):
                raise LedgerConflict(
                    f"{launch_id}/{stage}: reserved per {reserved.unit} ({reserved.adjacency}, {reserved.split}), "
                    f"committed per {spend.unit} ({spend.adjacency}, {spend.split}); the two cannot replace each other"
                )
            return append(connection, "commit", reserved.population, launch_id, stage, spend, binding)

    def entries(self, population: PopulationKey | None = None) -> list[Entry]:
        """Return all entries in order but results of stages, or those of one population."""
        with self.transaction() as connection:
            return entries_of(connection, population)

    def entries_of_launch(self, launch_id: str) -> list[Entry]:
        """Return the entries of a launch, in order."""
        with self.transaction() as connection:
            return of_launch(connection, launch_id)

    def entries_of_kind(self, kind: str) -> list[Entry]:
        """Return the entries of a kind that bears no number, in order."""
        with self.transaction() as connection:
            return of_kinds(connection, kind)

    def spends(self) -> list[Entry]:
        """Return the entries that spend, in order."""
        return [entry for entry in self.entries() if entry.unit != NO_UNIT]

    def total(self, population: PopulationKey, unit: Unit = "device", days: int | None = None) -> float:
        """Largest loss of one unit, on a population, in any window of ``days`` days; None for all time."""
        return most_in_any(releases(self.entries(population), population, unit), days)


@dataclass(frozen=True)
class Rotation:
    """The key of a role that signs from now on.

    Attributes:
      number: of the key, as in its file's name.
      public: 32 bytes as hexadecimal digits; of ``model``, PEM.
      entry: hash of the ledger's entry.
    """

    role: str
    number: int
    public: str
    entry: str


def rotate(here: Settings, role: Role) -> Rotation:
    """Replace the key of a role; repeated after a crash, the same rotation goes on.

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
    return Rotation(role, number, public, entry.hash)
