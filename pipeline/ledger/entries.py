"""A spend, an entry of the privacy ledger, its hash, and its leaf of the transparency log, which orders entries.

The hash of an entry commits to all of it, its place included, and a part of it can be shown: it is the SHA-256 of
``revealed``, which has the fields that a launch's proof publishes, and a digest of the others.

Guarantee: neither the hash nor what is revealed says anything of the fields that are withheld, however few values they
could have: their digest covers a salt of 128 bits. Without it, an exact time would be found by trying.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard, get_args

from pydantic import BaseModel, ConfigDict, Field

from federated.config.population import PopulationKey
from pretrain.randomness.entropy import fresh_bytes

# Unit of entries that spend nothing and have no amounts.
NO_UNIT = "none"
UNITS = frozenset({"device", "item"})
SPENDING = frozenset({"reserve", "commit", "release"})
# Kind of an entry that holds the digest of a stage's result, and the digest's name in its binding.
RESULT, DIGEST = "result", "digest"
KINDS = SPENDING | {RESULT, "device_key", "register", "budget", "devices", "withdrawal"}
KINDS |= {"review", "rollback", "model", "reuse", "attempt", "note", "key", "reviewer"}
# In a binding: the version of the rule that decides a device's split (``Population.split_rule``).
SPLIT_RULE = "split_rule"
# In a binding: the commitment to the secret key of a release's noise. A key that follows from a public seed has another
# name there.
KEY = "key"
# In a binding: the salted digest of a secret that the ledger holds beside its entries (``rows``).
SECRET = "secret_digest"
# In a binding: the public key of the population's registered witness.
WITNESS = "witness"
# In a binding: the last day of the text that the launch reads, where retention is limited.
AS_OF = "as_of"
# First entry from which a key of the ledger (32 bytes) signs.
Keys = Sequence[tuple[int, bytes]]
Split = Literal["train", "validation", "test"]
# Fields of a spend that an entry keeps in its binding.
BESIDE = ("failure", "split", "messages", "device_epsilon", "device_delta")
_NO_AMOUNTS = {"unit": NO_UNIT, "adjacency": "", "rho": None, "epsilon": 0.0, "delta": 0.0, "note": ""}
_DONE = (PopulationKey(""), "", "", "", "")
_SPLITS = get_args(Split)


class Spend(BaseModel):
    """Privacy loss of one release to its unit and, for messages about items, also to their device.

    Guarantee: but for an event of probability ``failure`` the release is ``rho``-zCDP for one device of ``split``
    (approximate zCDP, Bun & Steinke 2016, definition 8.1), and a device of another split loses nothing. Epsilon at a
    delta is then the Gaussian curve at that delta less the failures.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Literal["device", "item"]
    adjacency: str = Field(description="'zero-out' for training, 'swap' for discovery")
    rho: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None = Field(description="zCDP; unit device only")
    epsilon: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    delta: Annotated[float, Field(ge=0.0, lt=1.0)]
    note: str = ""
    failure: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        default=0.0, description="probability with which rho or epsilon does not hold; it adds up over releases"
    )
    split: Split = Field(default="train", description="split whose devices bear the loss")
    messages: Annotated[int, Field(ge=0)] = Field(default=0, description="messages about items that a device sends")
    device_epsilon: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = Field(
        default=0.0, description="loss to all messages of a device, at device_delta; unit item only"
    )
    device_delta: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0

    def model_post_init(self, _context: object) -> None:
        if (self.unit == "device") != (self.rho is not None):
            raise ValueError(
                f"rho: {self.rho!r} with unit {self.unit!r}; a device-level spend states rho, "
                "an item-level one leaves it None because the two never add up"
            )
        if self.unit == "item" and self.epsilon and not (self.messages and self.device_epsilon):
            raise ValueError(
                f"device_epsilon: {self.device_epsilon} with {self.messages} messages of epsilon {self.epsilon}; state "
                "the device's loss to all of them, which counts against the budget of the device"
            )


class Entry(BaseModel):
    """One line of the ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)

    seq: int
    kind: str  # one of KINDS
    population: PopulationKey
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
    salt: str  # random, so that the hash does not tell what is withheld
    hash: str
    signature: str  # of the hash, by the ledger's key

    def expected_hash(self) -> str:
        """SHA-256 of ``revealed``: of everything but the hash itself and its signature."""
        # A tampered entry may hold a value of any plain kind; the hash must then differ, not raise.
        return sha256_of(self.revealed)

    @property
    def revealed(self) -> str:
        """The part that a proof publishes, as canonical JSON, with a digest of the rest."""
        stated = _OF_SPENDS if self.does in SPENDING else (DIGEST,) if self.does == RESULT else ()
        shown = {name: self.content[name] for name in stated if name in self.content}
        shown |= {name: getattr(self, name) for name in _SHOWN}
        return revealed(shown, {name: getattr(self, name) for name in _WITHHELD})

    @property
    def does(self) -> str:
        """Kind without its number; a reservation that was given back may be repeated, as ``reserve 2``."""
        return self.kind.partition(" ")[0]

    @property
    def content(self) -> Mapping[str, Any]:
        """Return the binding as values; empty where a tampered entry holds anything else."""
        return _values(self.binding)

    def names(self, name: str) -> str:
        """Digest in the binding under a name; empty if the binding has no such value."""
        return str(self.content.get(name, ""))

    @property
    def failure(self) -> float:
        """Probability with which the amounts do not hold."""
        return self.content.get("failure", 0.0)

    @property
    def messages(self) -> int:
        """Messages about items that a device sends."""
        return self.content.get("messages", 0)

    @property
    def device_epsilon(self) -> float:
        """Epsilon of all messages of a device; 0 where its unit is a device."""
        return self.content.get("device_epsilon", 0.0)

    @property
    def device_delta(self) -> float:
        """Delta at which ``device_epsilon`` holds."""
        return self.content.get("device_delta", 0.0)

    @property
    def split(self) -> str:
        """Split whose devices bear the loss."""
        return self.content.get("split", "train")

    @property
    def spend(self) -> Spend:
        """Return the entry's amounts as a spend."""
        amounts = {name: getattr(self, name) for name in Spend.model_fields}
        return Spend.model_validate(amounts)


