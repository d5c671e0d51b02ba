"""Words are shown as public text usually writes them; a sentence begins with a capital."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.text.tokenise import sentences, unfinished, written
from pretrain.writing.truecasing import Forms, TypicalForm, add_forms, load, of_words, save, shown, usual_forms


def forms_of(text: str, locale: str) -> Forms:
    forms = Forms()
    add_forms(forms, sentences(text, locale), written(text, locale))
    return forms


def test_forms_are_counted_where_no_sentence_begins() -> None:
    text = "Das Haus. Das Haus und das haus! Haus an Haus :-) :-) :) ❤️"
    assert usual_forms(forms_of(text, "de-DE")) == {
        "haus": TypicalForm("Haus", 3, 0.75),
        ":)": TypicalForm(":-)", 2, 2 / 3),
        "❤": TypicalForm("❤️", 1, 1.0),
    }


@pytest.mark.slow
@given(st.lists(st.lists(st.sampled_from(["Haus", "haus", "HAUS", "und", "Und"]), min_size=1), min_size=1))
def test_the_usual_form_is_the_most_frequent_one(text: list[list[str]]) -> None:
    forms = Forms()
    add_forms(forms, [[form.lower() for form in sentence] for sentence in text], text)
    usual = usual_forms(forms)
    inside = Counter(form for sentence in text for form in sentence[1:])
    for word in ("haus", "und"):
        counts = {form: inside[form] for form in ("Haus", "haus", "HAUS", "und", "Und") if form.lower() == word}
        if word in usual:
            assert usual[word].count == counts[usual[word].form] == max(counts.values())
            assert usual[word].share == usual[word].count / sum(counts.values())
            assert usual[word].count > counts[word]
        else:
            assert counts[word] == max(counts.values())


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    usual = {"haus": TypicalForm("Haus", 3, 0.75), ":d": TypicalForm(":D", 1, 1.0)}
    save(usual, tmp_path / "truecase.json")
    assert load(tmp_path / "truecase.json") == usual


def test_a_bundle_s_table_holds_the_vocabulary_s_words_only() -> None:
    usual = {"haus": TypicalForm("Haus", 3, 0.75), "geheim": TypicalForm("Geheim", 1, 1.0)}
    assert of_words(usual, ("<pad>", "und", "haus")) == {"haus": usual["haus"]}


@pytest.mark.parametrize(
    ("locale", "word", "inside", "first"),
    [
        ("en-US", "paris", "Paris", "Paris"),
        ("en-US", "iphone", "iPhone", "iPhone"),
        ("en-US", "see", "see", "See"),
        ("en-US", "'cause", "'cause", "'Cause"),
        ("fr-FR", "l'", "l'", "L'"),
        ("es-ES", "él", "él", "Él"),
        ("tr-TR", "iyi", "iyi", "İyi"),
        ("en-US", "2nite", "2nite", "2nite"),
        ("en-US", ":d", ":D", ":D"),
        ("en-US", "😂", "😂", "😂"),
        ("ka-GE", "გამარჯობა", "გამარჯობა", "გამარჯობა"),
    ],
)
def test_a_word_is_shown_as_it_is_written(locale: str, word: str, inside: str, first: str) -> None:
    usual = {
        "paris": TypicalForm("Paris", 9, 0.9),
        "iphone": TypicalForm("iPhone", 9, 0.9),
        ":d": TypicalForm(":D", 9, 0.9),
    }
    assert shown(word, usual, locale, begins=False) == inside
    assert shown(word, usual, locale, begins=True) == first


@pytest.mark.parametrize(
    ("locale", "text", "words", "begins"),
    [
        ("en-US", "", [], True),
        ("en-US", "See you", ["see", "you"], False),
        ("en-US", "see you. ", [], True),
        ("en-US", '"See you!" ', [], True),
        ("en-US", "see you\n", [], True),
        ("en-US", "met Dr.", ["met", "dr"], False),
        ("en-US", "call 5551234", [], False),
        ("en-US", "nice :)", ["nice", ":)"], False),
        ("fr-FR", "c'est l'", ["c'", "est", "l'"], False),
        ("es-ES", "hola ¿", [], True),
        ("hi-IN", "क्या।", [], True),
    ],
)
def test_the_next_word_goes_on_with_the_last_sentence(locale: str, text: str, words: list[str], begins: bool) -> None:
    assert unfinished(text, locale) == (words, begins)
