"""Signed notes, checkpoints and cosignatures in the formats of C2SP (signed-note, tlog-checkpoint, tlog-cosignature).

A checkpoint is the size and the root of a log's tree, signed by the log; a witness adds a cosignature with its time.

A proof that a log has a leaf, verified offline, is a file ``NAME.tlog-proof`` (tlog-proof):

c2sp.org/tlog-proof@v1
extra BASE64            data of the application, which nothing authenticates
index 7                 place of the leaf in the tree, from 0
BASE64                  hashes of the inclusion proof
                        an empty line, and the checkpoint with its signatures
"""

import base64
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pipeline.ledger.log import merkle

_DASH = "\N{EM DASH}"
ED25519, COSIGNATURE = b"\x01", b"\x04"  # types of keys: of a log, and of a witness
_ID_BYTES, _TIME_BYTES, _ROOT_BYTES = 4, 8, 32
MOST_BYTES = 1 << 16
_HEAD_LINES, _BLANKS = 3, 2  # of a text without extensions; between the words of a signature line


@dataclass(frozen=True)
class Checkpoint:
    """Head of a log's tree.

    Attributes:
      origin: name of the log.
      root: hash of the tree, 32 bytes.
    """

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The note's text, which is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


@dataclass(frozen=True)
class Signed:
    """A checkpoint with its signature lines."""

    checkpoint: Checkpoint
    lines: tuple[str, ...]

    @classmethod
    def parsed(cls, note: str) -> Self:
        """Parse a note.

        Raises:
          ValueError: it is no checkpoint.
        """
        text, blank, signatures = note.rpartition("\n\n")
        head = text.split("\n")
        if (
            not blank
            or len(note) > MOST_BYTES
            or not signatures.endswith("\n")
            or len(head) != len(("origin", "2", "3"))
        ):
            raise ValueError("not a checkpoint with an origin, a size, a root and signatures")
        origin, size, root = head[0], head[1], base64.b64decode(head[2], validate=True)
        if not origin or not size.isdecimal() or str(int(size)) != size or len(root) != _ROOT_BYTES:
            raise ValueError("not a checkpoint: its size or its root cannot be read")
        lines = tuple(signatures.removesuffix("\n").split("\n"))
        if not all(
            line.startswith(f"{_DASH} ") and len(line.split(" ")) == len(("dash", "name", "3")) for line in lines
        ):
            raise ValueError("not a checkpoint: a line under it is no signature")
        return cls(Checkpoint(origin, int(size), root), lines)

    @property
    def note(self) -> str:
        """The whole text, as it is kept and sent."""
        return f"{self.checkpoint.text}\n" + "".join(f"{line}\n" for line in self.lines)

    def by(self, name: str) -> Self:
        """The same checkpoint with the signatures of one name alone."""
        return type(self)(self.checkpoint, tuple(line for line in self.lines if line.split(" ")[1] == name))

    def with_lines(self, lines: Iterable[str]) -> Self:
        """The same checkpoint with further signatures."""
        return type(self)(self.checkpoint, (*self.lines, *lines))

    def is_signed_by(self, keys: Iterable[bytes]) -> bool:
        """True if one of the log's keys (32 bytes each) signed it; a wrong signature under a known key is none."""
        return any(
            verifies(key, signature, self.checkpoint.text.encode())
            for key in keys
            for signature in self._signatures(self.checkpoint.origin, ED25519, key)
        )

    def cosigned_at(self, name: str, keys: Iterable[bytes]) -> int | None:
        """Time of a witness' cosignature, in seconds since 1970; None without a valid one."""
        for key in keys:
            for stamped in self._signatures(name, COSIGNATURE, key):
                time, signature = int.from_bytes(stamped[:_TIME_BYTES], "big"), stamped[_TIME_BYTES:]
                if verifies(key, signature, _cosigned(time, self.checkpoint)):
                    return time
        return None

    def _signatures(self, name: str, kind: bytes, key: bytes) -> Iterable[bytes]:
        begin = _key_id(name, kind, key)
        for line in self.lines:
            _, named, encoded = line.split(" ")
            try:
                content = base64.b64decode(encoded, validate=True)
            except ValueError:
                continue  # of a key that is not known
            if named == name and content[:_ID_BYTES] == begin:
                yield content[_ID_BYTES:]