class Leaf(NamedTuple):
    """An entry as the log has it: its place, from 1, its hash, and the ledger's signature as hexadecimal digits."""

    seq: int
    hash: str
    signature: str = ""

    @property
    def content(self) -> bytes:
        """Content of the leaf, which says nothing of a launch, a population or a person."""
        return canonical({"hash": self.hash, "seq": self.seq}).encode()

    @property
    def message(self) -> bytes:
        """Signed bytes."""
        return f"tacit ledger entry {self.hash}".encode()


@lru_cache(maxsize=16)  # an entry is asked for many of its values, one after another
def _values(binding: str) -> Mapping[str, Any]:
    try:
        content = json.loads(binding)
    except (TypeError, ValueError):
        return MappingProxyType({})
    return MappingProxyType(content if isinstance(content, dict) else {})


# Accounts, reasons and other launches stand in bindings and notes, which are withheld but for a spend's own amounts.
_WITHHELD = ("binding", "note", "created_at", "salt")
_SHOWN = tuple(name for name in Entry.model_fields if name not in (*_WITHHELD, "hash", "signature"))
_OF_SPENDS = ("config", WITNESS, *BESIDE)
_SALT_BYTES = 16
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical(value: object) -> str:
    """JSON with one spelling: sorted keys, no blanks, shortest float that reads back equal."""
    return _CANONICAL(value)


def sha256_of(text: str) -> str:
    """SHA-256 of a text, as hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def revealed(shown: Mapping[str, object], withheld: Mapping[str, object]) -> str:
    """Text of which an entry's hash is the SHA-256.

    Args:
      withheld: fields of which it has a digest alone; a salt is among them.
    """
    return canonical({**shown, "withheld": sha256_of(canonical(withheld))})


def unsigned(
    seq: int,
    kind: str,
    population: PopulationKey,
    launch_id: str,
    stage: str,
    spend: Spend | None,
    binding: Mapping[str, object],
    at: str,
) -> Entry:
    """Return an entry without its signature; one without a spend states a fact in its binding.

    Args:
      at: time, in the format of ``clock.written``.
    """
    amounts = spend.model_dump(exclude=set(BESIDE)) if spend else _NO_AMOUNTS
    entry = Entry(
        seq=seq,
        kind=kind,
        population=population,
        launch_id=launch_id,
        stage=stage,
        **amounts,
        binding=canonical({**binding, **(spend.model_dump(include=set(BESIDE)) if spend else {})}),
        created_at=at,
        salt=fresh_bytes(_SALT_BYTES).hex(),
        hash="",
        signature="",
    )
    return entry.model_copy(update={"hash": entry.expected_hash()})


def problems_of(entries: Iterable[Entry]) -> list[str]:
    """List entries that were altered, and those that the ledger's own code never writes, as messages.

    Guarantee: an amount is non-negative and finite, and replaces only the reservation of the same stage of the same
    launch, so that appending entries never lowers a spend. A reuse names an earlier commit of the same stage on the
    same population, so that no release is used without a spend. No two stages or launches have one secret key.

    Args:
      entries: all of them, in order.
    """
    problems, reserved, committed, owners = [], {}, set(), dict[str, tuple[str, str]]()
    for position, entry in enumerate(entries, start=1):
        name = f"entry {entry.seq} ({entry.kind} of {entry.launch_id}/{entry.stage})"
        if entry.seq != position:
            problems.append(f"{name} stands at place {position}: an entry is missing or out of order")
        if entry.hash != entry.expected_hash():
            problems.append(f"{name} was altered: its content does not match its hash")
        release = (entry.launch_id, entry.stage)
        what = (entry.population, entry.unit, entry.adjacency, entry.split, entry.names(SPLIT_RULE))
        if entry.does not in KINDS:
            problems.append(f"{name} is of a kind that this version does not know")
        if not all(map(is_amount, (entry.epsilon, entry.delta, 0 if entry.rho is None else entry.rho))):
            problems.append(f"{name} states an amount that is negative or not finite")
        if not (is_amount(entry.failure) and entry.failure < 1):
            problems.append(f"{name} states a failure that is no probability")
        if not (is_amount(entry.device_epsilon) and is_amount(entry.device_delta) and entry.device_delta < 1):
            problems.append(f"{name} states an invalid loss of a device to its messages")
        if entry.does in SPENDING and entry.unit == "item" and bool(entry.epsilon) != bool(entry.device_epsilon):
            problems.append(f"{name} is about items, and does not state their device's loss")
        if entry.split not in _SPLITS:
            problems.append(f"{name} is about devices of an unknown split")
        if entry.does in SPENDING and (key := entry.names(KEY)) and owners.setdefault(key, release) != release:
            problems.append(f"{name} has the key of {'/'.join(owners[key])}")
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
            if entry.does == "release" and (entry.rho or entry.epsilon or entry.device_epsilon):
                problems.append(f"{name} gives a reservation back and states an amount")
            if entry.does == "commit":
                committed.add((entry.hash, entry.population, entry.stage))
            # A commit is final; after a release the stage may reserve again.
            reserved[release] = _DONE
            if entry.does == "release":
                del reserved[release]
    return problems


def is_amount(value: object) -> TypeGuard[float]:
    """Return whether a value is a valid privacy amount: non-negative and finite."""
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0
