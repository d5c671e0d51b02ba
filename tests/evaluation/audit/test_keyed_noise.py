"""The audit's own noise: committed vectors, the mapping's definition in long arithmetic, and the maker's bits.

The vectors were made once, by the maker's generator, when the audit had none yet:

    .venv/stages/bin/python -m tests.evaluation.audit.test_keyed_noise > tests/evaluation/audit/keyed_noise.json
"""

import hashlib
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from evaluation.audit import keyed_noise
from pretrain.randomness import noise

KEY = bytes(range(32))
VECTORS = Path(__file__).with_name("keyed_noise.json")
STREAMS = (("counts", 0, 70_001), ("tree/3", 11, 5), ("evaluation", 2**40, 4096))


def vectors() -> list[dict[str, object]]:
    """Numbers of each of ``STREAMS``: the first ones, and the digest of all."""
    made = []
    for stream, index, size in STREAMS:
        drawn = noise.gaussian(KEY, stream, index, size)
        first = [float(value).hex() for value in drawn[:5]]
        digest = hashlib.sha256(drawn.astype("<f8").tobytes()).hexdigest()
        made.append({"stream": stream, "index": index, "size": size, "first": first, "sha256": digest})
    return made


@pytest.mark.parametrize("generator", [keyed_noise.gaussian, noise.gaussian], ids=["audit", "maker"])
def test_numbers_are_those_of_the_committed_vectors(generator) -> None:
    for row in json.loads(VECTORS.read_text(encoding="utf-8")):
        drawn = generator(KEY, row["stream"], row["index"], row["size"])
        assert [float(value).hex() for value in drawn[:5]] == row["first"]
        assert hashlib.sha256(drawn.astype("<f8").tobytes()).hexdigest() == row["sha256"]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 2**15 - 1, 2**15, 2**15 + 1, 100_003])
def test_bits_are_the_maker_s_at_any_size(size: int) -> None:
    drawn = keyed_noise.gaussian(KEY, "any size", 7, size)
    assert drawn.tobytes() == noise.gaussian(KEY, "any size", 7, size).tobytes()


def test_words_far_out_and_at_every_quarter_map_to_the_maker_s_normals() -> None:
    words_N2 = np.array(
        [[a, b] for a in (0, 1, 3, 2**52, 2**53 - 1, 2**53, 2**63, 2**64 - 1) for b in range(0, 2**64, 2**60 - 1)],
        dtype=np.uint64,
    )
    rare = int((words_N2[:, 0] < 2**53).sum())
    further = np.arange(rare, dtype=np.uint64) * np.uint64(2**56 + 1)
    assert keyed_noise.normals(words_N2, further).tobytes() == noise.box_muller(words_N2, further).tobytes()


@pytest.mark.parametrize("word", [0, 5, 2**53 - 1, 2**53, 2**60 + 2**8, 2**64 - 1])
def test_radii_and_angles_are_those_of_box_and_muller(word: int) -> None:
    """Against whole numbers of any length, and the system's sine."""
    further = np.array([2**40] if word < 2**53 else [], dtype=np.uint64)
    more = 2**40 if word < 2**53 else 2**64 - 1
    radius = math.sqrt(2 * (128 * math.log(2) - math.log(word * 2**64 + more + 1)))
    for angle in (0, 2**61, 3 * 2**60 + 17, 2**63, 2**64 - 2**11):
        (across, up), *_ = keyed_noise.normals(np.array([[word, angle]], dtype=np.uint64), further).tolist()
        turn = 2 * math.pi * angle / 2**64
        assert across == pytest.approx(radius * math.cos(turn), rel=1e-13, abs=1e-14)
        assert up == pytest.approx(radius * math.sin(turn), rel=1e-13, abs=1e-14)


@pytest.mark.parametrize("deviation", [0.3, 0.5, 1.0, 1 - 2**-53, 2.0**44 * 0.8, 2.0**44 * (1 - 2**-53), 3.7e-12])
def test_the_lattice_is_the_maker_s(deviation: float) -> None:
    noisy = deviation * keyed_noise.gaussian(KEY, "lattice", 0, 1000)
    assert keyed_noise.lattice(noisy, deviation).tobytes() == noise.on_grid(noisy, deviation).tobytes()


def test_keys_are_derived_as_rfc_5869_says() -> None:
    """Its test case 3: neither salt nor info; the first 32 of 42 bytes."""
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert keyed_noise.subkey(b"\x0b" * 22, "").hex() == expected
    assert keyed_noise.subkey(KEY, "tree/0") == noise.subkey(KEY, "tree/0")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(vectors(), indent=1) + "\n")
