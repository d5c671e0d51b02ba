"""Columns of files that somebody else wrote: what is read of them, how much at most, and how to say what is wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pretrain.reading.paths import shown

# Text shrinks to a third, repetitive lines to a twentieth. Small files may do as they like.
MOST_EXPANSION, FREE_BYTES = 100, 1 << 26
MOST_TEXT_BYTES = 1 << 24
BATCH_ROWS, BATCH_BYTES = 10_000, 1 << 26

Kind = Literal["text", "id", "order"]


@dataclass(frozen=True)
class Column:
    """A column to read.

    Attributes:
      kind: ``text``; ``id``: text that Parquet may hold as whole numbers; ``order``: a time or a number, as it is.
    """

    name: str
    kind: Kind = "text"
    required: bool = True


def most_bytes(path: Path) -> int:
    """Most bytes that a file may unpack to."""
    return max(FREE_BYTES, MOST_EXPANSION * path.stat().st_size)


def too_much(path: Path, field: str, most: int) -> ValueError:
    """Say that it does not."""
    return ValueError(
        f"{field}: {shown(path)} unpacks to more than {most:,} bytes, {MOST_EXPANSION} times its size, which no text "
        "does; look at what made it"
    )


def missing(path: Path, field: str, column: Column, names: Sequence[str]) -> ValueError:
    """Say that a column is not there, and which are."""
    has = shown(", ".join(map(repr, names))) or "none"
    return ValueError(f"{field}: {shown(path)}: column {column.name!r} is missing; it has {has}")


def too_long(path: Path, field: str) -> ValueError:
    """Say that a text is."""
    return ValueError(
        f"{field}: {shown(path)} holds a text of more than {MOST_TEXT_BYTES:,} bytes; cut it into texts of a few lines"
    )
