"""Filters of discovered words: each drops words of one form. The launch file lists those that apply in its locale.

A new filter is one entry of ``FILTERS``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    return lambda word: _compiled(pattern).search(word) is not None


@cache
def _compiled(pattern: str) -> "regex.Pattern[str]":
    import regex  # not for reading a launch file, which takes the names alone

    return regex.compile(pattern)


# Pictures, flags, and what joins or colours them.
_EMOJI = r"[\p{Extended_Pictographic}\p{Regional_Indicator}\p{Emoji_Modifier}\u200d\ufe0f]"
# The first match is a word's reason, so forms of personal data come first.
FILTERS = (
    Filter("account-number", _search(r"(?i)^[a-z]{2}\d{2}[a-z0-9]{6,}$"), "two letters and a long number, as an IBAN"),
    Filter("digits", _search(r"\d{3,}|(?:\d\D*){4,}"), "three digits in a row, or four in all"),
    Filter("password", _search(r"(?:\p{L}+\d+){2,}\p{L}|(?:\d+\p{L}+){2,}\d"), "letters and digits in turn"),
    Filter("e-mail", _search(r"\S+@\S+"), "an @ between other characters"),
    Filter("handle", _search(r"^[@#]"), "an @ or # at the start"),
    Filter("web-address", _search(r"(?i)https?|www\.|\w\.\p{L}{2,}"), "http, www. or a domain"),
    Filter("one-letter", _search(rf"^(?!{_EMOJI}).$"), "a single character, but no emoji"),
    Filter("emoji", _search(rf"^{_EMOJI}+$"), "an emoji"),
    Filter("no-letter", _search(rf"^(?!{_EMOJI}+$)\P{{L}}+$"), "no letter at all, and no emoji: numbers and signs"),
    Filter(
        "invisible-character",
        _search(rf"(?V1)[[\p{{C}}\p{{Z}}]--\u200d]|(?<!{_EMOJI})\u200d"),
        "a control character or a space, other than the joiner inside an emoji",
    ),
    Filter(
        "debris",
        # UTF-8 in another encoding leaves it of a word before a quotation mark; no word of a shipped locale ends so.
        _search(r"(?i)[a-z]\u00e2$|[\u00c2\u00c3][\u0080-\u00bf]|\ufffd"),
        "what wrong decoding leaves of a word, as in wonâ",
    ),
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
