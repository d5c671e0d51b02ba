"""The text form is the one that AOSP's ``CombinedInputOutput`` documents."""

import pytest
from hypothesis import HealthCheck, given, settings

from pretrain.dictionary.combined import from_text, to_text
from pretrain.dictionary.content import Dictionary, Word
from tests.helpers.text.dictionaries import HEADER, SMALL, dictionaries

SMALL_TEXT = """\
dictionary=main:en,locale=en,version=1
 word=you,f=171,possibly_offensive=true
  bigram=see,f=200
 word=see,f=150
  bigram=you,f=214
 word=seen,f=120
 word=ж,f=10,not_a_word=true
"""


def test_text_is_that_of_the_format():
    assert to_text(SMALL) == SMALL_TEXT
    assert from_text(SMALL_TEXT) == SMALL


@pytest.mark.slow
@given(dictionaries())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_dictionary_is_read_as_it_was_written(dictionary: Dictionary):
    assert from_text(to_text(dictionary)) == dictionary


def test_published_files_are_read_too():
    # Comments, spaces behind commas, fields of no use here: as in AOSP's sample and in lists of others.
    text = (
        "# a comment\ndictionary=main:en,locale=en,description=Sample wordlist,version=1\n"
        " word=sample, f=200, flags=, originalFreq=200\n  bigram=wordlist,f=243\n\n# another\nword=wordlist,f=180\n"
    )
    read = from_text(text)
    assert read.attributes["description"] == "Sample wordlist"
    assert read.words == {"sample": Word(200, {"wordlist": 243}), "wordlist": Word(180)}


def test_the_name_of_the_dictionary_comes_first():
    turned = Dictionary(dict(reversed(HEADER.items())), {})
    assert to_text(turned) == "dictionary=main:en,version=1,locale=en\n"


def test_what_would_end_a_value_early_is_refused():
    for value in ("one, two", "a=b", "at: noon", "two\nlines", ""):
        with pytest.raises(ValueError, match="attributes: description="):
            to_text(Dictionary(HEADER | {"description": value}, {}))


def test_lines_that_are_no_words_are_refused():
    for line, reason in (
        ("word=a", "has no frequency"),
        ("word=a,f=-1", "has no frequency"),
        ("word=a,f=1,true", "without '='"),
        ("shortcut=a,f=1", "neither a word nor a bigram"),
        ("word=a,f=256", "frequency 256; give 0 to 255"),
    ):
        with pytest.raises(ValueError, match=reason):
            from_text(f"dictionary=main:en,locale=en,version=1\n {line}\n")
    with pytest.raises(ValueError, match="combined: no line"):
        from_text("# nothing\n")
