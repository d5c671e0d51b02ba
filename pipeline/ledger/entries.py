"""One entry of the privacy ledger, what makes entries a chain, and what they add up to.

Devices and items are never added.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Literal, TypeGuard

from pydantic import BaseModel, ConfigDict

from pipeline.errors import BudgetExceeded, LedgerTampered
from pipeline.stage import Spend

GENESIS = "0" * 64
# Entries that spend have a unit; those that say something else have this one, and no amounts.
NO_UNIT = "none"
UNITS = frozenset({"device", "item"})
SPENDING = frozenset({"reserve", "commit", "release"})
KINDS = SPENDING | {"register", "budget", "devices", "review", "rollback", "model", "reuse", "attempt"}
_DONE = ("", "", "")
# Sums of budgets typed as decimals (0.1 + 0.2 against 0.3) must not be refused for their last bit.
_ROUNDING = 1e-12


class Entry(BaseModel):
    """One line of the ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    seq: int
    kind: str  # one of KINDS
    population: str
    launch_id: str
    stage: str
    unit: str
    adjacency: str
    rho: float | None
    epsilon: float
    delta: float
    binding: str  # canonical JSON of digests that make a retry the same release
    note: str
    created_at: str
    prev_hash: str
    hash: str

    def expected_hash(self) -> str:
        """SHA-256 of the canonical JSON of everything but the hash itself."""
        # A tampered entry may hold a value of any type; it must hash to something else, not fail.
        content = self.model_dump(exclude={"hash"}, warnings=False)
        return hashlib.sha256(canonical(content).encode()).hexdigest()

    @property
    def does(self) -> str:
        """Its kind without the number that a repeated one has: a reservation that was given back may be made again."""
        return self.kind.partition(" ")[0]

    def names(self, name: str) -> str:
        """A digest that its binding names; empty if that has no such value, or is none."""
        try:
            content = json.loads(self.binding)
        except (TypeError, ValueError):
            return ""
        return str(content.get(name, "")) if isinstance(content, dict) else ""

    @property
    def spend(self) -> Spend:
        """The entry's amounts."""
        return Spend.model_validate({name: getattr(self, name) for name in Spend.model_fields})


def canonical(value: object) -> str:
    """JSON with one spelling: sorted keys, no blanks, shortest float that reads back equal."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def chain_problems(entries: list[Entry]) -> list[str]:
    """Where the chain is broken, in words."""
    problems, previous = [], GENESIS
    for position, entry in enumerate(entries, start=1):
        name = f"entry {entry.seq} ({entry.kind} of {entry.launch_id}/{entry.stage})"
        if entry.seq != position:
            problems.append(f"{name} stands at place {position}: an entry is missing or out of order")
        if entry.prev_hash != previous:
            problems.append(f"{name} does not follow the entry before it")
        if entry.hash != entry.expected_hash():
            problems.append(f"{name} is not what was written: its content does not match its hash")
        previous = entry.hash
    return problems + _content_problems(entries)


def _content_problems(entries: list[Entry]) -> list[str]:
    """Entries that the ledger's own code never writes, whoever gave them a place in the chain.

    Guarantee: an amount is zero or more and finite, and takes the place of no other than the one reserved for the same
    stage of the same launch; so nobody who can append is given anything back. A re-use names an earlier commit of the
    same stage on the same population; so nobody uses for nothing what nobody paid for.
    """
    problems, reserved, committed = [], {}, set()
    for entry in entries:
        name = f"entry {entry.seq} ({entry.kind} of {entry.launch_id}/{entry.stage})"
        release, what = (entry.launch_id, entry.stage), (entry.population, entry.unit, entry.adjacency)
        if entry.does not in KINDS:
            problems.append(f"{name} is of a kind that this version does not know")
        if not all(map(is_amount, (entry.epsilon, entry.delta, 0 if entry.rho is None else entry.rho))):
            problems.append(f"{name} states an amount that is negative or not finite")
        if (entry.does in SPENDING) != (entry.unit in UNITS) or (entry.unit == "device") != (entry.rho is not None):
            problems.append(f"{name} is per {entry.unit} with rho {entry.rho}")
        elif entry.does == "reuse":
            if (entry.names("commit"), entry.population, entry.stage) not in committed:
                problems.append(f"{name} names no commit before it")
        elif entry.does == "reserve":
            if release in reserved:
                problems.append(f"{name} follows a reservation that was not given back")
            reserved[release] = what
        elif entry.does in ("commit", "release"):
            if reserved.get(release) != what:
                problems.append(f"{name} follows no reservation of its own")
            if entry.does == "release" and (entry.rho or entry.epsilon):
                problems.append(f"{name} gives a reservation back and states an amount")
            if entry.does == "commit":
                committed.add((entry.hash, entry.population, entry.stage))
            # After a commit nothing more comes; after a release the stage may reserve again.
            reserved[release] = _DONE
            if entry.does == "release":
                del reserved[release]
    return problems


def total_spent(entries: Iterable[Entry], population: str, unit: Literal["device", "item"], since: str = "") -> float:
    """Sum over one unit: rho of devices, or epsilon of items.

    Guarantee: rho of launches on the same devices adds up (zCDP), and so do local epsilons of the same
    typed word asked for in several launches (basic composition). The latter holds for delta 0, as
    discovery's messages have it.

    Args:
      entries: in order, so that a commit comes after its reservation and replaces it.
      since: leave out what was written before this time.

    Raises:
      LedgerTampered: an amount that this class never writes: none, negative or not finite.
    """
    amounts: dict[tuple[str, str], tuple[float, str]] = {}
    for entry in entries:
        if (entry.population, entry.unit) != (population, unit):
            continue
        amount = entry.rho if unit == "device" else entry.epsilon
        if not is_amount(amount):
            raise LedgerTampered(f"the {entry.kind} of {entry.launch_id} {entry.stage} has no {unit}-level amount")
        amounts[entry.launch_id, entry.stage] = amount, entry.created_at
    return math.fsum(amount for amount, written in amounts.values() if written >= since)


def is_amount(value: object) -> TypeGuard[float]:
    """Whether a value can be an amount of privacy: zero or more, and finite."""
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def require_room(
    entries: Iterable[Entry], population: str, launch_id: str, spend: Spend, ceiling: float | None, since: str = ""
) -> None:
    """See that a spend fits under the ceiling on its unit, with all that was spent ``since``; None is no ceiling.

    Raises:
      BudgetExceeded: it does not; the numbers and the fix are in the message.
    """
    if ceiling is None:
        return
    spent = total_spent(entries, population, spend.unit, since)
    if spend.rho is not None:
        needed, name, policy = spend.rho, "rho", "policy.population_max_rho"
        advice = "more noise, fewer rounds, larger min_sep"
    else:
        needed, name, policy = spend.epsilon, "epsilon per typed word", "policy.population_max_discovery_epsilon"
        advice = "smaller discovery.epsilon0, or fewer launches that discover words"
    if spent + needed > ceiling * (1 + _ROUNDING):
        raise BudgetExceeded(
            f"population {population!r}: launch {launch_id!r} needs {name} {needed:.6g}, {spent:.6g} of {ceiling:.6g} "
            f"is spent and {max(ceiling - spent, 0):.6g} is left; plan a smaller spend ({advice}) or have the "
            f"population's budget ({policy}) reviewed"
        )
