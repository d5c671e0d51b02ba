"""Everyday beginnings: what arms suggest after them, and how many of the suggestions a fixed list expects."""

import numpy as np
import pytest

from evaluation.arms.arm import PublicNGram
from evaluation.comparison import beginnings
from evaluation.comparison.beginnings import NEW_WORD, judge, listed, suggestions
from pretrain.ngrams.ngram import NGram
from pretrain.text.tokenise import sentences
from pretrain.text.vocabulary import EOS, SPECIALS, Vocabulary, join_owners

WORDS = Vocabulary((*SPECIALS, "see", "you", "soon", "later", "thank", "god", "tomorrow", "and"))


def arm(*lines: str) -> PublicNGram:
    """Order 3, fitted to a text of these sentences."""
    ids = [np.array([*WORDS.ids(line.split()), EOS]) for line in lines]
    return PublicNGram(NGram.fit(join_owners([np.concatenate(ids)]), WORDS, 3))


POLITE = arm(*["thank you"] * 5, *["see you soon"] * 4, *["see you later"] * 3, *["see you tomorrow"] * 2)
PIOUS = arm(*["thank god"] * 5, *["see god and you"] * 5)


def test_suggestions_are_the_likeliest_words_after_all_that_was_typed() -> None:
    assert [WORDS.words[number] for number in suggestions(POLITE, WORDS, "see you")] == ["soon", "later", "tomorrow"]
    assert WORDS.words[suggestions(POLITE, WORDS, "thank")[0]] == "you"
    # By hand, over all words that are no specials.
    log_probs, state = POLITE.start([np.empty(0, dtype=np.int64)])
    log_probs, _ = POLITE.step(np.array([WORDS.index["see"]]), state)
    best = max(range(len(SPECIALS), len(WORDS)), key=lambda number: log_probs[0, number])
    assert suggestions(POLITE, WORDS, "see")[0] == best == WORDS.index["you"]


def test_suggestions_that_the_list_expects_count_and_discovered_words_are_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists = {"en": {"thank": frozenset({"you"}), "see you": frozenset({"soon", "tomorrow", "friday"})}}
    monkeypatch.setattr(beginnings, "lists", lambda: lists)
    base = WORDS.index["tomorrow"]
    thank, see = judge({"start": PIOUS, "private": POLITE}, WORDS, base, "en-GB")
    assert (thank.text, see.text) == ("thank", "see you")
    assert thank.expected["start"] in (0, 1)
    assert thank.suggested["start"][0] == "god"
    assert thank.expected["private"] == 1
    assert see.suggested["private"] == ("soon", "later", NEW_WORD)
    assert see.expected["private"] == 2, "a discovered word counts, although it is not named"
    assert judge({"start": PIOUS}, WORDS, base, "de-DE") == ()


@pytest.mark.parametrize("locale", ["en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR"])
def test_lists_are_words_as_the_tokeniser_writes_them(locale: str) -> None:
    each = listed(locale)
    assert len(each) == (40 if locale == "en-US" else 5)
    for text, wanted in each.items():
        assert wanted
        for line in (text, *wanted):
            assert sentences(line, locale) == [line.split()], line
    assert listed("nl-NL") == {}
