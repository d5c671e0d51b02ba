"""Knowledge of the ledger outside its database: the transparency log, its witness, and the keys.

Every entry is a leaf of the log (``log.tiles``), in the order in which they were written: the log is the ledger's
chain. Its checkpoint covers all of them; a witness cosigns it before anything is spent, and MLflow keeps it with each
launch.

Guarantee: a ledger that lacks a leaf of any checkpoint that is known here, in MLflow or to the witness, or holds
another one in its place, is refused before any spend, decision, publication, rollback or approval (``PrivacyLedger``).
A leaf is written after its entry; an entry without one, as after a crash, is valid if it is signed, and gets its leaf
with the next write. No checkpoint is signed over a tree whose tiles do not give the root of the last one.
"""

import hashlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.ground import keys
from pipeline.ground.errors import TEMPORARY, LedgerTampered, PermanentError, ServiceUnavailable
from pipeline.ground.settings import Settings
from pipeline.ledger.entries import Keys, Leaf
from pipeline.ledger.log import merkle, witness
from pipeline.ledger.log.note import COSIGNATURE, ED25519, MOST_BYTES, Checkpoint, Signed, sign, verifier_key, verifies
from pipeline.ledger.log.tiles import CHECKPOINT, WITNESSED, Log
from pipeline.ledger.log.witness import Answer

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

_MOST_NAMED = 4  # entries that a ledger lacks, in a message
_SECONDS = 60
_TURNS = 2  # a witness that cosigned an older or a later checkpoint than is kept here says so once
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it belongs to this installation: no proxy


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
    def witness_key(self) -> str:
        """The newest key of the witness here, 64 hexadecimal digits."""
        return self._witness_keys[-1].hex()

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

    def problems(self, leaves: Sequence[Leaf], elsewhere: Iterable[Known], valid: Keys, *, thorough: bool) -> list[str]:
        """List entries that nobody signed, checkpoints that the ledger does not continue, and damaged tiles.

        Args:
          leaves: all entries of the ledger, in order.
          elsewhere: checkpoints that are not on this machine.
          thorough: verify the signatures of all entries, not only of those after the last checkpoint that the ledger's
            key signed and the witness cosigned, which covers the others.
        """
        known = [*self.here(), *elsewhere]
        hashes = [merkle.leaf_hash(leaf.content) for leaf in leaves]
        nodes, sizes = merkle.nodes_of(hashes), {each.checkpoint.size for each in known}
        roots = {size: merkle.subtree(nodes, 0, size) for size in sizes if size <= len(hashes)}
        covered = 0 if thorough else self.covered_leaves(roots, valid)
        found = unsigned(leaves[covered:], valid)
        behind = [each for each in known if roots.get(each.checkpoint.size) != each.checkpoint.root]
        for each in behind:
            size = each.checkpoint.size
            found.append(
                f"{each.kept_in} holds a checkpoint of {size} entries, and the ledger "
                + (f"ends after {len(leaves)}" if size > len(leaves) else f"has others among its first {size}")
            )
        if behind:
            return found + list(self._lacking(leaves))
        size = self.log.size
        damaged = self.log.damaged([leaf.content for leaf in leaves[:size]], hashes[:size])
        return found + [
            f"{path} is damaged (set the folder {self.log.root} aside: the next command makes it again)"
            for path in damaged
        ]

    def covered_leaves(self, roots: Mapping[int, bytes], valid: Keys) -> int:
        """Number of entries, from the first, that a checkpoint covers which the ledger's key signed and the witness."""
        signed = self.log.checkpoint(WITNESSED)
        if signed is None or not signed.checkpoint.size:
            return 0
        size, root = signed.checkpoint.size, signed.checkpoint.root
        holds = (
            roots.get(size) == root
            and signed.is_signed_by([_in_force(valid, size)])
            and signed.cosigned_at(witness.NAME, self._witness_keys) is not None
        )
        return size if holds else 0

    def _lacking(self, leaves: Sequence[Leaf]) -> Iterator[str]:
        """Name the first entries of the log that the ledger lacks."""
        lacking = 0
        for place, content in enumerate(self.log.leaves(self.log.size)):
            if place < len(leaves) and leaves[place].content == content:
                continue
            lacking += 1
            if lacking > _MOST_NAMED:
                return
            with suppress(ValueError, KeyError, TypeError):
                stated = json.loads(content)
                yield f"{self.log.root} holds entry {stated['seq']} ({stated['hash'][:12]}), and the ledger " + (
                    f"ends at {len(leaves)}" if place >= len(leaves) else "has another one there"
                )

    def extend(self, leaves: Sequence[Leaf], valid: Keys) -> None:
        """Append leaves to the log, and sign its checkpoint; within ``log.writing``.

        Args:
          leaves: the entries after those in the log.

        Raises:
          LedgerTampered: the ledger's key did not sign one of them, or the log's tiles are not those of its checkpoint.
        """
        if wrong := unsigned(leaves, valid):
            raise LedgerTampered(f"the privacy ledger was altered: {'; '.join(wrong)}. Restore it from a backup")
        size = self.log.require_undamaged()
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
            return cosigned(self.log, self._here.witness, self._witness_keys[-1:]).note


def unsigned(leaves: Iterable[Leaf], keys: Keys) -> list[str]:
    """List entries that the ledger's key of their place did not sign, as messages."""
    wrong = []
    for leaf in leaves:
        try:
            signed = verifies(_in_force(keys, leaf.seq), bytes.fromhex(leaf.signature), leaf.message)
        except (ValueError, TypeError):
            signed = False
        if not signed:
            wrong.append(f"entry {leaf.seq} ({str(leaf.hash)[:12]}) was not signed by the ledger's key")
    return wrong


