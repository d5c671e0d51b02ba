"""Knowledge of the ledger outside its database: the transparency log, its witness, and the keys.

Every entry of both chains is a leaf of the log (``log.tiles``), in the order in which they were written. The log's
checkpoint covers all of them; a witness cosigns it before anything is spent, and MLflow keeps it with each launch.

Guarantee: a ledger that lacks a leaf of any checkpoint that is known here, in MLflow or to the witness, or holds
another one in its place, is refused before any spend, decision, publication, rollback or approval (``PrivacyLedger``).
A leaf is written after its entry; an entry without one, as after a crash, is valid if it is signed, and gets its leaf
with the next write.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pipeline.ground import keys
from pipeline.ground.errors import LedgerTampered, PermanentError
from pipeline.ground.settings import Settings
from pipeline.ledger.leaves import Keys, Leaf, unsigned
from pipeline.ledger.log import merkle, request, witness
from pipeline.ledger.log.note import COSIGNATURE, ED25519, Checkpoint, Signed, sign, verifier_key
from pipeline.ledger.log.tiles import CHECKPOINT, WITNESSED, Log

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

_MOST_NAMED = 4  # entries that a ledger lacks, in a message


@dataclass(frozen=True)
class Known:
    """A checkpoint of the log, and the place that keeps it."""

    checkpoint: Checkpoint
    kept_in: str


class Outside:
    """Log, witness and keys of an installation."""

    def __init__(self, here: Settings) -> None:
        self.log = Log(here.log_dir)
        self._here = here

    @cached_property
    def signer(self) -> "CryptoSigner":
        """Signer of entries and checkpoints."""
        return keys.signer(self._here, "ledger")

    @cached_property
    def _keys(self) -> list[bytes]:
        return [bytes.fromhex(key.keyval["public"]) for key in keys.public_keys(self._here, "ledger")]

    @property
    def _witness_keys(self) -> list[bytes]:
        return [bytes.fromhex(key.keyval["public"]) for key in keys.public_keys(self._here, "witness")]

    @property
    def first_key(self) -> bytes:
        """The first key of the ledger, 32 bytes; each later one is in an entry that the one before signed."""
        return self._keys[0]

    @cached_property
    def first_of_answers(self) -> bytes:
        """The first key that signed answers given in Airflow, as ``first_key``."""
        return bytes.fromhex(keys.public_keys(self._here, "answers")[0].keyval["public"])

    @property
    def origin(self) -> str:
        """Name of the log, by the first key of the ledger."""
        return f"tacit/ledger/{hashlib.sha256(self.first_key).hexdigest()[:16]}"

    @property
    def verifier_keys(self) -> dict[str, list[str]]:
        """Public keys of the log and of its witness, as other tools take them; the newest last."""
        return {
            "log": [verifier_key(self.origin, ED25519, key) for key in self._keys],
            "witness": [verifier_key(witness.NAME, COSIGNATURE, key) for key in self._witness_keys],
        }

    def parsed(self, texts: Mapping[str, str]) -> list[Known]:
        """Parse checkpoints that are kept elsewhere, by place.

        Raises:
          PermanentError: one is damaged, of another ledger, or not signed by this one.
        """
        return [Known(self._verified(text, place), place) for place, text in texts.items()]

    def _verified(self, text: str, place: str) -> Checkpoint:
        try:
            signed = Signed.parsed(text)
        except ValueError as error:
            raise PermanentError(
                f"{place}: its checkpoint of the privacy ledger is damaged; restore it from a backup ({error})"
            ) from error
        if signed.checkpoint.origin != self.origin or not signed.is_signed_by(self._keys):
            raise PermanentError(
                f"{place}: its checkpoint is of the privacy ledger {signed.checkpoint.origin}, and the keys here are "
                f"those of {self.origin}: set TACIT_KEYS and TACIT_LEDGER_URL to those of one installation, or use "
                "another MLflow"
            )
        return signed.checkpoint

    def here(self) -> list[Known]:
        """Checkpoints that this installation keeps."""
        kept = {name: self.log.checkpoint(name) for name in (CHECKPOINT, WITNESSED)}
        return self.parsed({str(self.log.root / name): signed.note for name, signed in kept.items() if signed})

    def lacks(self, elsewhere: Iterable[Known]) -> bool:
        """True if the log, which the ledger agrees with, does not continue a checkpoint that is kept elsewhere."""
        size = self.log.size
        return any(
            each.checkpoint.size > size or self.log.root_at(each.checkpoint.size, size) != each.checkpoint.root
            for each in elsewhere
        )

    def problems(self, leaves: Sequence[Leaf], elsewhere: Iterable[Known], valid: Keys) -> list[str]:
        """List entries that nobody signed, and checkpoints that the ledger does not continue, as messages.

        Args:
          leaves: all entries of the ledger, in the order of the log.
          elsewhere: checkpoints that are not on this machine.
        """
        found = unsigned(leaves, valid)
        found += [
            f"{leaf.chain} {leaf.seq} states place {leaf.place} in the log and stands at {place}"
            for place, leaf in enumerate(leaves)
            if leaf.place != place
        ]
        known = [*self.here(), *elsewhere]
        roots, _ = merkle.roots_of(
            (merkle.leaf_hash(leaf.content) for leaf in leaves), {each.checkpoint.size for each in known}
        )
        behind = [each for each in known if roots.get(each.checkpoint.size) != each.checkpoint.root]
        named = list(self._lacking(leaves)) if behind else []
        for each in behind:
            size = each.checkpoint.size
            found.append(
                f"{each.kept_in} holds a checkpoint of {size} entries and results, and the ledger "
                + (f"ends after {len(leaves)}" if size > len(leaves) else f"has others among its first {size}")
            )
        return found + named

    def _lacking(self, leaves: Sequence[Leaf]) -> Iterator[str]:
        """Name the first entries of the log that the ledger lacks."""
        last = {
            chain: max((leaf.seq for leaf in leaves if leaf.chain == chain), default=0) for chain in ("entry", "result")
        }
        lacking = 0
        for place, content in enumerate(self.log.leaves(self.log.size)):
            if place < len(leaves) and leaves[place].content == content:
                continue
            lacking += 1
            if lacking > _MOST_NAMED:
                return
            with suppress(ValueError, KeyError, TypeError):
                stated = json.loads(content)
                chain, seq = stated["chain"], stated["seq"]
                yield f"{self.log.root} holds {chain} {seq} ({stated['hash'][:12]}), and the ledger " + (
                    f"ends at {last.get(chain, 0)}" if seq > last.get(chain, 0) else "has another one there"
                )

    def extend(self, leaves: Sequence[Leaf], valid: Keys) -> None:
        """Append leaves to the log, and sign its checkpoint; within ``log.writing``.

        Args:
          leaves: the entries after those in the log.

        Raises:
          LedgerTampered: the ledger's key did not sign one of them.
        """
        if wrong := unsigned(leaves, valid):
            raise LedgerTampered(f"the privacy ledger was altered: {'; '.join(wrong)}. Restore it from a backup")
        size = self.log.size
        root = self.log.extend(size, [leaf.content for leaf in leaves])
        head = Checkpoint(self.origin, size + len(leaves), root)
        public = bytes.fromhex(self.signer.public_key.keyval["public"])
        line = sign(head, public, lambda text: bytes.fromhex(self.signer.sign(text).signature))
        self.log.keep(Signed(head, (line,)))

    def witnessed(self) -> str:
        """Have the log's checkpoint cosigned, and return its text.

        Raises:
          LedgerTampered: the witness has cosigned a log that this one does not continue.
          ServiceUnavailable: the witness does not answer.
        """
        with self.log.writing():
            return request.cosigned(self.log, self._here.witness, self._witness_keys).note
