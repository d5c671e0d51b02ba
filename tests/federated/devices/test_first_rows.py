"""``check`` reads the first rows of every file, however many there are, and refuses no file that a launch reads."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.devices import readers
from pretrain.config import FileCorpus
from pretrain.reading.rows import BATCH_ROWS, MOST_BEFORE
from pretrain.text import sources
from tests.federated.devices.damaged import write_damaged

GOOD = {"client_id": ["a", "b"], "text": ["hello", "you"], "locale": ["en-US"] * 2, "ts": ["2026-03-10T12:00:00Z"] * 2}


def among_many(folder: Path, last: Callable[[Path], None], files: int = 12) -> list[str]:
    """A glob of files of two good rows, with one more that sorts last."""
    for number in range(files):
        pq.write_table(pa.table(GOOD), folder / f"part-{number:02}.parquet")
    last(folder / "part-99")
    return [str(folder / "part-*")]


def table(**columns: object) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(GOOD | columns), path)


def lines(*rows: dict) -> Callable[[Path], None]:
    return lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8") and None


def row(**changes: object) -> dict:
    return {name: values[0] for name, values in GOOD.items()} | changes


WRONG = {
    "text of numbers": (table(text=[1, 2]), r"column 'text' is int64, not text"),
    "ids of fractions": (table(client_id=[1.0, 2.0]), r"column 'client_id' is double, not text"),
    "a list for a locale": (table(locale=[["en"], ["en"]]), r"column 'locale' is list, not text"),
    "truth for a time": (table(ts=[True, False]), r"column 'ts' is bool; write a timestamp"),
    "numbers beside times": (table(ts=[1.0, 2.0]), r"ts is a time in one file and a number in another"),
    "lines of numbers": (lines(*[row(text=5)] * (MOST_BEFORE + 1)), r"line 1: 'text' is a number, not text"),
    "lines without ids that are text": (lines(*[row(client_id=[7])] * (MOST_BEFORE + 1)), r"line 1: 'client_id' is a"),
    "damage in ids": (lambda path: write_damaged(path, [(0, 0)]), r"row group 0, column 'client_id', is not readable"),
    "damage in text": (lambda path: write_damaged(path, [(0, 1)]), r"row group 0, column 'text', is not readable"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_one_wrong_file_among_many_is_found(tmp_path: Path, wrong: str) -> None:
    last, said = WRONG[wrong]
    patterns = among_many(tmp_path, last)
    with pytest.raises(ValueError, match=rf"part-99.*{said}|{said} \(part-99"):
        readers.inspect(patterns)
    if "lines" not in wrong:
        with pytest.raises(ValueError, match="part-99"):
            readers.from_files(patterns, "en-US")


TAKEN = {
    "a row of numbers": lines(*[row(text=5)] * MOST_BEFORE),
    "rows without ids, sorted first": table(
        **{name: values * (2 * BATCH_ROWS) for name, values in GOOD.items()}
        | {"client_id": [None] * (BATCH_ROWS + 1) + ["a"] * (3 * BATCH_ROWS - 1)}
    ),
    "no row": table(**{name: pa.array([], pa.string()) for name in GOOD}),
    "null throughout": table(locale=pa.nulls(2), ts=pa.nulls(2)),
}


@pytest.mark.parametrize("taken", TAKEN)
def test_what_costs_rows_alone_is_no_wrong_file(tmp_path: Path, taken: str) -> None:
    readers.inspect(among_many(tmp_path, TAKEN[taken]))


def test_debris_in_later_files_is_found(tmp_path: Path) -> None:
    patterns = among_many(
        tmp_path, table(**{name: values * 10 for name, values in GOOD.items()} | {"text": ["donâ€™t"] * 20})
    )
    with pytest.raises(ValueError, match="hold UTF-8 read as another encoding"):
        readers.inspect(patterns)


@pytest.mark.parametrize(("content", "said"), [([1, 2], r"column 'text' is int64"), (["a", "b"], "")])
def test_public_files_of_another_type_are_found_too(tmp_path: Path, content: list, said: str) -> None:
    patterns = among_many(tmp_path, table(text=content))
    asked = FileCorpus(
        source="files", train=tuple(patterns), validation=tuple(patterns), max_tokens=9, max_validation_tokens=9
    )
    if not said:
        sources.inspect(asked)
        return
    with pytest.raises(ValueError, match=rf"public_text.*part-99.*{said}"):
        sources.inspect(asked)
