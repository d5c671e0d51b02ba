"""Public keys of reviewers, registered in the ledger by an account that may raise the population's budget.

A reviewer's private key never comes to the installation, so the ledger's key gives no answer in a reviewer's name.
Whoever holds that key can still register a key of their own for a reviewer, but not in secret: a registration is an
entry, it stays in the log, and answers given before it keep the reviewer's earlier key.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from federated.config.population import PopulationKey, is_simulation
from pipeline.ground.errors import LedgerConflict
from pipeline.ledger.budget import Population, registered, require_registered
from pipeline.ledger.entries import Entry, Keys
from pretrain.config import ACCOUNT_NAME

KIND = "reviewer"
_PUBLIC = re.compile("[0-9a-f]{64}")
# Ed25519 (RFC 8032, section 5.1): the field, the order of the base point, the curve's d, and a root of -1.
_P, _ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
_D, _ROOT = -121665 * pow(121666, -1, _P) % _P, pow(2, (_P - 1) // 4, _P)


@dataclass(frozen=True)
class AnswerKeys:
    """Public keys that sign answers about launches on one population, 32 bytes each, the oldest first.

    Attributes:
      reviewers: entries that register a reviewer's key, of accounts that may.
      on_behalf: keys of this installation that sign answers given in Airflow, by the entry from which each signs.
    """

    reviewers: Sequence[Entry]
    on_behalf: Keys

    def registration(self, account: str, before: int | None = None) -> Entry | None:
        """Return the entry that registers an account's newest key; None if there is none.

        Args:
          account: name in the operating system.
          before: place of an answer, which no later key signed; None for an answer to come.
        """
        own = [entry for entry in self.reviewers if entry.names("account") == account]
        return next((each for each in reversed(own) if before is None or each.seq < before), None)

    def installation(self, before: int | None = None) -> bytes:
        """Return the installation's key for answers given in Airflow; ``before`` as in ``registration``."""
        return next(key for begin, key in reversed(self.on_behalf) if before is None or begin <= before)


def require_new(entries: Iterable[Entry], key: PopulationKey, account: str, public: str, by: str) -> Entry | None:
    """Check that a reviewer's key may be registered; return its entry if it is registered already.

    Args:
      entries: registrations of the population and of its reviewers.

    Raises:
      PopulationUnknown, LedgerConflict: as ``PrivacyLedger.register_reviewer``.
    """
    if not is_key(public):
        raise LedgerConflict(
            f"--key: {public[:80]!r} is no Ed25519 public key of 64 digits; the reviewer's 'tacit ledger key' prints it"
        )
    if not re.fullmatch(ACCOUNT_NAME, account):
        raise LedgerConflict(f"account: {account[:80]!r} is no account's name; write letters, digits and ._@+-")
    entries = list(entries)
    owner = registered(entries, key) if is_simulation(key) else require_registered(entries, key)
    if not _may_register(key, owner, account, by):
        them = " or ".join(owner.raised_by) if owner else account
        raise LedgerConflict(f"population {key!r}: reviewers' keys may be registered by {them}, not by {by}")
    earlier = in_force(entries, key)
    taken = [entry for entry in earlier if entry.names("public") == public]
    if other := next((entry.names("account") for entry in taken if entry.names("account") != account), None):
        raise LedgerConflict(f"--key: {public[:16]} is the key of {other}; each reviewer has a key of their own")
    newest = AnswerKeys(earlier, ()).registration(account)
    if newest is not None and newest.names("public") == public:
        return newest
    if taken:
        raise LedgerConflict(f"--key: {public[:16]} is an earlier key of {account}; register a new one")
    return None


def in_force(entries: Iterable[Entry], key: PopulationKey) -> list[Entry]:
    """Entries that register reviewers' keys, without those whose author may not."""
    entries = list(entries)
    owner = registered(entries, key)
    return [
        entry
        for entry in entries
        if entry.kind == KIND
        and is_key(entry.names("public"))
        and _may_register(key, owner, entry.names("account"), entry.names("by"))
    ]


def _may_register(key: PopulationKey, owner: Population | None, account: str, by: str) -> bool:
    """Return whether an account may register a reviewer's key: a simulation protects no one, and anyone their own."""
    return (owner is not None and by in owner.raised_by) or (is_simulation(key) and account == by)


@lru_cache(maxsize=256)
def is_key(public: str) -> bool:
    """Return whether 64 hexadecimal digits are an Ed25519 public key that only its private key's holder can use.

    Guarantee: the encoding is canonical, the point is on the curve, in the subgroup of prime order, and not zero. A
    point of small order verifies signatures that nobody made, and one with a part of small order has other encodings
    of the same signer, so both are refused.
    """
    if not _PUBLIC.fullmatch(public):
        return False
    number = int.from_bytes(bytes.fromhex(public), "little")
    y, odd = number & (2**255 - 1), number >> 255
    if y >= _P:
        return False
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    x = x if x * x % _P == square else x * _ROOT % _P
    if x * x % _P != square or not x:  # At x = 0 are the zero and a point of order 2.
        return False
    point = (_P - x if x & 1 != odd else x, y)
    return _times(_ORDER, point) == (0, 1)


def _times(scalar: int, point: tuple[int, int]) -> tuple[int, int]:
    """Multiply a point of the curve, in projective coordinates (Bernstein et al. 2008, *Twisted Edwards Curves*)."""
    total, each = (0, 1, 1), (*point, 1)
    while scalar:
        if scalar & 1:
            total = _plus(total, each)
        each, scalar = _plus(each, each), scalar >> 1
    inverse = pow(total[2], -1, _P)
    return total[0] * inverse % _P, total[1] * inverse % _P


def _plus(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    (x, y, z), (u, v, w) = one, other
    both, xs, ys = z * w % _P, x * u % _P, y * v % _P
    square, cross = both * both % _P, _D * xs * ys % _P
    less, more = square - cross, square + cross
    mixed = (x + y) * (u + v) - xs - ys
    return both * less * mixed % _P, both * more * (ys + xs) % _P, less * more % _P