def sign(checkpoint: Checkpoint, public: bytes, signs: Callable[[bytes], bytes]) -> str:
    """Signature line of the log.

    Args:
      public: the log's public key, 32 bytes.
      signs: signs a message with its private key, 64 bytes.
    """
    return _line(checkpoint.origin, _key_id(checkpoint.origin, ED25519, public) + signs(checkpoint.text.encode()))


def cosign(checkpoint: Checkpoint, name: str, key: Ed25519PrivateKey, time: int) -> str:
    """Signature line of a witness: as of ``time``, this is the largest consistent tree that it has seen of the log."""
    public, signature = key.public_key().public_bytes_raw(), key.sign(_cosigned(time, checkpoint))
    return _line(name, _key_id(name, COSIGNATURE, public) + time.to_bytes(_TIME_BYTES, "big") + signature)


def verifier_key(name: str, kind: bytes, key: bytes) -> str:
    """A public key as other tools take it: its name, its id and itself (signed-note, verifier keys)."""
    return f"{name}+{_key_id(name, kind, key).hex()}+{base64.b64encode(kind + key).decode()}"


def parsed_key(text: str) -> tuple[str, bytes]:
    """Name and bytes of a verifier key.

    Raises:
      ValueError: it is none.
    """
    name, _, encoded = text.split("+", 2)
    kind_and_key = base64.b64decode(encoded, validate=True)
    kind, key = kind_and_key[:1], kind_and_key[1:]
    if verifier_key(name, kind, key) != text:
        raise ValueError(f"{text}: not a verifier key, whose id follows from its name and the key")
    return name, key


def _cosigned(time: int, checkpoint: Checkpoint) -> bytes:
    return f"cosignature/v1\ntime {time}\n{checkpoint.text}".encode()


def _line(name: str, content: bytes) -> str:
    return f"{_DASH} {name} {base64.b64encode(content).decode()}"


def _key_id(name: str, kind: bytes, key: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + kind + key).digest()[:_ID_BYTES]


def verifies(key: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether an Ed25519 key of 32 bytes signed a message."""
    try:
        _loaded(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


_loaded = cache(Ed25519PublicKey.from_public_bytes)


SUFFIX = ".tlog-proof"
_FORMAT = "c2sp.org/tlog-proof@v1"
_MOST_HASHES, _HASH_BYTES = 63, 32


@dataclass(frozen=True)
class Inclusion:
    """Place of a leaf, and the proof of it.

    Attributes:
      path: hashes beside the leaf's path to the root, 32 bytes each.
      extra: data of the application; a reader relies on it only as far as the leaf does.
    """

    index: int
    path: tuple[bytes, ...]
    signed: Signed
    extra: bytes

    @property
    def text(self) -> str:
        """Content of the file."""
        lines = [_FORMAT, f"extra {_based(self.extra)}", f"index {self.index}", *map(_based, self.path), ""]
        return "".join(f"{line}\n" for line in lines) + self.signed.note

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Parse a file.

        Raises:
          ValueError: it is no proof of inclusion.
        """
        head, _, note = text.partition("\n\n")
        form, *lines = head.split("\n")
        words = [line.split(" ") for line in lines[:2]]
        if form != _FORMAT or [each[0] for each in words] != ["extra", "index"] or {*map(len, words)} != {2}:
            raise ValueError(f"not a proof of inclusion: {_FORMAT}, a line `extra` and a line `index`")
        index, path = words[1][1], tuple(base64.b64decode(line, validate=True) for line in lines[2:])
        if not index.isdecimal() or str(int(index)) != index:
            raise ValueError("not a proof of inclusion: its index is no number")
        if len(path) > _MOST_HASHES or any(len(each) != _HASH_BYTES for each in path):
            raise ValueError(
                f"not a proof of inclusion: more than {_MOST_HASHES} hashes, or not of {_HASH_BYTES} bytes"
            )
        return cls(int(index), path, Signed.parsed(note), base64.b64decode(words[0][1], validate=True))

    def holds(self, leaf: bytes) -> bool:
        """True if the checkpoint's tree has a leaf of this content at the index; its signatures are the caller's."""
        head = self.signed.checkpoint
        return merkle.is_included(merkle.leaf_hash(leaf), self.index, head.size, head.root, self.path)


def _based(content: bytes) -> str:
    return base64.b64encode(content).decode()
