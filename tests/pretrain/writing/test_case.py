"""Written forms of words stay beside them, and one occurrence tells of itself alone."""

import pytest

from pretrain.text.tokenise import sentences, written
from pretrain.writing.case import FORMS, SIGNS, form_of, parted, plain, signed


def typed(text: str, locale: str = "en-US") -> list[str]:
    """Words as discovery hears them, a form's first letter in place of its sign."""
    words = [word for words in signed(sentences(text, locale), written(text, locale), locale) for word in words]
    return [f"{word}{FORMS[form][0] if form else ''}" for word, form in map(parted, words)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in Georgetown they go to BYU", ["in", "georgetownc", "they", "go", "to", "byuu"]),
        ("Georgetown is far. BYU is not", ["georgetown", "is", "far", "byuu", "is", "not"]),
        ("my iPhone and McDonald", ["my", "iphone", "and", "mcdonald"]),
        ("that I'm Gr8 at COVID-19", ["that", "i'mc", "gr8c", "at", "covid-19u"]),
        ("all small here", ["all", "small", "here"]),
    ],
)
def test_forms_of_words_where_they_tell_something(text: str, expected: list[str]) -> None:
    assert typed(text) == expected


def test_turkish_capitals_have_their_dots() -> None:
    assert typed("bu İzmir ve IRMAK", "tr-TR") == ["bu", "izmirc", "ve", "ırmaku"]
    assert [form_of("izmir", form, "tr-TR") for form in FORMS] == ["izmir", "İzmir", "İZMİR"]
    assert [form_of("izmir", form, "en-US") for form in FORMS] == ["izmir", "Izmir", "IZMIR"]


def test_what_another_word_is_changes_no_form() -> None:
    """Any one occurrence replaced: all others keep word and form, so one occurrence is one item of discovery."""
    text = ["go", "to", "Georgetown", "or", "BYU", "now"]
    for place in range(len(text)):
        for other in ("Utah", "NASA", "x"):
            changed = typed(" ".join([*text[:place], other, *text[place + 1 :]]))
            assert [row for at, row in enumerate(changed) if at != place] == [
                row for at, row in enumerate(typed(" ".join(text))) if at != place
            ]


def test_texts_that_are_cut_differently_are_small() -> None:
    assert signed([["a", "b"]], [["A"]], "en-US") == [["a", "b"]]


def test_signs_part_from_words_and_none_is_no_form() -> None:
    assert [parted("lol" + sign) for sign in ("", SIGNS[1], SIGNS[2])] == [("lol", 0), ("lol", 1), ("lol", 2)]
    assert plain(["", "lol" + SIGNS[2]]) == ["", "lol"]