def _in_force(keys: Keys, seq: int) -> bytes:
    """The key that signs the entry at a place."""
    return next((key for begin, key in reversed(keys) if begin <= seq), keys[0][1])


def rotation_text(role: object, number: object, public: object) -> bytes:
    """Text that a role's old key signs to name its successor."""
    return f"tacit key {role} {number} {public}".encode()


def is_successor(public: str, first: str, rotations: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a witness' key is the first one, or follows from it by rotations that the key before signed.

    Args:
      public, first: 64 hexadecimal digits.
      rotations: contents of the ledger's entries, in order.
    """
    trusted = {first}
    for each in rotations:
        text, signature = rotation_text("witness", each["number"], each["public"]), bytes.fromhex(each["signature"])
        if any(verifies(bytes.fromhex(key), signature, text) for key in trusted):
            trusted.add(each["public"])
    return public in trusted


def cosigned(log: Log, where: str | Path, keys: Sequence[bytes]) -> Signed:
    """Have a log's checkpoint cosigned, and keep it so; within ``log.writing``.

    Args:
      where: the witness' address, or its folder.
      keys: the witness' public keys, 32 bytes each.

    Raises:
      LedgerTampered: the witness has cosigned a log that this one does not continue.
      PermanentError: the witness does not know this log, or its answer is not signed by its key.
      ServiceUnavailable: it does not answer.
    """
    signed, last = log.checkpoint(), log.checkpoint(WITNESSED)
    assert signed is not None, "a log that is witnessed has a checkpoint"
    signed = signed.by(signed.checkpoint.origin)  # one cosignature: each states a time
    head, old = signed.checkpoint, last.checkpoint.size if last else 0
    for _ in range(_TURNS):
        body = witness.request(old, log.consistency(old, head.size), signed)
        answer = posted(where, body) if isinstance(where, str) else own_process(where, body)
        if answer.status != witness.CONFLICT or not answer.body.strip().isdecimal() or int(answer.body) == old:
            break
        forgot, old = int(answer.body) < old, int(answer.body)
        if forgot:
            raise LedgerTampered(
                f"the witness {_named(where)} remembers {old} entries and results of this privacy ledger, and it has "
                f"cosigned {last.checkpoint.size if last else 0}: its folder was wiped or put back to "
                "an older state, so that it would notice no such ledger. Restore its folder, or let its keeper "
                f"copy {log.root / WITNESSED} there as {witness.file_of(head.origin)}"
            )
        if old > head.size:
            raise LedgerTampered(
                f"the witness {_named(where)} has cosigned the log of this privacy ledger at {old} entries, "
                f"and its log {log.root} ends after {head.size}: both were restored from an older state, or "
                "somebody else writes to another copy. Restore the newest ledger and the newest log"
            )
    if answer.status in (witness.CONFLICT, witness.UNPROVEN):
        raise LedgerTampered(
            f"the witness {_named(where)} has cosigned other entries of this privacy ledger than the first {old} in "
            f"its log {log.root}: the ledger or its log was rewritten. Restore both from a backup"
        )
    if answer.status != witness.OK:
        raise PermanentError(
            f"the witness {_named(where)} does not cosign the checkpoint in {log.root}: {answer.body.strip()}. Copy "
            "the public keys of the ledger (ledger-N.pub.pem in TACIT_KEYS) to the witness' folder"
        )
    made = signed.with_lines(answer.body.splitlines())
    if made.cosigned_at(witness.NAME, keys) is None:
        raise PermanentError(
            f"the answer of {_named(where)} is not cosigned by the witness' key: copy its witness-N.pub.pem to "
            "TACIT_KEYS if it was rotated, or set TACIT_WITNESS to the witness of this installation"
        )
    log.keep(made, WITNESSED)
    log.keep(made)
    return made


def _named(where: str | Path) -> str:
    return f"at {where}" if isinstance(where, str) else f"in {where}"


def own_process(folder: Path, body: str) -> Answer:
    """Answer of a witness in a process of its own, which ends."""
    command = [sys.executable, "-m", witness.__name__, str(folder)]
    root = str(Path(__file__).parents[2])
    try:
        done = subprocess.run(
            command, input=body, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=root
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceUnavailable(f"the witness in {folder} does not answer within {_SECONDS} s") from error
    if done.returncode == TEMPORARY or done.returncode < 0:
        raise ServiceUnavailable(f"the witness in {folder} (TACIT_WITNESS) could not answer: its disk, or a signal")
    status, _, answer = done.stdout.partition("\n")
    if done.returncode or not status.isdecimal():
        last = (done.stderr.strip().splitlines() or ["it ended without an answer"])[-1]
        raise PermanentError(f"the witness in {folder} (TACIT_WITNESS) failed: {last}")
    return Answer(int(status), answer)


def posted(address: str, body: str) -> Answer:
    """Answer of a witness that serves HTTP."""
    asked = urllib.request.Request(f"{address}{witness.PATH}", data=body.encode())
    try:
        with _OPENER.open(asked, timeout=_SECONDS) as answer:
            return Answer(answer.status, answer.read(MOST_BYTES).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read(MOST_BYTES).decode("utf-8", "replace"))
    except OSError as error:
        raise ServiceUnavailable(f"the witness at {address} (TACIT_WITNESS) does not answer: {error}") from error
