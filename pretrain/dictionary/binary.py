"""The binary dictionary format, version 202, of LatinIME, HeliBoard, OpenBoard and FUTO.

    header    0x9BC13AFE, version (2 bytes), options (2), size of the header (4), then name and value of each
              attribute, each ended by 0x1F
    array     number of nodes: 1 byte, or 2 with the highest bit set; then the nodes
    node      flags; its characters, ended by 0x1F if several; frequency if a word ends here; address of its
              children's array; bigrams, if any
    bigram    flags with the four bits of its frequency; address of the node where the word that follows ends

Numbers are big-endian, addresses count from where they stand. Laid out as AOSP's ``FormatSpec`` says; no code of it
is here. Shortcuts and tables of code points, which the format also knows, are neither written nor read.
"""

from dataclasses import dataclass, field

from pretrain.dictionary.content import MAX_WORD_LENGTH, Dictionary, Word, bigram_level, read_frequency
from pretrain.dictionary.trie import Node, build, place

MAGIC, VERSION = 0x9BC13AFE, 202
_FIXED_HEADER = 12
_END = 0x1F
_LARGE_COUNT = 0x80
_SIZE_SHIFT, _SEVERAL, _TERMINAL, _SHORTCUTS, _BIGRAMS, _NOT_A_WORD, _OFFENSIVE = 6, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01
_MORE, _BACKWARDS, _BIGRAM_SIZE_SHIFT, _LEVEL = 0x80, 0x40, 4, 0x0F
_CODE_POINTS = "codePointTable"


def to_bytes(dictionary: Dictionary) -> bytes:
    """The file's content.

    Raises:
      ValueError: too many words for the format's addresses.
    """
    header = b"".join(_text(part) + bytes([_END]) for pair in dictionary.attributes.items() for part in pair)
    fixed = _number(MAGIC, 4) + _number(VERSION, 2) + _number(0, 2) + _number(_FIXED_HEADER + len(header), 4)
    arrays, ends = build(dictionary.words)
    size = place(arrays, ends)
    body = []
    for array in arrays:
        count = len(array.nodes)
        body.append(_number(count if array.count_size == 1 else count | _LARGE_COUNT << 8, array.count_size))
        body += [_node(node, ends) for node in array.nodes]
    nodes = b"".join(body)
    assert len(nodes) == size, "a node is not as long as it was placed"
    return fixed + header + nodes


def _node(node: Node, ends: dict[str, Node]) -> bytes:
    word, several = node.word, len(node.characters) > 1
    flags = node.child_size << _SIZE_SHIFT | _SEVERAL * several | _TERMINAL * (word is not None)
    if word:
        flags |= _BIGRAMS * bool(word.bigrams) | _NOT_A_WORD * word.not_a_word | _OFFENSIVE * word.possibly_offensive
    content = bytes([flags]) + _text(node.characters) + bytes([_END] * several)
    if word:
        content += bytes([word.frequency])
    if node.children:
        content += _number(node.children.address - node.child_field, node.child_size)
    for number, (follower, frequency) in enumerate(word.bigrams.items() if word else ()):
        target, size = ends[follower], node.bigram_sizes[number]
        assert target.word is not None, "a word ends here"
        offset = target.address - node.bigram_fields[number]
        flags = bigram_level(target.word.frequency, frequency) | size << _BIGRAM_SIZE_SHIFT
        flags |= _MORE * (number + 1 < len(node.bigram_sizes)) | _BACKWARDS * (offset < 0)
        content += bytes([flags]) + _number(abs(offset), size)
    return content


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big")


def _text(text: str) -> bytes:
    return b"".join(_number(ord(character), 1 if 0x20 <= ord(character) <= 0xFF else 3) for character in text)


@dataclass
class _Reader:
    """Bytes, and how far they were read."""

    content: bytes
    position: int = 0

    def number(self, size: int) -> int:
        self.position += size
        if self.position > len(self.content):
            raise ValueError(f"dict: ends in the middle, after {len(self.content)} bytes; copy the file again")
        return int.from_bytes(self.content[self.position - size : self.position], "big")

    def character(self) -> str | None:
        """The next character; None at the end of a text."""
        first = self.number(1)
        if first == _END:
            return None
        code = first if first >= 0x20 else first << 16 | self.number(2)
        if code > 0x10FFFF:
            raise ValueError(f"dict: no character is {code:#x}; the file is damaged, copy it again")
        return chr(code)

    def text(self) -> str:
        return "".join(iter(self.character, None))


@dataclass
class _Words:
    """Entries read until now: words by the address of the node that they end in, bigrams as (address, level)."""

    texts: dict[int, str] = field(default_factory=dict)
    words: dict[str, Word] = field(default_factory=dict)
    bigrams: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def from_bytes(content: bytes) -> Dictionary:
    """Read a dictionary; bigrams get the frequency that a keyboard reads.

    Raises:
      ValueError: not such a file, a damaged one, or one with shortcuts or a table of code points.
    """
    header = _Reader(content)
    magic, version, _, size = (header.number(size) for size in (4, 2, 2, 4))
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError(
            f"dict: begins with {magic:#x} and version {version}; give a LatinIME file of version {VERSION}"
        )
    attributes = {}
    while header.position < size:
        name = header.text()
        attributes[name] = header.text()
    if header.position != size or _CODE_POINTS in attributes:
        raise ValueError(f"dict: its header is damaged or holds {_CODE_POINTS}; give a dictionary made without a table")
    body, read = _Reader(content[size:]), _Words()
    _read_array(body, read, "")
    for text, listed in read.bigrams.items():
        for address, level in listed:
            if address not in read.texts:
                raise ValueError(f"dict: {text!r} is followed by no word at {address:#x}; copy the file again")
            follower = read.texts[address]
            read.words[text].bigrams[follower] = read_frequency(read.words[follower].frequency, level)
    return Dictionary(attributes, read.words)


def _read_array(body: _Reader, read: _Words, prefix: str) -> None:
    count = body.number(1)
    if count & _LARGE_COUNT:
        count = (count & ~_LARGE_COUNT) << 8 | body.number(1)
    for _ in range(count):
        children = _read_node(body, read, prefix)
        if children:
            text, address = children
            behind, body.position = body.position, address
            _read_array(body, read, text)
            body.position = behind


def _read_node(body: _Reader, read: _Words, prefix: str) -> tuple[str, int] | None:
    """Read one node; returns its text and its children's address, if it has any."""
    address, flags = body.position, body.number(1)
    text = prefix + (body.text() if flags & _SEVERAL else body.character() or "")
    if flags & _SHORTCUTS or not len(prefix) < len(text) <= MAX_WORD_LENGTH:
        raise ValueError(f"dict: the node after {prefix!r} holds shortcuts or is damaged; give a dictionary without")
    if flags & _TERMINAL:
        read.texts[address] = text
        word = Word(body.number(1), {}, bool(flags & _NOT_A_WORD), bool(flags & _OFFENSIVE))
        read.words[text] = word
    origin, size = body.position, flags >> _SIZE_SHIFT
    children = (text, origin + body.number(size)) if size else None
    if flags & _BIGRAMS:
        read.bigrams[text] = list(_read_bigrams(body))
    return children


def _read_bigrams(body: _Reader) -> list[tuple[int, int]]:
    bigrams, more = [], True
    while more:
        flags = body.number(1)
        origin = body.position
        offset = body.number(flags >> _BIGRAM_SIZE_SHIFT & 3)
        bigrams.append((origin - offset if flags & _BACKWARDS else origin + offset, flags & _LEVEL))
        more = bool(flags & _MORE)
    return bigrams
