"""Review of discovered words before they enter a vocabulary: blocklist, filters, and the sheet that a person fills in.

The sheet holds unreviewed words, so it belongs in the private directory.
"""

import csv
import io
import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

from discovery.filters import matching
from discovery.results import FoundWord, by_share
from pretrain.config import Config
from pretrain.files import PRIVATE, write_text
from pretrain.reading.paths import read_text
from pretrain.writing.case import form_of

PASSED, BLOCKLIST = "passed", "blocklist"
_MOST_BYTES = 1 << 26
_COLUMNS = ("number", "decision", "word", "share", "low", "high", "layer", "verdict", "matches")
# Spreadsheets read a cell that begins with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Candidate(Config):
    """One word under review.

    Attributes:
      word: lower-cased, as in the model; shown: as a keyboard shows it, the form that filters and people judge.
      share, low, high: estimated share of its layer's messages that held it, with a 95% interval.
      verdict: ``PASSED``, or the filter that drops it unless a person keeps it; ``BLOCKLIST`` counts as a filter.
      matches: all filters that match it, also those that the launch does not apply.
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
    matches: tuple[str, ...]
    decision: Literal["", "keep", "drop"] = ""

    @property
    def accepted(self) -> bool:
        """Return whether the word is accepted: by a person's decision or, without one, by the filters."""
        return self.decision == "keep" or (self.decision == "" and self.verdict == PASSED)


def candidates(
    words: Iterable[FoundWord], filters: Collection[str], blocked: Iterable[str] = (), locale: str = "en-US"
) -> tuple[Candidate, ...]:
    """All discovered words, most frequent first, in the locale's written form, with the verdicts of the filters.

    Args:
      filters: names of the filters that drop words.
      blocked: words that must not be suggested in this locale, compared without case.
    """
    ranked, barred = sorted(words, key=by_share), {word.casefold() for word in blocked}
    listed = []
    for number, entry in enumerate(ranked, start=1):
        shown = form_of(entry.word, entry.form, locale)
        matches = (*((BLOCKLIST,) if shown.casefold() in barred else ()), *matching(shown))
        verdict = next((name for name in matches if name == BLOCKLIST or name in filters), PASSED)
        about = entry.model_dump(exclude={"form"})
        listed.append(Candidate(number=number, shown=shown, verdict=verdict, matches=matches, **about))
    return tuple(listed)


def write_review(directory: Path, listed: Sequence[Candidate]) -> None:
    """``review.csv``, whose column ``decision`` a person fills with 'keep' or 'drop', and ``review.json``."""
    sheet = io.StringIO()
    rows = csv.DictWriter(sheet, _COLUMNS)
    rows.writeheader()
    for candidate in listed:
        row = candidate.model_dump(exclude={"shown"}) | {"word": candidate.shown}
        row["matches"] = ", ".join(candidate.matches)
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


def read_blocklist(path: Path) -> tuple[str, ...]:
    """A locale's public blocklist: UTF-8, one word per line; blank lines and lines that start with ``#`` do not count.

    Raises:
      ValueError: the file is missing or not UTF-8 text: without it nothing would be blocked.
    """
    text = read_text(
        path, "discovery.blocklist", "write its path from the launch file's folder, or remove it", _MOST_BYTES
    )
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))
