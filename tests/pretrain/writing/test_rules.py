"""Typed text beyond letters: each class has its place, per locale, and a number is never a word."""

import pytest

from discovery.device.answer import Broadcast, letters_of, spoken_item
from pretrain.text.tokenise import alphabet, normalise, sentences, written
from pretrain.writing.rules import MOST_LETTERS_AND_DIGITS, PLAIN, RULES, TypingRules, rules_of
from tests.helpers.text.tries import trie_config


@pytest.mark.parametrize(
    ("locale", "text", "words"),
    [
        ("fr-FR", "L’homme qu'il j'ai d'accord", ["l'", "homme", "qu'", "il", "j'", "ai", "d'", "accord"]),
        (
            "fr-FR",
            "aujourd'hui quelqu'un presqu'île grand'mère",
            ["aujourd'hui", "quelqu'un", "presqu'île", "grand'mère"],
        ),
        ("fr-FR", "j't'aime lorsqu'elle", ["j'", "t'", "aime", "lorsqu'", "elle"]),
        ("fr-CA", "c'est l' eau l'", ["c'", "est", "l'", "eau", "l'"]),
        (
            "it-IT",
            "dell'acqua un po' cos'è un'altra c'e'",
            ["dell'", "acqua", "un", "po'", "cos'", "è", "un'", "altra", "c'", "e'"],
        ),
        ("ca-ES", "l'home", ["l'", "home"]),
        ("en-US", "don't d'accord o'clock", ["don't", "d'accord", "o'clock"]),
        (
            "en-US",
            "'Cause rock 'n' roll 'em 'cause' nothin' dogs'",
            ["'cause", "rock", "'n'", "roll", "'em", "'cause", "nothin'", "dogs"],
        ),
        ("de-DE", "Ich hab' 'ne Idee", ["ich", "hab'", "'ne", "idee"]),
        ("en-US", "'ne nothing", ["ne", "nothing"]),
        ("nl-NL", "in 't huis", ["in", "'t", "huis"]),
        ("en-GB", "AT&T uses C#, C++ and R&B; AT&Ts", ["at&t", "uses", "c#", "c++", "and", "r&b", "at", "ts"]),
        ("en-US", "AT&amp;T", ["at&t"]),
        ("pt-BR", "custa R$ muito", ["custa", "r$", "muito"]),
        ("en-US", "custa R$ muito", ["custa", "r", "muito"]),
    ],
)
def test_words_with_apostrophes_and_symbols(locale: str, text: str, words: list[str]) -> None:
    assert sentences(text, locale) == [words]


@pytest.mark.parametrize(
    "word", ["gr8", "2nite", "b4", "mp3", "covid-19", "h2o", "2nd", "10am", "90s", "co2", "é2", "ab-12"]
)
def test_short_words_of_letters_and_digits_are_words(word: str) -> None:
    for text in (f"left {word} right", f"left ({word}), right", f'left "{word.upper()}": right'):
        assert sentences(text, "en-US") == [["left", word, "right"]]
    assert len(word) <= MOST_LETTERS_AND_DIGITS


def test_a_price_is_no_word_but_its_currency_may_be() -> None:
    assert sentences("pago R$50 hoje", "pt-BR") == [["pago", "r$"], ["hoje"]]


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        *(
            (":)", ":)"),
            (":-)", ":)"),
            ("=)", ":)"),
            (":)))", ":)"),
            (";-)", ";)"),
            (":D", ":d"),
            (":-P", ":p"),
            (":'(", ":'("),
        ),
        *(
            ("<3", "<3"),
            ("^^", "^^"),
            ("^_^", "^^"),
            ("-_-", "-_-"),
            ("o_O", "o_o"),
            (":\\", ":/"),
            (":/", ":/"),
            ("xD", "xd"),
        ),
        *(
            ("😂", "😂"),
            ("👍🏽", "👍🏽"),
            ("❤️", "❤"),
            ("❤", "❤"),
            ("🇫🇷", "🇫🇷"),
            ("👩‍👩‍👧", "👩‍👩‍👧"),
            ("🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"),
            ("☝🏿", "☝🏿"),
        ),
    ],
)
def test_a_face_is_one_word_however_it_is_typed(typed: str, word: str) -> None:
    assert sentences(f"nice {typed} day", "en-US") == [["nice", word, "day"]]
    assert sentences(f"nice {typed}", "en-US") == [["nice", word]]
    assert written(f"Nice {typed} day", "en-US") == [["Nice", typed.replace(":)))", ":)"), "day"]]


def test_pictures_beside_each_other_are_words_each() -> None:
    assert sentences("😂😂❤️🇫🇷🇩🇪ok", "en-US") == [["😂", "😂", "❤", "🇫🇷", "🇩🇪", "ok"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("for(;;) f(x)=(y) note:(see)", ["for", "f", "x", "y", "note", "see"]),
        ("c:d and/or x=d", ["c", "d", "and", "or", "x", "d"]),
        ("™ © ® → • ½", []),
        ("^^^^", []),
        ("🏽 🇫", []),
    ],
)
def test_what_only_looks_like_a_face_is_none(text: str, words: list[str]) -> None:
    assert [word for sentence in sentences(text, "en-US") for word in sentence] == words


def test_a_face_needs_its_locale() -> None:
    assert sentences("ah x)", "fr-FR") == [["ah", "x)"]]
    assert sentences("ah x)", "en-US") == [["ah", "x"]]
    assert sentences("ναι ;) τι", "el-GR") == [["ναι"], ["τι"]]


def test_spanish_marks_begin_a_sentence() -> None:
    assert sentences("hola ¿cómo estás? bien ¡sí!", "es-ES") == [["hola"], ["cómo", "estás"], ["bien"], ["sí"]]


@pytest.mark.parametrize("locale", ["en-US", "fr-FR", "pt-BR", "it-IT"])
@pytest.mark.parametrize("word", ["😂", ":)", "<3", "r$", "c++", "at&t", "x)"])
def test_no_word_with_a_foreign_character_is_discovered(locale: str, word: str) -> None:
    config = trie_config(layers=12, max_prefixes=20)
    question = Broadcast(1, ("",), letters_of(alphabet(locale)))
    assert spoken_item(word, frozenset(), question, config) is None
    for heard in ("l'", "gr8", "covid-19"):
        assert spoken_item(heard, frozenset(), question, config) is not None


@pytest.mark.parametrize(("name", "rules"), RULES.items())
def test_every_entry_is_one_word_of_its_locale(name: str, rules: TypingRules) -> None:
    assert rules_of(f"{name}-XX", name) is rules
    for word in (*rules.apostrophes, *rules.symbols, *(f"{letters}'" for letters in rules.elisions)):
        assert word == normalise(word, name)
        assert sentences(f"x {word} y", name) == [["x", word, "y"]], word
    for first, *others in rules.faces:
        for face in (first, *others):
            assert sentences(f"x {face} y", name) == [["x", first, "y"]], face


def test_a_locale_without_an_entry_has_plain_rules() -> None:
    assert rules_of("fi-FI", "fi") is PLAIN
    assert not PLAIN.elisions
    assert not PLAIN.apostrophes
