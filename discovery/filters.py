"""Filters for discovered words that may enter a vocabulary before a person has looked."""

from collections.abc import Iterable
from pathlib import Path

import regex

from pretrain.reading.paths import read_text

PASSED = "passed"
_MOST_BYTES = 1 << 26

_SHAPES = (
    ("account number", regex.compile(r"(?i)^[a-z]{2}\d{2}[a-z0-9]{6,}$")),
    ("digits", regex.compile(r"\d{3,}|(?:\d\D*){4,}")),
    ("password", regex.compile(r"(?:\p{L}+\d+){2,}\p{L}|(?:\d+\p{L}+){2,}\d")),
    ("e-mail", regex.compile(r"\S+@\S+")),
    ("handle", regex.compile(r"^[@#]")),
    ("web address", regex.compile(r"(?i)https?|www\.|\w\.\p{L}{2,}")),
    ("one letter", regex.compile(r"^.$")),
    ("no letter", regex.compile(r"^\P{L}+$")),
    ("invisible character", regex.compile(r"[\p{C}\p{Z}]")),
)


def verdicts(words: Iterable[str], blocked: Iterable[str] = ()) -> list[str]:
    """``PASSED`` or the reason why it may not go on, for each word.

    Args:
      blocked: words that must not be suggested in this locale, compared without case.
    """
    barred = {word.casefold() for word in blocked}
    return ["blocklist" if word.casefold() in barred else _shape(word) or PASSED for word in words]


def read_blocklist(path: Path) -> tuple[str, ...]:
    """A locale's public blocklist: UTF-8, one word a line; blank lines and lines that start with ``#`` do not count.

    Raises:
      ValueError: there is no such file of UTF-8 text: without it nothing would be blocked.
    """
    text = read_text(path, "discovery.blocklist", "write the path of the list, or remove it", _MOST_BYTES)
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def _shape(word: str) -> str | None:
    return next((name for name, pattern in _SHAPES if pattern.search(word)), None)
