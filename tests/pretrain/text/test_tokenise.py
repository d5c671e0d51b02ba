"""Text to words: per locale, and nothing that is not a word becomes one."""

import time
import unicodedata
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pretrain.text.tokenise import (
    MAX_WORD_CHARACTERS,
    alphabet,
    normalise,
    require_spaced_script,
    sentences,
    unfinished,
    written,
)
from pretrain.writing.case import parted, signed
from pretrain.writing.rules import rules_of
from pretrain.writing.truecasing import add_forms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world! How are you?", [["hello", "world"], ["how", "are", "you"]]),
        ("one\ntwo\r\nthree", [["one"], ["two"], ["three"]]),
        ("well... ok… fine", [["well"], ["ok"], ["fine"]]),
        ("It’s o'clock, don‘t", [["it's", "o'clock", "don't"]]),
        ("state-of-the-art semi-- -dash-", [["state-of-the-art", "semi", "dash"]]),
        ("'quoted' dogs' 'roll' (really)", [["quoted", "dogs", "roll", "really"]]),
        ("Dr. Smith met J. R. Tolkien. He smiled", [["dr", "smith", "met", "j", "r", "tolkien"], ["he", "smiled"]]),
        ("hello.how are you", [["hello"], ["how", "are", "you"]]),
        ("tom &amp; jerry it&#39;s", [["tom", "jerry", "it's"]]),
        ("soft\u00adhyphen zero\u200bwidth", [["softhyphen", "zerowidth"]]),
        ("", []),
        ("?!… — 12", []),
    ],
)
def test_sentences_and_words(text: str, expected: list[list[str]]) -> None:
    assert sentences(text, "en-US") == expected


@pytest.mark.parametrize(
    "token",
    [
        *("12", "3.14", "10:30", "1,000", "1980s", "5'10", "2019-04-25", "1️⃣", "$5k", "#1b"),
        # Too long, too many digits, two runs of them, or part of something longer.
        *(
            "covid-2019",
            "november5",
            "b4ckup1",
            "ab12cde",
            "abc123",
            "123ab",
            "4x4",
            "10am-5pm",
            "mp3/mp4",
            "mp3's",
            "gr8.com",
            "gr8@x.org",
        ),
        *("https://a.b/c?d=e", "www.example.org/x", "example.com", "sub.example.co/path", "ftp://x.y"),
        *("bob@example.com", "first.last+tag@mail.example.org", "@bob_x", "@anna.b"),
        *("<url>", "<num>", "<first_name>", "</em>", "snake_case", "U.S.", "e.g.", "i.e."),
        "a" * (MAX_WORD_CHARACTERS + 1),
    ],
)
def test_what_is_no_word_leaves_nothing_and_joins_no_neighbours(token: str) -> None:
    assert sentences(f"left {token} right", "en-US") == [["left"], ["right"]]


@pytest.mark.parametrize(
    ("locale", "text", "words"),
    [
        ("tr-TR", "ILIK İstanbul", ["ılık", "istanbul"]),
        ("az-AZ", "QIZIL", ["qızıl"]),
        ("en-US", "ILIK İstanbul", ["ilik", "istanbul"]),
        ("el-GR", "ΟΔΟΣ ΣΑΣ", ["οδος", "σας"]),
        ("de-DE", "Straße ÄRGER", ["straße", "ärger"]),
        ("ca-ES", "col·lecció", ["col·lecció"]),
        ("fa-IR", "می‌خواهم", ["می\u200cخواهم"]),
        ("hi-IN", "हिन्दी", ["हिन्दी"]),
        ("he-IL", "צה״ל", ['צה"ל']),
        ("he-IL", 'צה"ל אמר "שלום" ג׳ינס', ['צה"ל', "אמר", "שלום", "ג'ינס"]),
        ("fa-IR", "كتاب فارسي کتاب فارسی", ["کتاب", "فارسی"] * 2),
        ("ur-PK", "كي", ["کی"]),
        ("ar-EG", "کتاب فی كتاب في", ["كتاب", "في"] * 2),
        ("uz-UZ", "oʻzbek o‘zbek o'zbek oʼzbek", ["o'zbek"] * 4),
        ("en-US", "ｈｅｌｌｏ ﬁne 𝐡𝐨𝐰 𝗔re", ["hello", "fine", "how", "are"]),
        ("en-US", "no\u2060break a\u180eb", ["nobreak", "ab"]),
        ("en-US", "so _very_ nice, _really so_ o_o", ["so", "very", "nice", "really", "so", "o_o"]),
        ("en-US", 'say "quoted"words', ["say", "quoted", "words"]),
    ],
)
def test_locale_aware_words(locale: str, text: str, words: list[str]) -> None:
    assert sentences(text, locale) == [words]


