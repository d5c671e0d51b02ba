"""A vocabulary, its frequencies and its forms, against released words and public text."""

from dataclasses import replace

import numpy as np
import pytest

from discovery.frequencies import TYPED_PER_HOLDER, of_contributions, of_messages
from discovery.results import FoundWord, by_share
from evaluation.audit.released.vocabulary import BuiltVocabulary, ReleasedWord, vocabulary_audit

PUBLIC = ("<pad>", "<bos>", "<eos>", "<unk>", "you", "see")
FOUND = [FoundWord(word=f"w{n}", layer=1, share=0.3 / (n + 1), low=0.0, high=0.3 / (n + 1) + 0.02) for n in range(9)]
RELEASED = {each.word: ReleasedWord(each.share, each.high, each.word) for each in FOUND}
DROPPED = {"w2", "w5"}
KEPT = [each for each in sorted(FOUND, key=by_share) if each.word not in DROPPED][:6]


def honest(local: bool = True) -> BuiltVocabulary:
    shares = np.array([each.shrunk for each in KEPT])
    frequency = of_messages(shares, 4) if local else of_contributions(shares, 0.2)
    words = tuple(each.word for each in KEPT)
    return BuiltVocabulary((*PUBLIC, *words), frequency.tolist(), words)


def failed(built: BuiltVocabulary, *, dropped: set[str] | None = DROPPED, local: bool = True) -> list[str]:
    rule = (4 * TYPED_PER_HOLDER, TYPED_PER_HOLDER) if local else (0.2, 1.0)
    return [each.name for each in vocabulary_audit(built, PUBLIC, RELEASED, dropped, 6, *rule) if not each.passed]


@pytest.mark.parametrize("local", [True, False])
def test_what_the_product_builds_of_released_words_passes(local: bool) -> None:
    assert failed(honest(local), local=local) == []


def swapped(words: tuple[str, ...]) -> tuple[str, ...]:
    return (*words[:6], words[7], words[6], *words[8:])


WRONG = {
    "a word that nobody released": lambda words: (*words[:-1], "zqtyped"),
    "one more": lambda words: (*words, "w2"),
    "a word that a filter drops": lambda words: (*words[:8], "w2", *words[9:]),
    "one left out": lambda words: words[:-1],
    "a word twice": lambda words: (*words[:-1], words[-2]),
    "an order that says more": swapped,
    "a public word less": lambda words: words[1:],
}


@pytest.mark.parametrize("what", WRONG)
def test_other_words_are_held(what: str) -> None:
    assert "words" in failed(replace(honest(), words=WRONG[what](honest().words)))


def test_a_person_s_choice_is_any_of_the_released_words_in_their_order() -> None:
    built = honest()
    some = BuiltVocabulary((*PUBLIC, "w0", "w2"), [0.0, 0.0], ("w0", "w2"))
    assert "words" not in failed(some, dropped=None)
    assert "words" in failed(replace(built, words=(*PUBLIC, "zqtyped")), dropped=None)


@pytest.mark.parametrize("number", range(len(KEPT)))
def test_a_frequency_that_is_not_the_release_s_is_held(number: int) -> None:
    built = honest()
    frequency_N = list(built.frequency_N)
    frequency_N[number] *= 1 + 1e-6
    assert failed(replace(built, frequency_N=frequency_N)) == ["frequencies"]
    form_N = list(built.form_N)
    form_N[number] = form_N[number].upper()
    assert failed(replace(built, form_N=form_N)) == ["frequencies"]
