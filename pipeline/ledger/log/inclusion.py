"""Proof that a log has a leaf, verified offline, in the format of C2SP (tlog-proof): ``NAME.tlog-proof``.

c2sp.org/tlog-proof@v1
extra BASE64            data of the application, which nothing authenticates
index 7                 place of the leaf in the tree, from 0
BASE64                  hashes of the inclusion proof
                        an empty line, and the checkpoint with its signatures
"""

import base64
from dataclasses import dataclass
from typing import Self

from pipeline.ledger.log import merkle
from pipeline.ledger.log.note import Signed

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
        lines = [_FORMAT, f"extra {_encoded(self.extra)}", f"index {self.index}", *map(_encoded, self.path), ""]
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


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
