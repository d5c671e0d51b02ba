"""Filters of discovered words, by word and by name."""

from pathlib import Path

import pytest

from discovery.filters import FILTERS, NAMES, matching, require_known

DOCS = Path(__file__).resolve().parents[2] / "docs" / "discovery.md"


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("12-34-56", "digits"),
        ("call1234", "digits"),
        ("n1e2w3f4", "digits"),
        ("a1b2c", "password"),
        ("1a2b3", "password"),
        ("gb29nwbk601613", "account-number"),
        ("de89abcdef", "account-number"),
        ("bob@mail", "e-mail"),
        ("a@b.org", "e-mail"),
        ("@bob", "handle"),
        ("www.x", "web-address"),
        ("shop.xyz", "web-address"),
        ("u", "one-letter"),
        ("--", "no-letter"),
        ("a\u200bb", "invisible-character"),
        ("a\u200db", "invisible-character"),
        ("😂", "emoji"),
        ("❤️", "emoji"),
        ("👍🏽", "emoji"),
        ("🇫🇷", "emoji"),
        ("👨\u200d👩\u200d👧", "emoji"),
        (":-)", "no-letter"),
        ("haha", None),
        ("it's", None),
        ("e.g", None),
        ("co-op", None),
        ("éa", None),
        ("mp3", None),
        ("b2b", None),
        ("4x4", None),
        ("h2o", None),
        ("covid19", None),
    ],
)
def test_the_first_filter_that_matches_is_a_word_s_reason(word: str, first: str | None) -> None:
    assert matching(word)[:1] == (() if first is None else (first,))


def test_all_matches_of_a_word_are_named() -> None:
    assert matching("7") == ("one-letter", "no-letter")


def test_an_emoji_is_dropped_by_its_own_filter_alone() -> None:
    for word in ("😂", "❤️", "👍🏽", "🇫🇷", "👨\u200d👩\u200d👧"):
        assert matching(word) == ("emoji",)
    assert matching("👨\u200d") == ("emoji",)
    assert matching("\u200dx") == ("invisible-character",)


def test_an_unknown_or_repeated_name_is_refused_with_the_known_ones() -> None:
    require_known(NAMES, "vocabulary.filters")
    require_known((), "vocabulary.filters")
    with pytest.raises(ValueError, match=r"vocabulary.filters: no filter is named 'one letter'; .* one-letter, emoji"):
        require_known(("digits", "one letter"), "vocabulary.filters")
    with pytest.raises(ValueError, match=r"vocabulary.filters: 'digits' occurs twice; write each name once"):
        require_known(("digits", "e-mail", "digits"), "vocabulary.filters")


def test_the_docs_list_every_filter() -> None:
    rows = [f"| `{each.name}` | {each.sentence} |" for each in FILTERS]
    assert "\n".join(rows) in DOCS.read_text(encoding="utf-8")
