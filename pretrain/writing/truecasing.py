"""Truecasing table, the usual form of each word: *Haus*, *I'm*, *Paris*, *:D*. The model and its words are lower-cased.

A table from public text tells how each word is written where it does not begin a sentence. It is stored beside the
public words and, for the words of a vocabulary, in the bundle; a keyboard shows suggestions in that form, and with a
capital where a sentence begins.

Guarantee: only public counts come in, and the forms that a private discovery released with its words, so the table is
public, and what it makes of a model's suggestions is post-processing: no privacy is spent, by it or by looking words
of a private vocabulary up in it. A word of which neither tells is shown as it is.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import langcodes

from pretrain.files import write_text
from pretrain.reading.paths import read_json
from pretrain.writing.rules import DOTTED_I_LANGUAGES

# (word, its written form) -> how often, sentence starts not counted.
Forms = Counter[tuple[str, str]]


@dataclass(frozen=True)
class TypicalForm:
    """The most frequent written form of a word inside sentences.

    Attributes:
      count: in that form. share: of all its uses there.
    """

    form: str
    count: int
    share: float


def add_forms(forms: Forms, words: Iterable[Sequence[str]], written: Iterable[Sequence[str]]) -> None:
    """Count the forms of a text, in place; the two are ``text.sentences`` and ``text.written`` of it."""
    for sentence, as_written in zip(words, written, strict=True):
        pairs = zip(sentence, as_written, strict=True)
        next(pairs)
        forms.update(pairs)


def usual_forms(forms: Forms) -> dict[str, TypicalForm]:
    """Words whose usual form differs from the word; of equally frequent forms, the word's own, or the first."""
    by_word: dict[str, Counter[str]] = defaultdict(Counter)
    for (word, form), count in forms.items():
        by_word[word][form] += count
    usual = {}
    for word in sorted(by_word):
        form, count = min(by_word[word].items(), key=lambda item: (-item[1], item[0] != word, item[0]))
        if form != word:
            usual[word] = TypicalForm(form, count, count / by_word[word].total())
    return usual


def of_words(usual: Mapping[str, TypicalForm], words: Iterable[str]) -> dict[str, TypicalForm]:
    """The entries of a vocabulary's words."""
    return {word: usual[word] for word in words if word in usual}


def discovered(words: Sequence[str], shown: Sequence[str]) -> dict[str, TypicalForm]:
    """Entries of discovered words that people type with capitals, which override those of public text.

    Lower-case typing of a name is no evidence: there public text decides. The count is unknown, so it is 0.
    """
    return {word: TypicalForm(form, 0, 1.0) for word, form in zip(words, shown, strict=True) if form != word}


def save(usual: Mapping[str, TypicalForm], path: Path) -> None:
    """Write a table as JSON: word -> form, count, share."""
    rows = {word: [entry.form, entry.count, round(entry.share, 4)] for word, entry in usual.items()}
    write_text(path, json.dumps(rows, ensure_ascii=False, indent=0))


def load(path: Path) -> dict[str, TypicalForm]:
    """Read what ``save`` wrote.

    Raises:
      ValueError: no such table.
    """
    fix = "publish or build it again"
    rows = read_json(path, "truecase", fix)
    kinds = (str, int, int | float)
    if not isinstance(rows, dict) or not all(
        isinstance(row, list) and len(row) == len(kinds) and all(map(isinstance, row, kinds)) for row in rows.values()
    ):
        raise ValueError(f"truecase: {path.name} gives no form, count and share for each word; {fix}")
    return {word: TypicalForm(*row) for word, row in rows.items()}


def shown(word: str, usual: Mapping[str, TypicalForm], locale: str, *, begins: bool) -> str:
    """A word as a keyboard offers it.

    Args:
      begins: it is the first of a sentence, so its first letter is a capital, unless the word is written with one
        elsewhere (*iPhone*) or begins with another sign (*2nite*); an apostrophe may come first (*'Cause*).
    """
    if word in usual:
        return usual[word].form
    letter = len(word) - len(word.lstrip("'"))
    if not begins or not word[letter:]:
        return word
    dotted = word[letter] == "i" and langcodes.Language.get(locale).language in DOTTED_I_LANGUAGES
    capital = "İ" if dotted else word[letter].title()
    return word[:letter] + capital + word[letter + 1 :]
