"""Proofs of inclusion as files: what was written is read back, and nothing else is one."""

from pathlib import Path

import pytest

from pipeline.ledger.log.note import Checkpoint, Inclusion, Signed
from pipeline.ledger.log.tiles import Log

_SIGNATURE = "\N{EM DASH} the/log AAAA"


def proof_of(folder: Path, index: int, size: int) -> Inclusion:
    log = Log(folder)
    root = log.extend(0, [str(place).encode() for place in range(size)])
    signed = Signed(Checkpoint("the/log", size, root), (_SIGNATURE,))
    return Inclusion(index, tuple(log.inclusion(index, size)), signed, b"{}")


@pytest.mark.parametrize(("index", "size"), [(0, 1), (0, 300), (299, 300), (256, 300)])
def test_a_proof_is_read_back_and_holds_for_its_leaf_alone(tmp_path: Path, index: int, size: int):
    made = proof_of(tmp_path, index, size)
    assert Inclusion.parsed(made.text) == made
    assert made.text.startswith(f"c2sp.org/tlog-proof@v1\nextra e30=\nindex {index}\n")
    assert made.text.endswith(f"\n\n{made.signed.note}")
    assert made.holds(str(index).encode())
    assert not made.holds(str(index + 1).encode())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tlog-proof@v1", "tlog-proof@v2"),
        ("index 5", "index 05"),
        ("index 5", "index -5"),
        ("index 5", "place 5"),
        ("extra e30=", "extra e30"),
        ("extra e30=\n", ""),
        ("index 5\n", "index 5\nAAAA\n"),
        ("index 5\n", "index 5\n" + ("A" * 43 + "=\n") * 64),
        ("the/log\n", ""),
        ("\n\n", "\n"),
    ],
)
def test_a_file_of_another_form_is_no_proof(tmp_path: Path, old: str, new: str):
    made = proof_of(tmp_path, 5, 9).text
    assert old in made
    with pytest.raises(ValueError, match=r"not a (proof of inclusion|checkpoint)|base64|padding"):
        Inclusion.parsed(made.replace(old, new, 1))
