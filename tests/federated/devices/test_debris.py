"""Text that was decoded wrongly is refused at the first look and at the whole, before anything is paid."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.devices import readers
from pretrain.reading.rows import BATCH_ROWS

BAD = "i donâ€™t know"


def files(folder: Path, bad: dict[int, int], rows: int = 200) -> list[str]:
    """Parquet files, of which some have so many bad rows at their end."""
    for number in range(3):
        texts = ["fine here"] * (rows - bad.get(number, 0)) + [BAD] * bad.get(number, 0)
        ids = [f"device-{row % 50:03}" for row in range(rows)]
        pq.write_table(pa.table({"client_id": ids, "text": texts}), folder / f"part-{number}.parquet")
    return [str(folder / "*.parquet")]


def test_a_look_at_first_rows_and_the_reading_refuse_it(tmp_path: Path) -> None:
    patterns = files(tmp_path, {1: 20})
    for look in (readers.inspect, lambda paths: list(readers.from_files(paths, "en-US").devices)):
        with pytest.raises(ValueError, match="hold UTF-8 read as another encoding") as refused:
            look(patterns)
        assert str(refused.value).startswith("private_text.paths: 1% of the rows or more")
        assert "know" not in str(refused.value)


def test_the_reading_finds_what_first_rows_do_not_show(tmp_path: Path) -> None:
    patterns = files(tmp_path, {0: 900}, BATCH_ROWS + 1_000)
    readers.inspect(patterns)
    with pytest.raises(ValueError, match="hold UTF-8 read as another encoding"):
        list(readers.from_files(patterns, "en-US").devices)


def test_a_few_such_rows_are_read(tmp_path: Path) -> None:
    patterns = files(tmp_path, {0: 5})
    readers.inspect(patterns)
    assert len(list(readers.from_files(patterns, "en-US").devices)) == 50


@pytest.mark.parametrize(("number", "warned"), [(40, True), (2, False)])
def test_public_text_is_read_with_a_warning(
    number: int, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from pretrain.config import FileCorpus
    from pretrain.text.sources import open_stream

    file = tmp_path / "text.jsonl"
    texts = [BAD] * number + ["a fine sentence"] * (500 - number)
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    asked = FileCorpus(source="files", train=(str(file),), max_tokens=9_999, max_validation_tokens=9)
    read = sum(1 for _ in open_stream(asked, "en-US", "train"))
    assert read > 400
    assert ("public_text: 1% of the rows or more hold UTF-8" in caplog.text) == warned