@pytest.mark.parametrize(
    "text", ["left _foo_bar_ right", "left __init__ right", "left my_name_ right", "left _x1_ right"]
)
def test_names_of_programs_are_no_slanted_words(text: str) -> None:
    assert sentences(text, "en-US") == [["left"], ["right"]]


def test_sentence_ends_of_other_scripts() -> None:
    assert sentences("क्या। हाँ", "hi-IN") == [["क्या"], ["हाँ"]]
    assert sentences("كيف؟ نعم", "ar-EG") == [["كيف"], ["نعم"]]
    assert sentences("τι; ναι", "el-GR") == [["τι"], ["ναι"]]
    assert sentences("yes; no", "en-US") == [["yes", "no"]]


# Python and `regex` may know different versions of Unicode.
ASSIGNED = st.text(st.characters(exclude_categories=["Cn", "Cs"]), max_size=200)


@pytest.mark.slow
@given(ASSIGNED, st.sampled_from(["en-US", "fr-FR", "tr-TR", "el-GR", "hi-IN"]))
@settings(max_examples=150, deadline=None)
def test_words_are_short_and_of_a_known_class(text: str, locale: str) -> None:
    faces = {face for spellings in rules_of(locale, locale[:2]).faces for face in spellings}
    for sentence in sentences(text, locale):
        assert sentence
        for word in sentence:
            assert len(word) <= MAX_WORD_CHARACTERS
            categories = [unicodedata.category(character)[0] for character in word]
            letters = "L" in categories and not {"S", "C", "Z"} & set(categories)
            picture = not {"L", "N", "Z"} & set(categories)
            joined = {"\u200c", "\u200d"} & set(word)
            assert letters or picture or joined or word in faces or word in rules_of(locale, locale[:2]).symbols
            assert sum(character.isnumeric() for character in word) <= 2 or not letters


@given(ASSIGNED, st.sampled_from(["en-US", "fr-FR", "tr-TR", "el-GR", "de-DE"]))
@settings(max_examples=150, deadline=None)
def test_written_words_are_the_same_words(text: str, locale: str) -> None:
    plain, cased = sentences(text, locale), written(text, locale)
    assert [len(sentence) for sentence in plain] == [len(sentence) for sentence in cased]
    for words, forms in zip(plain, cased, strict=True):
        for word, form in zip(words, forms, strict=True):
            if form.isalpha() and form.isascii():
                assert word == normalise(form, locale)


@pytest.mark.parametrize("reference", ["&#{};", "&#{}", "&#x{};"])
@pytest.mark.parametrize("digits", [4_301, 200_000])
def test_a_reference_of_thousands_of_digits_is_no_character(reference: str, digits: int) -> None:
    text = f"see {reference.format('1' * digits)} here &#39;tis &#x41;"
    assert sentences(text, "en-US") == [["see"], ["here", "'tis", "a"]]
    assert unfinished(f"{text} so", "en-US") == (["here", "'tis", "a", "so"], False)


# What numbers, references, terminals, joined pictures and the two kinds of cased text make of their neighbours.
HARD = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("&#", "&#1", "&#x", "&#x1F600;", "&#55357;", "&#1114112;", "&amp;", "&notit;", "1", "٣", "Ⅷ", "a"),
                *("\x00", "\x05", "\x1b[31m", "\u202e", "\ud800", "\udfff", "\u0301", "i\u0307", "I\u0307", "İ"),
                *(
                    "ß",
                    "ŉ",
                    "ﬃ",
                    "\u0345",
                    "Σ",
                    "ΐ",
                    "\u200d",
                    "\ufe0f",
                    "❤",
                    "😂",
                    "🏽",
                    "🇫",
                    "🏴\U000e0067",
                    "\U0010ffff",
                ),
                *("가", "ᄀ", "ᅡ", "\u0f73", "A.", "2NITE", "MP3", "xD", "X)", "://", "www.", "@", "<", ">", "_", "'"),
                *("-", ".", "\n", " ", "\u2028", "\u3164", "﷽", "\U0010ffff"),
            ]
        ),
        st.sampled_from([1, 1, 1, 2, 41, 5_000]),
    ).map(lambda unit: unit[0] * unit[1])
    | st.text(max_size=20),
    max_size=8,
).map("".join)


