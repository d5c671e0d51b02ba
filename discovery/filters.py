"""Filters of discovered words: each drops words of one form. The launch file lists those that apply in its locale.

A new filter is one entry of ``FILTERS``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import regex


@dataclass(frozen=True)
class Filter:
    """A form of words that a keyboard should not suggest.

    Attributes:
      name: as launch files and review sheets write it.
      matches: whether a word, as a keyboard shows it, has the form.
      sentence: the form in words, for the report.
    """

    name: str
    matches: Callable[[str], bool]
    sentence: str


def _search(pattern: str) -> Callable[[str], bool]:
    compiled = regex.compile(pattern)
    return lambda word: compiled.search(word) is not None


# The first match is a word's reason, so forms of personal data come first.
FILTERS = (
    Filter("account-number", _search(r"(?i)^[a-z]{2}\d{2}[a-z0-9]{6,}$"), "two letters and a long number, as an IBAN"),
    Filter("digits", _search(r"\d{3,}|(?:\d\D*){4,}"), "three digits in a row, or four in all"),
    Filter("password", _search(r"(?:\p{L}+\d+){2,}\p{L}|(?:\d+\p{L}+){2,}\d"), "letters and digits in turn"),
    Filter("e-mail", _search(r"\S+@\S+"), "an @ between other characters"),
    Filter("handle", _search(r"^[@#]"), "an @ or # at the start"),
    Filter("web-address", _search(r"(?i)https?|www\.|\w\.\p{L}{2,}"), "http, www. or a domain"),
    Filter("one-letter", _search(r"^.$"), "a single character"),
    Filter("no-letter", _search(r"^\P{L}+$"), "no letter at all: numbers, signs, emoji"),
    Filter("invisible-character", _search(r"[\p{C}\p{Z}]"), "a control character or a space"),
)
NAMES = tuple(each.name for each in FILTERS)


def require_known(names: Sequence[str], field: str) -> None:
    """ValueError for a name that is no filter's, or that occurs twice.

    Args:
      field: the field of the launch file that lists them.
    """
    known = f"the filters are {', '.join(NAMES)}"
    for name in names:
        if name not in NAMES:
            raise ValueError(f"{field}: no filter is named {name!r}; correct or remove it: {known}")
        if names.count(name) > 1:
            raise ValueError(f"{field}: {name!r} occurs twice; write each name once: {known}")


def matching(word: str) -> tuple[str, ...]:
    """Names of all filters that match a word, in the order of ``FILTERS``."""
    return tuple(each.name for each in FILTERS if each.matches(word))
