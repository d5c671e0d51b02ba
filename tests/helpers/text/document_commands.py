"""The blocks of code of a document: commands to run, files to write, lines to change, output to see."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
      kind: its language.
      title: the file that it is of, if it says so.
    """

    kind: str
    title: str
    text: str


def blocks(document: Path) -> list[Block]:
    """All blocks in order."""
    rows = re.findall(
        r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', document.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    return [Block(*row) for row in rows]


def like(line: str) -> re.Pattern[str]:
    """Any line that says the same with other numbers and digests."""
    words = re.split(r"(-[0-9a-f]{8}\b|[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)", line.strip())
    anything = r"[0-9a-f.,e+-]+"
    return re.compile("".join(anything if number % 2 else re.escape(word) for number, word in enumerate(words)))
