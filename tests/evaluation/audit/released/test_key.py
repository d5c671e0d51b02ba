"""The audit of a release's key: the committed one passes, another one and every public one do not."""

import hashlib
import hmac

import pytest

from evaluation.audit.released.key import key_audit
from pretrain.randomness.noise import seeded_key

FACTS = ("en-us-chat-2026-11-25-1a2b3c4d", "made_up:people", "en-US", "5", "discover", "count", "9" * 64)
ANEW = hashlib.sha256(b"as its code draws another").digest()
SECRET = hashlib.sha256(b"drawn once, and named by no launch").digest()


def commitment(key: bytes) -> str:
    return hashlib.sha256(b"tacit key commitment" + key).hexdigest()


def test_the_committed_key_passes_and_another_one_does_not() -> None:
    assert key_audit(SECRET, commitment(SECRET), FACTS, ANEW, seeded=False).passed
    assert not key_audit(SECRET, commitment(SECRET[::-1]), FACTS, ANEW, seeded=False).passed
    assert not key_audit(SECRET, commitment(SECRET[::-1]), FACTS, ANEW, seeded=True).passed


PUBLIC = {
    "the launch id": hashlib.sha256(FACTS[0].encode()).digest(),
    "the launch id, cut": FACTS[0].encode()[:32].ljust(32, b"\0"),
    "population and stage": hashlib.sha256(f"{FACTS[1]}|{FACTS[4]}".encode()).digest(),
    "stage under the launch id": hmac.digest(FACTS[0].encode(), FACTS[4].encode(), hashlib.sha256),
    "the configuration's digest": bytes.fromhex(FACTS[6]),
    "a seed": seeded_key(2**13),
    "as a seeded launch": hashlib.sha256(b"tacit seeded 5 discover").digest(),
    "launch and stage under a version": hashlib.sha256(f"v2/{FACTS[0]}{FACTS[4]}".encode()).digest(),
    "zeros": bytes(32),
    "counting": bytes(range(32)),
}


@pytest.mark.parametrize("public", PUBLIC)
def test_a_key_that_anyone_can_make_is_refused_unless_the_launch_file_declares_it(public: str) -> None:
    key = PUBLIC[public]
    verdict = key_audit(key, commitment(key), FACTS, ANEW, seeded=False)
    assert not verdict.passed
    assert "everybody knows" in verdict.sentence
    declared = key_audit(key, commitment(key), FACTS, ANEW, seeded=True)
    assert declared.passed
    assert "anyone has it" in declared.sentence


def test_a_key_that_its_code_makes_again_is_refused_by_whatever_it_is_made() -> None:
    verdict = key_audit(SECRET, commitment(SECRET), FACTS, SECRET, seeded=False)
    assert not verdict.passed
    assert "everybody knows" in verdict.sentence
    assert key_audit(SECRET, commitment(SECRET), FACTS, SECRET, seeded=True).passed
