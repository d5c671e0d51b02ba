"""Debris of wrong decoding in rows of text: a share of it refuses text before anything is paid.

What can be mended is mended where text is read (``tokenise``: HTML entities, surrogate references). The rest would be
words: *wonâ*, *nlove*.
"""

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pretrain.reading.rows import MOST_BAD

# Fewer rows of a kind are no fault of an export.
_FEWEST = 10


@dataclass(frozen=True)
class Kind:
    """A kind of debris.

    Attributes:
      pattern: RE2, of a row that holds it.
      fix: what to do about it.
    """

    name: str
    pattern: str
    fix: str


# Bytes 0x80 to 0xBF of UTF-8, read as Windows-1252 or Latin-1.
_CONTINUED = (
    r"[\x{80}-\x{bf}\x{152}\x{153}\x{160}\x{161}\x{178}\x{17d}\x{17e}\x{192}\x{2c6}\x{2dc}\x{2013}\x{2014}"
    r"\x{2018}-\x{201e}\x{2020}-\x{2022}\x{2026}\x{2030}\x{2039}\x{203a}\x{20ac}\x{2122}]"
)
KINDS = (
    Kind(
        "UTF-8 read as another encoding",
        # Two characters of two bytes, one of three (quotation marks, scripts of India) or of four (emoji), or an
        # accented capital A before what follows it in no word.
        rf"(?:[\x{{c2}}-\x{{df}}]{_CONTINUED}){{2}}|(?:\x{{e2}}[\x{{80}}\x{{20ac}}]|\x{{e0}}[\x{{a4}}-\x{{b7}}]){_CONTINUED}"
        r"|\x{f0}[\x{9f}\x{178}]"
        r"|[\x{c2}\x{c3}][\x{a0}-\x{bf}]",
        "export the text again as UTF-8",
    ),
    Kind("characters lost in decoding", r"\x{fffd}", "export the text again as UTF-8"),
    Kind(
        "escapes that were escaped again",
        r"\\(?:[nrt](?:\\|\pL|\s|$)|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})",
        r"decode JSON once more, so that \n is a line break",
    ),
    Kind("HTML tags", r"(?i)</?(?:br|p|div|span|a|b|i|li|ul|font)(?:\s[^<>]*)?/?>", "export text without its markup"),
)


class Debris:
    """Counts rows that hold debris, by kind. Private."""

    def __init__(self) -> None:
        self._rows, self._kinds = 0, Counter[str]()

    def look(self, texts: pa.Array | pa.ChunkedArray) -> None:
        """Count the rows of a batch."""
        self._rows += len(texts)
        for kind in KINDS:
            found = pc.sum(pc.match_substring_regex(texts, kind.pattern)).as_py()
            self._kinds[kind.name] += found or 0

    @property
    def said(self) -> str:
        """The most frequent kind and its fix, if more than a constant share of the rows hold it; else empty.

        Guarantee: a kind of debris is named, and no number or text.
        """
        kind = max(KINDS, key=lambda each: self._kinds[each.name])
        if self._kinds[kind.name] < max(_FEWEST, MOST_BAD * self._rows):
            return ""
        return f"{MOST_BAD:.0%} of the rows or more hold {kind.name}, which would become words; {kind.fix}"
