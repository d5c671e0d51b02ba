"""Likeness of text to its locale: a script, letters or a language that are not the locale's are said, never refused.

People type a language in another script, and several languages on one keyboard; an export of the wrong folder looks
the same.
"""

import itertools
from collections.abc import Iterable, Sequence
from functools import cache

from pretrain.text.tokenise import alphabet, letter_of
from pretrain.text.word_lists import word_frequencies

# Words that are looked at.
MOST_WORDS = 100_000
# Number of a language's most common words. In half of the sentences or more of text in another language, few words are
# among them; in web text, chat, messages and plays of six languages in a third at most (LOG).
_COMMON = 1_000
_LEAST_WORDS = 4
# Share of sentences, and of words, from which a difference is said.
_SENTENCES, _WORDS = 0.5, 0.05


def unlikeness(sentences: Iterable[Sequence[str]], locale: str) -> str:
    """The clearest difference between text and its locale; empty if there is none.

    Guarantee: a kind of difference is named, and no number, word or other language.

    Args:
      sentences: words as ``tokenise`` cuts them; the first ``MOST_WORDS`` are looked at.
    """
    looked: list[Sequence[str]] = []
    words = 0
    for sentence in sentences:
        looked.append(sentence)
        if (words := words + len(sentence)) >= MOST_WORDS:
            break
    letter, common = letter_of(locale), _common_words(locale)
    written = [word for sentence in looked for word in sentence if any(map(str.isalpha, word))]
    own = [word for word in written if letter.search(word)]
    if len(own) < _SENTENCES * len(written):
        return f"half of the words or more have no letter of the script of {locale}; correct locale, or the files"
    if not common:
        return ""
    long = [sentence for sentence in looked if len(sentence) >= _LEAST_WORDS]
    usual = sum(common.values()) / 2
    unlike = sum(sum(word in common for word in sentence) < usual * len(sentence) for sentence in long)
    if long and unlike > _SENTENCES * len(long):
        return (
            f"half of the sentences or more have few of the common words of {locale}, as text of another language; "
            "correct locale, or the files"
        )
    letters = set(alphabet(locale))
    if sum(any(sign.isalpha() and sign not in letters for sign in word) for word in own) > _WORDS * len(own):
        return f"a twentieth of the words or more have letters that {locale} does not use; correct locale, or the files"
    return ""


@cache
def _common_words(locale: str) -> dict[str, float]:
    """The most common words of a locale's language, with their shares of its text; empty if there is no list."""
    ranked = sorted(word_frequencies(locale).items(), key=lambda each: -each[1])
    return dict(itertools.islice(ranked, _COMMON))
