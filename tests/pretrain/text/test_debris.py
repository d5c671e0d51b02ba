"""Debris of wrong decoding: found in every script, refused from a hundredth of the rows on, and no word quoted."""

import pyarrow as pa
import pytest

from pretrain.text.debris import KINDS, Debris
from pretrain.text.tokenise import sentences

DECODING, LOST, ESCAPES, TAGS = (kind.name for kind in KINDS)


def mangled(text: str, encoding: str = "cp1252") -> str:
    """UTF-8 read as another encoding; bytes that it lacks stay as they are."""
    if encoding == "latin-1":
        return text.encode().decode(encoding)
    return "".join(
        bytes([byte]).decode("cp1252") if byte not in {0x81, 0x8D, 0x8F, 0x90, 0x9D} else chr(byte)
        for byte in text.encode()
    )


def refused(texts: list[str]) -> str:
    """The refusal of these rows, in two batches; empty if they pass."""
    debris = Debris()
    for batch in (texts[: len(texts) // 2], texts[len(texts) // 2 :]):
        debris.look(pa.array(batch, pa.large_string()))
    return debris.said


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
@pytest.mark.parametrize(
    "text",
    [
        "don’t know",
        "“so”",
        "café olé",
        "über",
        "привет",
        "שלום",
        "مرحبا",
        "γεια σου",
        "नमस्ते",
        "olá, não",
        "ok 😂",
        "a\N{NO-BREAK SPACE}b",
    ],
)
def test_text_that_was_decoded_wrongly_is_refused_in_any_script(text: str, encoding: str) -> None:
    assert DECODING in refused([mangled(text, encoding)] * 20 + ["fine"] * 980)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("caf\N{REPLACEMENT CHARACTER}", LOST),
        (r"yes\nlove you", ESCAPES),
        (r"see\r\n", ESCAPES),
        (r"caf\u00e9", ESCAPES),
        ("hi<br>there", TAGS),
        ('<a href="x">here</a>', TAGS),
    ],
)
def test_other_debris_is_named_with_its_fix(text: str, kind: str) -> None:
    said = refused([text] * 10 + ["fine"] * 90)
    assert said.startswith("1% of the rows or more hold ")
    assert kind in said
    assert text not in said


@pytest.mark.parametrize(
    "text",
    [
        "NÃO! É “CAFÉ” ¿qué? «À» GRÖẞE É’ ÇA… SCHÖN”",
        "ÂME, ÂGE, FORÊT “ÊTRE” Ñandú DÍA”",
        "Ångström naïve São Tomé",
        "ÞÓR Ðað Æ—",
        r"¯\_(ツ)_/¯ C:\Users and/or \o/",
        "5 < 6 > 3 <3 <me> :>",
        "tom &amp; jerry",
        "привет мир «да»",
        "שלום “כן”",
        "Ελλάδα…",
        "",
    ],
)
def test_what_people_write_is_no_debris(text: str) -> None:
    assert refused([text] * 100) == ""


def test_a_few_rows_are_no_fault_of_an_export() -> None:
    bad, most = mangled("don’t"), 10
    assert refused([bad] * (most - 1) + ["fine"]) == ""
    assert refused([bad] * most + ["fine"] * 990)
    assert refused([bad] * most + ["fine"] * 991) == ""
    assert refused([]) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("she can&amp;#39;t", [["she", "can't"]]),
        ("hi &#55357;&#56832; you", [["hi", "😀", "you"]]),
        ("hi &amp;#55357;&amp;#56832;", [["hi", "😀"]]),
        ("tom &amp;amp; jerry", [["tom", "jerry"]]),
        ("half &#55357; of", [["half", "of"]]),
    ],
)
def test_references_are_read_where_they_were_escaped_once_or_twice(text: str, words: list[list[str]]) -> None:
    assert sentences(text, "en-US") == words