@given(HARD, st.sampled_from(["en-US", "fr-FR", "tr-TR", "el-GR", "hi-IN", "he-IL"]))
@settings(max_examples=40, deadline=None)
@example("A.i\u0307", "en-US")
def test_no_text_raises_and_both_cuts_agree(text: str, locale: str) -> None:
    """One text of one person, or one page, would stop the launch of everybody."""
    began = time.process_time()
    plain, cased = sentences(text, locale), written(text, locale)
    assert [len(words) for words in plain] == [len(words) for words in cased]
    add_forms(Counter(), plain, cased)
    for words in signed(plain, cased, locale):
        assert [parted(word)[0] for word in words] in plain
    unfinished(text, locale)
    assert time.process_time() - began < 5


@pytest.mark.slow
@given(st.text(max_size=100))
@settings(max_examples=150, deadline=None)
def test_normalised_text_is_composed_and_has_straight_apostrophes(text: str) -> None:
    result = normalise(text, "en-US")
    assert "’" not in result
    assert "\u00ad" not in result
    assert normalise(result, "en-US") == result or "&" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *("a-", "a.", "-", "a", "a@", "1-", "<", "a_", " .", "@", "e\u0301", "a'"),
        *(
            "a1",
            "1a",
            "-1",
            "l'",
            "qu",
            "'",
            ":",
            ":-",
            "&",
            "a&",
            "^",
            "😂",
            "😂\u200d",
            "🇫",
            "🏽",
            "❤\ufe0f",
            "🏴\U000e0067",
            "¿",
        ),
    ],
)
def test_hostile_text_costs_linear_time(unit: str) -> None:
    def seconds(times: int) -> float:
        began = time.process_time()
        sentences(unit * times, "fr-FR")
        return time.process_time() - began

    # A quadratic pattern needs a quarter of a minute here.
    assert seconds(30_000) < 1.5


@pytest.mark.parametrize(
    ("locale", "script"),
    [
        *(("zh-CN", "Hans"), ("zh-TW", "Hant"), ("yue-HK", "Hant"), ("sr-Hans", "Hans"), ("ja-JP", "Jpan")),
        *(
            ("th-TH", "Thai"),
            ("lo-LA", "Laoo"),
            ("km-KH", "Khmr"),
            ("my-MM", "Mymr"),
            ("bo", "Tibt"),
            ("dz-BT", "Tibt"),
        ),
    ],
)
def test_unspaced_scripts_are_refused_by_name(locale: str, script: str) -> None:
    with pytest.raises(ValueError, match=rf"locale: '{locale}'.*{script}.*no spaces.*choose"):
        require_spaced_script(locale)


@pytest.mark.parametrize("locale", ["en-US", "ko-KR", "vi-VN", "hi-IN", "am-ET", "zh-Latn", "sr-RS", "iw", "no"])
def test_spaced_scripts_pass(locale: str) -> None:
    require_spaced_script(locale)


@pytest.mark.parametrize("locale", ["english", "xx-YY", ""])
def test_an_unknown_locale_is_refused(locale: str) -> None:
    with pytest.raises(ValueError, match="locale"):
        require_spaced_script(locale)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("locale", "letters"),
    [
        ("en-US", "abcdefghijklmnopqrstuvwxyz"),
        ("es-ES", "abcdefghijklmnopqrstuvwxyzáéíñóúü"),
        ("pt-BR", "abcdefghijklmnopqrstuvwxyzàáâãçéêíóôõú"),
        ("de-DE", "abcdefghijklmnopqrstuvwxyzßäöü"),
        ("ru-RU", "абвгдежзийклмнопрстуфхцчшщъыьэюяё"),
        ("sr-RS", "абвгдежзиклмнопрстуфхцчшђјљњћџ"),
        ("sw", "abcdefghijklmnopqrstuvwxyz"),
    ],
)
def test_alphabet_is_the_locales_own(locale: str, letters: str) -> None:
    assert alphabet(locale) == "".join(sorted(letters + "'-"))


@pytest.mark.slow
def test_alphabet_covers_dotless_i_and_joiners() -> None:
    assert {"ı", "i", "ğ", "ş"} <= set(alphabet("tr-TR"))
    assert "·" in alphabet("ca-ES")
    assert {"ς", "ώ"} <= set(alphabet("el-GR"))


def test_alphabet_of_an_unknown_language_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"locale: no public word list for 'kl-GL'.*wordfreq"):
        alphabet("kl-GL")
