"""Entries of both chains as leaves of the transparency log, each signed by the ledger's key.

A leaf says which chain, which place in it and which hash, and nothing of a launch, a population or a person.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from sqlalchemy import Connection

from pipeline.ground.errors import KeyUnusable
from pipeline.ledger.entries import canonical

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

Chain = Literal["entry", "result"]
# Of a connection: who signs what its transaction writes.
_SIGNER = "signer"
# First leaf from which a key of the ledger (32 bytes) signs.
Keys = Sequence[tuple[int, bytes]]


@dataclass(frozen=True)
class Leaf:
    """An entry of a chain.

    Attributes:
      place: of the leaf in the log, from 0.
      signature: over ``message``, as hexadecimal digits.
    """

    chain: Chain
    seq: int
    hash: str
    place: int
    signature: str

    @classmethod
    def of(cls, chain: Chain, seq: int, digest: str, place: object, signature: str) -> Self:
        """A row's leaf; an altered one may state anything as its place, which is then before all others."""
        return cls(chain, seq, digest, place if isinstance(place, int) else -1, signature)

    @property
    def content(self) -> bytes:
        """Content of the leaf."""
        return content(self.chain, self.seq, self.hash)


def content(chain: Chain, seq: int, digest: str) -> bytes:
    """Content of the leaf of an entry with this hash."""
    return canonical({"chain": chain, "hash": digest, "seq": seq}).encode()


def message(chain: Chain, digest: str) -> bytes:
    """Signed bytes of an entry with this hash."""
    return f"tacit ledger {chain} {digest}".encode()


def sign_with(connection: Connection, signer: "CryptoSigner", valid: Keys) -> None:
    """Let a signer sign what transactions of a connection write."""
    connection.info[_SIGNER] = signer, valid[-1][1].hex()


def signature(connection: Connection, chain: Chain, digest: str) -> str:
    """Sign an entry's hash.

    Raises:
      KeyUnusable: the ledger names another key than the signer's, as after a rotation that was interrupted.
    """
    signer, named = connection.info[_SIGNER]
    if signer.public_key.keyval["public"] != named:
        raise KeyUnusable(
            f"the ledger's key is {named[:12]} by its entries, and the one here is "
            f"{signer.public_key.keyval['public'][:12]}: if a rotation was interrupted, repeat it: tacit ledger rotate "
            "ledger; else restore the keys (TACIT_KEYS)"
        )
    return signer.sign(message(chain, digest)).signature


def unsigned(leaves: Iterable[Leaf], keys: Keys) -> list[str]:
    """List entries that the ledger's key of their place did not sign, as messages."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    loaded = [(begin, Ed25519PublicKey.from_public_bytes(key)) for begin, key in keys]
    wrong = []
    for leaf in leaves:
        key = next(key for begin, key in reversed(loaded) if begin <= leaf.place or begin == 0)
        try:
            key.verify(bytes.fromhex(leaf.signature), message(leaf.chain, leaf.hash))
        except (InvalidSignature, ValueError, TypeError):
            wrong.append(f"{leaf.chain} {leaf.seq} ({leaf.hash[:12]}) was not signed by the ledger's key")
    return wrong
