"""Case forms of typed words: lower case, capitalised, or all capitals; stored with the lower-cased word.

Discovery hears of words as they are typed; the model, its vocabulary and all that counts words know the lower-cased
word alone. So a typed word is the word and, where it was not small, one sign after it that no text holds.
"""

from collections.abc import Iterable, Sequence

import langcodes

from pretrain.writing.rules import DOTTED_I_LANGUAGES

FORMS = ("lower", "capital", "upper")
# The sign of each form; the first is not written.
SIGNS = "\x05\x06\x07"


def form_of(word: str, form: str, locale: str) -> str:
    """A lower-cased word in one of ``FORMS``: *georgetown*, *Georgetown*, *GEORGETOWN*."""
    letter = next((place for place, character in enumerate(word) if character.isalpha()), None)
    if form == "lower" or letter is None:
        return word
    first, last = (letter, len(word)) if form == "upper" else (letter, letter + 1)
    capitals = word[first:last]
    if langcodes.Language.get(locale).language in DOTTED_I_LANGUAGES:
        capitals = capitals.replace("i", "İ")
    return word[:first] + (capitals.upper() if form == "upper" else capitals.title()) + word[last:]


def signed(sentences: Sequence[Sequence[str]], written: Sequence[Sequence[str]], locale: str) -> list[list[str]]:
    """Lower-cased words, each with the sign of the form in which it was written.

    A capital that begins a sentence tells nothing of the word, so it counts as small there unless all of the word is
    in capitals; so does any other mixture (*iPhone*). What a word counts as depends on its own occurrence alone, never
    on what else a device typed: else one occurrence could change two words.

    Args:
      sentences, written: ``text.sentences`` and ``text.written`` of one text; where they were cut differently, which
        only letters do that change their number, all words are small.
    """
    if [len(words) for words in sentences] != [len(words) for words in written]:
        return [list(words) for words in sentences]
    return [
        [_signed(word, form, locale, begins=place == 0) for place, (word, form) in enumerate(zip(*pair, strict=True))]
        for pair in zip(sentences, written, strict=True)
    ]


def _signed(word: str, written: str, locale: str, *, begins: bool) -> str:
    if written == word:
        return word
    if written == form_of(word, "capital", locale):
        return word if begins else word + SIGNS[1]
    return word + SIGNS[2] if written == form_of(word, "upper", locale) else word


def parted(typed: str) -> tuple[str, int]:
    """The lower-cased word and the number of its form."""
    form = SIGNS.find(typed[-1:]) if typed else -1
    return (typed[:-1], form) if form > 0 else (typed, 0)


def plain(typed: Iterable[str]) -> list[str]:
    """Typed words without their forms."""
    return [parted(word)[0] for word in typed]
