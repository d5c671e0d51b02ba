"""Bytes of the binary form: by hand from AOSP's ``FormatSpec``, and back again for any dictionary.

What was compared with published files and with AOSP's own encoder, none of which are kept here, stands in LOG.md
and in commit fde30554.
"""

import pytest
from hypothesis import HealthCheck, given, settings

from pretrain.dictionary.binary import from_bytes, to_bytes
from pretrain.dictionary.content import Dictionary, Word
from tests.helpers.text.dictionaries import HEADER, SMALL, dictionaries

# Magic, version 202, no options, 51 bytes in all; then names and values, each ended by 1F.
HEADER_BYTES = (
    bytes.fromhex("9BC13AFE 00CA 0000 00000033") + b"dictionary\x1fmain:en\x1flocale\x1fen\x1fversion\x1f1\x1f"
)
SMALL_NODES = bytes.fromhex(
    "03"  # 0: three nodes
    # 1: 40 children's address of one byte, 20 several characters, 10 a word, 04 bigrams; s e e, end; frequency 150
    "74 73 65 65 1F 96"
    "10"  # 7: children 16 further, at 23
    "17 01"  # 8: 10 address of one byte, level 7 = (214 - 174.5) / 5.09; 'you' 1 behind this field at 9
    "35 79 6F 75 1F AB"  # 10: 20 several, 10 a word, 04 bigrams, 01 possibly offensive; y o u, end; frequency 171
    "57 10"  # 16: 40 backwards, 10 one byte, level 7 = (200 - 154.2) / 6.36; 'see' 16 before this field at 17
    "12 00 04 36 0A"  # 18: 10 a word, 02 not one to spell; U+0436 in three bytes; frequency 10
    "01 10 6E 78"  # 23: one node: a word, n, frequency 120
)


def nodes(dictionary: Dictionary) -> bytes:
    return to_bytes(dictionary)[len(HEADER_BYTES) :]


def test_bytes_are_those_written_by_hand():
    assert to_bytes(SMALL) == HEADER_BYTES + SMALL_NODES
    assert from_bytes(HEADER_BYTES + SMALL_NODES) == SMALL.as_keyboards_read_it()


def test_an_empty_dictionary_has_an_empty_root():
    assert to_bytes(Dictionary(HEADER, {})) == HEADER_BYTES + b"\x00"


@pytest.mark.slow
@given(dictionaries())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_dictionary_is_read_as_it_was_written(dictionary: Dictionary):
    assert from_bytes(to_bytes(dictionary)) == dictionary.as_keyboards_read_it()


def test_the_order_of_words_is_no_matter_and_that_of_bigrams_stays():
    turned = Dictionary(HEADER, dict(reversed(SMALL.words.items())))
    assert to_bytes(turned) == to_bytes(SMALL)
    words = {"a": Word(9, {"c": 20, "b": 30}), "b": Word(9), "c": Word(9)}
    assert list(from_bytes(to_bytes(Dictionary(HEADER, words))).words["a"].bigrams) == ["c", "b"]


def test_more_than_127_nodes_are_counted_in_two_bytes():
    words = {chr(0x100 + number): Word(1) for number in range(300)}
    # 300 = 0x012C, with the highest bit of two bytes.
    assert nodes(Dictionary(HEADER, words))[:2] == b"\x81\x2c"
    assert from_bytes(to_bytes(Dictionary(HEADER, words))).words == words
    few = {chr(0x100 + number): Word(1) for number in range(127)}
    assert nodes(Dictionary(HEADER, few))[0] == 127


@pytest.mark.slow
@pytest.mark.parametrize("between", [40, 41, 42, 43, 10_000, 13_106, 13_107, 13_108])
def test_addresses_take_the_bytes_they_need(between: int):
    # 'a' is followed by 'z' behind all words between them, each of 5 bytes: flags, U+...., frequency.
    words = {"a": Word(1, {"\U0001f600": 255}), "\U0001f600": Word(1)}
    words |= {chr(0x4E00 + number): Word(1) for number in range(between)}
    content = nodes(Dictionary(HEADER, words))
    # Count, then flags, 'a', frequency, flags of the bigram, and its address at 5 or 6.
    field = (1 if between + 2 < 128 else 2) + 4
    size = content[field - 1] >> 4 & 3
    offset = int.from_bytes(content[field : field + size], "big")
    assert offset == size + 5 * between
    assert size == (1 if 5 * between + 1 <= 255 else 2 if 5 * between + 2 <= 65_535 else 3)
    assert content[field + offset :] == bytes.fromhex("10 01 F6 00 01")


@pytest.mark.slow
def test_words_far_apart_keep_their_followers():
    # More than 64 KiB of nodes: addresses of one, two and three bytes, both ways.
    texts = [f"{first}{second}{third}{fourth}" for first in "abcdefghij" for second in "abcdefghij"
             for third in "abcdefghij" for fourth in "abcdefghij"]  # fmt: skip
    words = {
        text: Word(number % 256, {texts[(number * step) % len(texts)]: 255 for step in (1, 7, 501)})
        for number, text in enumerate(texts)
    }
    dictionary = Dictionary(HEADER, words)
    content = to_bytes(dictionary)
    assert len(content) > 0x10000
    assert from_bytes(content) == dictionary.as_keyboards_read_it()


def test_a_damaged_file_is_refused():
    content = HEADER_BYTES + SMALL_NODES
    for broken, reason in (
        (b"\x9b\xc1\x3a\xff" + content[4:], "begins with 0x9bc13aff"),
        (content[:5] + b"\xc9" + content[6:], "version 201"),
        (content[:-1], "ends in the middle"),
        (content[:20], "ends in the middle"),
        (b"", "ends in the middle"),
        (content.replace(b"\x57\x10", b"\x57\x11"), "is followed by no word"),
        (content.replace(b"\x74see", b"\x7csee"), "holds shortcuts"),
        (content.replace(b"\x00\x04\x36", b"\x1e\x04\x36"), "no character is 0x1e0436"),
        (content.replace(b"dictionary", b"dictionarx"), "attributes: lack dictionary"),
    ):
        with pytest.raises(ValueError, match=reason):
            from_bytes(broken)
    with pytest.raises(ValueError, match="codePointTable"):
        from_bytes(to_bytes(Dictionary(HEADER | {"codePointTable": "etaoin"}, {})))
