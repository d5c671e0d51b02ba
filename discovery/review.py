"""Review of discovered words before they enter a vocabulary: filters, and the list that a person decides on.

The list holds unreviewed words, so it belongs in the private directory.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import regex

from discovery.results import FoundWord, by_share
from pretrain.config import Config
from pretrain.files import PRIVATE, write_text
from pretrain.reading.paths import read_text
from pretrain.writing.case import form_of

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
_COLUMNS = ("number", "decision", "word", "share", "low", "high", "layer", "verdict")
# Spreadsheets read a cell that begins with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Candidate(Config):
    """One word under review.

    Attributes:
      word: lower-cased, as in the model; shown: as a keyboard shows it, the form that filters and people judge.
      share, low, high: estimated share of its layer's messages that held it, with a 95% interval.
      verdict: ``PASSED`` or the reason why a filter stopped it.
      decision: decision of a person; empty without one.
    """

    number: int
    word: str
    shown: str
    share: float
    low: float
    high: float
    layer: int
    verdict: str
    decision: Literal["", "keep", "drop"] = ""

    @property
    def accepted(self) -> bool:
        """Return whether the word is accepted: by a person's decision or, without one, by the filters."""
        return self.decision == "keep" or (self.decision == "" and self.verdict == PASSED)


def candidates(words: Iterable[FoundWord], blocked: Iterable[str] = (), locale: str = "en-US") -> tuple[Candidate, ...]:
    """All discovered words, most frequent first, in the locale's written form, with the verdicts of the filters."""
    ranked = sorted(words, key=by_share)
    shown = [form_of(entry.word, entry.form, locale) for entry in ranked]
    judged = zip(ranked, shown, verdicts(shown, blocked), strict=True)
    return tuple(
        Candidate(number=number, shown=form, verdict=verdict, **entry.model_dump(exclude={"form"}))
        for number, (entry, form, verdict) in enumerate(judged, start=1)
    )


def write_review(directory: Path, listed: Sequence[Candidate]) -> None:
    """``review.csv``, whose column ``decision`` a person fills with 'keep' or 'drop', and ``review.json``."""
    sheet = io.StringIO()
    rows = csv.DictWriter(sheet, _COLUMNS)
    rows.writeheader()
    for candidate in listed:
        row = candidate.model_dump(exclude={"shown"}) | {"word": candidate.shown}
        if candidate.shown.startswith(_FORMULA):
            row["word"] = "'" + candidate.shown
        rows.writerow({name: f"{value:.6f}" if isinstance(value, float) else value for name, value in row.items()})
    write_text(directory / "review.csv", sheet.getvalue(), PRIVATE)
    write_text(directory / "review.json", json.dumps([row.model_dump() for row in listed], indent=1), PRIVATE)


def read_review(directory: Path) -> tuple[Candidate, ...]:
    """The words with the decisions of ``review.csv``; the words themselves come from ``review.json``.

    Raises:
      ValueError: a row that is missing, that is not of this list, or whose decision is unknown.
    """
    rows = json.loads((directory / "review.json").read_text("utf-8"))
    listed = [Candidate.model_validate(row) for row in rows]
    with (directory / "review.csv").open(encoding="utf-8", newline="") as file:
        decisions = {row["number"]: row["decision"].strip().lower() for row in csv.DictReader(file)}
    if decisions.keys() != {str(candidate.number) for candidate in listed}:
        raise ValueError("review.csv: its rows are not those of review.json; fill in the column 'decision' only")
    wrong = sorted(set(decisions.values()) - {"", "keep", "drop"})
    if wrong:
        raise ValueError(f"review.csv: decision {wrong[0]!r} is unknown; write 'keep', 'drop' or nothing")
    return tuple(candidate.model_copy(update={"decision": decisions[str(candidate.number)]}) for candidate in listed)


def verdicts(words: Iterable[str], blocked: Iterable[str] = ()) -> list[str]:
    """``PASSED`` or the reason for rejection, for each word.

    Args:
      blocked: words that must not be suggested in this locale, compared without case.
    """
    barred = {word.casefold() for word in blocked}
    return ["blocklist" if word.casefold() in barred else _shape(word) or PASSED for word in words]


def read_blocklist(path: Path) -> tuple[str, ...]:
    """A locale's public blocklist: UTF-8, one word per line; blank lines and lines that start with ``#`` do not count.

    Raises:
      ValueError: the file is missing or not UTF-8 text: without it nothing would be blocked.
    """
    text = read_text(path, "discovery.blocklist", "write the path of the list, or remove it", _MOST_BYTES)
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def _shape(word: str) -> str | None:
    return next((name for name, pattern in _SHAPES if pattern.search(word)), None)
