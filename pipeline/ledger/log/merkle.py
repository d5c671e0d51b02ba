"""Merkle trees of RFC 6962: hashes, roots, inclusion and consistency proofs, of whichever nodes a log keeps.

Leaves and nodes have different first bytes, so no node passes for a leaf. Proofs are those of RFC 9162, sections 2.1.3
(inclusion) and 2.1.4 (consistency).
"""

import hashlib
from collections.abc import Callable, Sequence

# Level and index of a complete subtree -> its hash; level 0 are leaves.
Nodes = Callable[[int, int], bytes]
EMPTY = hashlib.sha256(b"").digest()


def leaf_hash(content: bytes) -> bytes:
    """Hash of a leaf, 32 bytes."""
    return hashlib.sha256(b"\x00" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of the node above two hashes."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def nodes_of(leaves: Sequence[bytes]) -> Nodes:
    """Hashes of complete subtrees of a tree of these leaf hashes."""
    levels = [leaves]
    while len(lower := levels[-1]) > 1:
        levels.append([node_hash(left, right) for left, right in zip(lower[::2], lower[1::2], strict=False)])
    return lambda level, index: levels[level][index]


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Root of a tree of these leaf hashes."""
    return subtree(nodes_of(leaves), 0, len(leaves))


def subtree(nodes: Nodes, begin: int, end: int) -> bytes:
    """Merkle tree hash of the leaves from ``begin`` to before ``end``."""
    size = end - begin
    if size == 0:
        return EMPTY
    if size & (size - 1) == 0 and begin % size == 0:
        level = size.bit_length() - 1
        return nodes(level, begin >> level)
    half = _half(size)
    return node_hash(subtree(nodes, begin, begin + half), subtree(nodes, begin + half, end))


def inclusion(nodes: Nodes, place: int, size: int) -> list[bytes]:
    """Proof that the tree of the first ``size`` leaves has a leaf at ``place``, from 0: the hashes beside its path."""
    begin, end, path = 0, size, list[bytes]()
    while end - begin > 1:
        half = begin + _half(end - begin)
        if place < half:
            path.append(subtree(nodes, half, end))
            end = half
        else:
            path.append(subtree(nodes, begin, half))
            begin = half
    return path[::-1]


def is_included(leaf: bytes, place: int, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Verify an inclusion proof of a leaf hash (RFC 9162, section 2.1.3.2)."""
    if not 0 <= place < size:
        return False
    at, last, made = place, size - 1, leaf
    for each in proof:
        if last == 0:
            return False
        if at & 1 or at == last:
            made = node_hash(each, made)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            made = node_hash(made, each)
        at, last = at >> 1, last >> 1
    return (made, last) == (root, 0)


def consistency(nodes: Nodes, old: int, new: int) -> list[bytes]:
    """Proof that the tree of the first ``old`` leaves begins the one of the first ``new``."""
    return [] if old in (0, new) else _proof(nodes, old, 0, new, whole=True)


def _proof(nodes: Nodes, old: int, begin: int, end: int, *, whole: bool) -> list[bytes]:
    """SUBPROOF of RFC 9162: ``old`` counts from ``begin``; a ``whole`` old tree is known to who verifies."""
    size = end - begin
    if old == size:
        return [] if whole else [subtree(nodes, begin, end)]
    half = _half(size)
    if old <= half:
        return [*_proof(nodes, old, begin, begin + half, whole=whole), subtree(nodes, begin + half, end)]
    right = _proof(nodes, old - half, begin + half, end, whole=False)
    return [*right, subtree(nodes, begin, begin + half)]


def is_consistent(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Verify a proof (RFC 9162, section 2.1.4.2)."""
    if old > new:
        return False
    if old == new:
        return not proof and old_root == new_root
    if old == 0:
        return not proof and old_root == EMPTY
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not path:
        return False
    first, last = old - 1, new - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    of_old = of_new = path[0]
    for each in path[1:]:
        if last == 0:
            return False
        if first & 1 or first == last:
            of_old, of_new = node_hash(each, of_old), node_hash(each, of_new)
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            of_new = node_hash(of_new, each)
        first, last = first >> 1, last >> 1
    return (of_old, of_new, last) == (old_root, new_root, 0)


def _half(size: int) -> int:
    """Largest power of two below a size of at least 2."""
    return 1 << ((size - 1).bit_length() - 1)
