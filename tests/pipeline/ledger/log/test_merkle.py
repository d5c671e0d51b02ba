"""Trees, proofs and tiles against the vectors of Certificate Transparency and definitions by recursion."""

import random
from pathlib import Path

import pytest

from pipeline.ledger.log import merkle
from pipeline.ledger.log.tiles import WIDTH, Log

# Of Certificate Transparency's tests of RFC 6962: leaves, roots of the first one to eight of them, and proofs.
LEAVES = [
    bytes.fromhex(digits)
    for digits in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
PROOFS = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
# Leaf, from 0, and size of the tree.
INCLUDED = {
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (1, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
SIZES = (1, 2, 255, 256, 257, 300, 511, 512, 513, 700)


def log_of(folder: Path, *steps: int) -> Log:
    """A log that grew to these sizes, one after another, of leaves that state their place."""
    log, size = Log(folder), 0
    for step in steps:
        log.extend(size, [str(place).encode() for place in range(size, step)])
        size = step
    return log


def root_by_definition(leaves: list[bytes]) -> bytes:
    """Merkle tree hash of RFC 6962, section 2.1."""
    if len(leaves) < 2:
        return merkle.leaf_hash(leaves[0]) if leaves else merkle.EMPTY
    half = max(2**power for power in range(20) if 2**power < len(leaves))
    return merkle.node_hash(root_by_definition(leaves[:half]), root_by_definition(leaves[half:]))


@pytest.mark.parametrize("steps", [(8,), (1, 2, 3, 4, 5, 6, 7, 8), (3, 8)])
def test_roots_and_proofs_are_those_of_certificate_transparency(tmp_path: Path, steps: tuple[int, ...]):
    log, size = Log(tmp_path), 0
    for step in steps:
        root, size = log.extend(size, LEAVES[size:step]), step
        assert root.hex() == ROOTS[step - 1]
    assert merkle.root_of([*map(merkle.leaf_hash, LEAVES)]).hex() == ROOTS[-1]
    assert [log.root_at(each, 8).hex() for each in range(1, 9)] == ROOTS
    for (old, new), proof in PROOFS.items():
        smaller = log_with(tmp_path / f"{new}", LEAVES[:new])
        assert [each.hex() for each in smaller.consistency(old, new)] == proof
        roots = [bytes.fromhex(ROOTS[each - 1]) for each in (old, new)]
        assert merkle.is_consistent(old, roots[0], new, roots[1], list(map(bytes.fromhex, proof)))


def test_inclusion_proofs_are_those_of_certificate_transparency(tmp_path: Path):
    for (place, size), proof in INCLUDED.items():
        log = log_with(tmp_path / f"{size}", LEAVES[:size])
        assert [each.hex() for each in log.inclusion(place, size)] == proof
        leaf, root = merkle.leaf_hash(LEAVES[place]), bytes.fromhex(ROOTS[size - 1])
        assert merkle.is_included(leaf, place, size, root, list(map(bytes.fromhex, proof)))


def test_only_the_proof_of_a_leaf_at_its_place_verifies(tmp_path: Path):
    drawn = random.Random(8)
    log = log_of(tmp_path, 700)
    for _ in range(60):
        size = drawn.randrange(2, 701)
        place, root, other = drawn.randrange(size), log.root_at(size, 700), drawn.randbytes(32)
        leaf, proof = merkle.leaf_hash(str(place).encode()), merkle.inclusion(log.nodes(700), place, size)
        assert merkle.is_included(leaf, place, size, root, proof)
        assert not merkle.is_included(other, place, size, root, proof)
        assert not merkle.is_included(leaf, place, size, other, proof)
        assert not any(merkle.is_included(leaf, each, size, root, proof) for each in (place - 1, place + 1, -1, size))
        assert not merkle.is_included(leaf, place, size, root, [*proof, other])
        assert not merkle.is_included(leaf, place, size, root, proof[:-1])
        at = drawn.randrange(len(proof))
        assert not merkle.is_included(leaf, place, size, root, [*proof[:at], other, *proof[at + 1 :]])


def log_with(folder: Path, leaves: list[bytes]) -> Log:
    log = Log(folder)
    log.extend(0, leaves)
    return log


def test_a_log_that_grows_has_the_roots_of_the_definition(tmp_path: Path):
    log, leaves = log_of(tmp_path, *SIZES), [str(place).encode() for place in range(SIZES[-1])]
    expected = {size: root_by_definition(leaves[:size]) for size in SIZES}
    assert {size: log.root_at(size, SIZES[-1]) for size in SIZES} == expected
    nodes = merkle.nodes_of([*map(merkle.leaf_hash, leaves)])
    assert {size: merkle.subtree(nodes, 0, size) for size in SIZES} == expected
    assert list(log.leaves(SIZES[-1])) == leaves


def test_only_the_proof_of_a_tree_that_continues_another_verifies(tmp_path: Path):
    drawn = random.Random(7)
    log = log_of(tmp_path, 700)
    for _ in range(60):
        old, new = sorted(drawn.sample(range(1, 701), 2))
        proof = merkle.consistency(log.nodes(700), old, new)
        roots = log.root_at(old, 700), log.root_at(new, 700)
        assert merkle.is_consistent(old, roots[0], new, roots[1], proof)
        other = drawn.randbytes(32)
        assert not merkle.is_consistent(old, other, new, roots[1], proof)
        assert not merkle.is_consistent(old, roots[0], new, other, proof)
        assert not merkle.is_consistent(old, roots[0], new, roots[1], [*proof, other])
        assert not merkle.is_consistent(old, roots[0], new, roots[1], proof[:-1])
        assert not merkle.is_consistent(new, roots[1], old, roots[0], proof)
        at = drawn.randrange(len(proof))
        assert not merkle.is_consistent(old, roots[0], new, roots[1], [*proof[:at], other, *proof[at + 1 :]])


def test_tiles_are_the_files_of_the_format(tmp_path: Path):
    """Of tlog-tiles: a tree of 256 has a full tile, and one of width 1 above it; a full tile replaces partial ones."""
    log = log_of(tmp_path, 5, WIDTH)
    found = sorted(str(path.relative_to(tmp_path / "tile")) for path in tmp_path.rglob("*") if path.is_file())
    assert found == ["0/000", "1/000.p/1", "entries/000"]
    assert (tmp_path / "tile/0/000").read_bytes()[:32] == merkle.leaf_hash(b"0")
    assert (tmp_path / "tile/1/000.p/1").read_bytes() == log.root_at(WIDTH, WIDTH)
    assert (tmp_path / "tile/entries/000").read_bytes().startswith(b"\x00\x010\x00\x011")
    assert log.path("0", 1234067).relative_to(tmp_path).as_posix() == "tile/0/x001/x234/067"


def test_tiles_that_a_crash_left_ahead_of_the_checkpoint_change_nothing(tmp_path: Path):
    log = log_of(tmp_path, 250)
    log.extend(250, [str(place).encode() for place in range(250, 300)])  # and no checkpoint
    assert list(log.leaves(250)) == [str(place).encode() for place in range(250)]
    assert log.root_at(250, 250) == root_by_definition([str(place).encode() for place in range(250)])
    again = log.extend(250, [str(place).encode() for place in range(250, 260)])
    assert again == root_by_definition([str(place).encode() for place in range(260)])
