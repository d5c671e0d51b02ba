"""The list that a person decides on: every discovered word, how sure it is, and what the filters say.

It holds words that nobody has looked at, so it belongs in the private directory.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from discovery.filters import PASSED, verdicts
from discovery.results import FoundWord, by_share
from pretrain.config import Config
from pretrain.files import PRIVATE, write_text
from pretrain.writing.case import form_of

_COLUMNS = ("number", "decision", "word", "share", "low", "high", "layer", "verdict")
# A spreadsheet takes a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Candidate(Config):
    """One word under review.

    Attributes:
      word: as the model has it; shown: as a keyboard would, which is what filters and people judge.
      share, low, high: estimated share of its layer's messages that held it, with a 95% interval.
      verdict: ``filters.PASSED`` or the reason why a filter stopped it.
      decision: what a person wrote; empty where nobody did.
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
        """A person's word counts most; without it, the filters'."""
        return self.decision == "keep" or (self.decision == "" and self.verdict == PASSED)


def candidates(words: Iterable[FoundWord], blocked: Iterable[str] = (), locale: str = "en-US") -> tuple[Candidate, ...]:
    """All discovered words, most frequent first, as a keyboard of the locale shows them, with what the filters say."""
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
