"""The audit of a release's key: it matches the ledger's commitment, and public facts do not give it.

No test can prove that a key is secret. This one rejects keys that follow from public facts of a launch by common
constructions, and keys that the launch's code makes again for the same launch and stage, by whatever construction.
"""

import hashlib
import hmac
import itertools
from collections.abc import Iterable, Iterator

from evaluation.audit.keyed_noise import subkey
from evaluation.audit.verdict import Verdict

_BYTES = 32
# Seeds that people choose by hand.
_SEEDS = range(1 << 14)
_BETWEEN = ("", " ", "-", "_", ":", "/", "|", ",", ".", "\n")
_BEFORE = ("", "tacit ", "tacit seeded ", "tacit seeded noise ")
_VERSIONS = ("v1/", "v2/")
_SLACK = (
    "any key but the committed one; a key that its code makes again; of other keys made from public facts those of one "
    "or two facts, hashed or keyed"
)


def key_audit(key: bytes, commitment: str, facts: Iterable[str], anew: bytes, *, seeded: bool) -> Verdict:
    """The verdict on a release's key.

    Args:
      key: content of its file.
      commitment: to the key, from the reservation in the ledger; SHA-256 as hexadecimal digits.
      facts: public facts: launch id, population, locale, seed, names of stages, digests.
      anew: key that the code under audit draws for the same launch and stage in an empty folder.
      seeded: True if the launch file declares seeded noise, which anyone can subtract.
    """
    tested = "the noise's key is the one that the ledger was committed to before the release, and no public one"
    reason = ""
    if hashlib.sha256(b"tacit key commitment" + key).hexdigest() != commitment:
        reason = "the key is not the one that the ledger holds a commitment to"
    elif seeded:
        return Verdict("key", tested, _SLACK, True, "by the launch file the key follows from its seed: anyone has it")
    elif key == anew or is_public(key, facts):
        reason = "the key follows from what everybody knows of the launch"
    return Verdict("key", tested, _SLACK, not reason, reason)


def seeded_key(seed: int, stage: str) -> bytes:
    """The key of a stage whose launch file declares a seed; no file holds it."""
    return hashlib.sha256(f"tacit seeded {seed} {stage}".encode()).digest()


def is_public(key: bytes, facts: Iterable[str]) -> bool:
    """Return whether a key is constant, short, or made of ``facts``."""
    return len(key) != _BYTES or len(set(key)) <= 2 or key in _counting() or key in _derived(tuple(facts))


def _counting() -> set[bytes]:
    upwards = bytes(range(256)) * 2
    found = {upwards[start : start + _BYTES] for start in range(256)}
    return found | {way[::-1] for way in found}


def _derived(facts: tuple[str, ...]) -> set[bytes]:
    return {
        *(key for text in _texts(facts) for key in _keys(text)),
        *(hashlib.sha256(f"{before}{seed}".encode()).digest() for seed in _SEEDS for before in _BEFORE),
        *(key for one, other in itertools.product(facts, repeat=2) for key in _keyed(one.encode(), other)),
    }


def _texts(facts: tuple[str, ...]) -> Iterator[bytes]:
    together = (between.join(pair) for pair in itertools.permutations(facts, 2) for between in _BETWEEN)
    for text in itertools.chain(facts, together):
        yield from ((before + text).encode() for before in (*_BEFORE, *_VERSIONS))
    for text in facts:
        try:
            yield bytes.fromhex(text)
        except ValueError:
            continue


def _keys(text: bytes) -> Iterator[bytes]:
    yield hashlib.sha256(text).digest()
    yield hashlib.sha3_256(text).digest()
    yield hashlib.blake2s(text).digest()
    yield hashlib.blake2b(text, digest_size=_BYTES).digest()
    yield hashlib.sha512(text).digest()[:_BYTES]
    yield hashlib.md5(text, usedforsecurity=False).hexdigest().encode()
    yield text[:_BYTES].ljust(_BYTES, b"\0")
    yield text[:_BYTES].rjust(_BYTES, b"\0")


def _keyed(one: bytes, other: str) -> Iterator[bytes]:
    yield hmac.digest(one, other.encode(), hashlib.sha256)
    yield subkey(one, other)
