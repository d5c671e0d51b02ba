"""The tree a binary dictionary keeps its words in: nodes of several characters, placed in the file.

An array holds the nodes that may come next, ordered by code point. Arrays stand in the file depth first, each
before those of its children, as keyboards count on it to spell the word at an address (``flattenTree``).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from pretrain.dictionary.content import Word

MOST_NODES = 0x7FFF
_FARTHEST = (0xFF, 0xFFFF, 0xFFFFFF)


@dataclass
class Node:
    """Characters that all words below share; a word ends here if ``word`` is there.

    Attributes:
      head: bytes from the flags up to the children's address.
      address: of the flags, from the end of the file's header; ``place`` sets it.
      child_size, bigram_sizes: bytes of each address this node writes down, 1 to 3; 0 without children.
    """

    characters: str
    word: Word | None
    children: "Array | None"
    head: int
    address: int = 0
    child_size: int = 0
    bigram_sizes: list[int] = field(default_factory=list)

    @property
    def child_field(self) -> int:
        """Place of the children's address; the address counts from there."""
        return self.address + self.head

    @property
    def bigram_fields(self) -> list[int]:
        """Places of the bigrams' addresses, each behind one byte of flags; an address counts from there."""
        starts = itertools.accumulate(self.bigram_sizes, lambda start, size: start + size + 1, initial=0)
        return [self.child_field + self.child_size + 1 + start for start in starts][: len(self.bigram_sizes)]

    @property
    def end(self) -> int:
        """Address behind the node."""
        return self.child_field + self.child_size + sum(self.bigram_sizes) + len(self.bigram_sizes)


@dataclass
class Array:
    """Nodes that may come next, and where their number stands."""

    nodes: list[Node]
    address: int = 0

    @property
    def count_size(self) -> int:
        """Bytes of the number of nodes."""
        return 1 if len(self.nodes) <= 0x7F else 2


def text_size(text: str) -> int:
    """Bytes of a text: one for a character from 0x20 to 0xFF, three for any other."""
    return sum(1 if 0x20 <= ord(character) <= 0xFF else 3 for character in text)


def build(words: dict[str, Word]) -> tuple[list[Array], dict[str, Node]]:
    """Arrays in the order of the file, the root first, and the node that each word ends in.

    Raises:
      ValueError: more nodes in one array than the format counts.
    """
    arrays: list[Array] = []
    ends: dict[str, Node] = {}

    def grow(texts: Sequence[str], depth: int) -> Array:
        array = Array([])
        arrays.append(array)
        for _, group in itertools.groupby(texts, key=lambda text: text[depth]):
            below = list(group)
            shared = _shared(below[0], below[-1])
            word = words[shared] if below[0] == shared else None
            rest = below[1:] if word else below
            text = shared[depth:]
            head = 1 + text_size(text) + (len(text) > 1) + (word is not None)
            node = Node(text, word, grow(rest, len(shared)) if rest else None, head)
            array.nodes.append(node)
            if word:
                ends[shared] = node
        if len(array.nodes) > MOST_NODES:
            raise ValueError(f"words: {len(array.nodes)} characters can follow one another; at most {MOST_NODES} can")
        return array

    grow(sorted(words), 0)
    return arrays, ends


def _shared(first: str, last: str) -> str:
    """Common prefix of sorted texts, from the first and the last of them."""
    for place, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:place]
    return first


def place(arrays: Sequence[Array], ends: dict[str, Node]) -> int:
    """Give every node its address and every address the fewest bytes; returns the size of all.

    Addresses begin with three bytes and shrink until none can shrink further, so that the sizes are the largest
    that agree with themselves: AOSP's ``computeAddresses`` ends at the same ones.

    Raises:
      ValueError: two nodes lie further apart than three bytes can say.
    """
    nodes = [node for array in arrays for node in array.nodes]
    for node in nodes:
        node.child_size = 3 if node.children else 0
        node.bigram_sizes = [3] * len(node.word.bigrams if node.word else ())
    while True:
        position = 0
        for array in arrays:
            array.address = position
            position += array.count_size
            for node in array.nodes:
                node.address = position
                position = node.end
        # All new sizes follow from the same addresses.
        sizes = [_sizes(node, ends) for node in nodes]
        settled = True
        for node, (child_size, bigram_sizes) in zip(nodes, sizes, strict=True):
            settled &= (child_size, bigram_sizes) == (node.child_size, node.bigram_sizes)
            node.child_size, node.bigram_sizes = child_size, bigram_sizes
        if settled:
            return position


def _sizes(node: Node, ends: dict[str, Node]) -> tuple[int, list[int]]:
    child = _size(node.children.address - node.child_field) if node.children else 0
    followers = node.word.bigrams if node.word else ()
    pairs = zip(followers, node.bigram_fields, strict=True)
    return child, [_size(ends[follower].address - origin) for follower, origin in pairs]


def _size(offset: int) -> int:
    for size, farthest in enumerate(_FARTHEST, start=1):
        if abs(offset) <= farthest:
            return size
    raise ValueError(
        f"words: an address spans {abs(offset)} bytes, three bytes end at {_FARTHEST[-1]}; use fewer words"
    )
