"""Files of text that somebody damaged, for the cases of ``rows.yaml``."""

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.launch.config import LaunchConfig, launch_id
from tests.bad_inputs.cases import PERMANENT, Case, changed, read
from tests.helpers.launches.installed import installed
from tests.helpers.launches.pipeline_launch import RAW, write_launch

_LONG_LINES = {
    "DIGITS": "9" * 5000,
    "THOUSAND": "9" * 1000,
    "DEEP": '{"client_id": "a", "text": ' + "[" * 100_000,
    "HUGE": '{"client_id": "a", "text": "' + "x" * 20_000_000 + '"}',
}
_FIELDS = {"private": "private_text.paths", "public": "public_text.train", "blocklist": "discovery.blocklist"}
_STAGES = {"private": "ingest_private", "public": "ingest_public"}


class NoTracker:
    """In MLflow's place: nothing was logged before, and nothing is."""

    def __init__(self, *_: object) -> None:
        pass

    def fetch(self, *_: object) -> bool:
        return False

    def identical(self, *_: object) -> Iterator[SimpleNamespace]:
        return iter(())

    def log_stage(self, *_: object) -> None:
        pass

    def checkpoints(self) -> dict[str, str]:
        return {}

    def keep_checkpoint(self, note: str) -> None:
        pass

    def failing(self) -> AbstractContextManager[None]:
        return nullcontext()


def of_rows() -> list[Case]:
    """``tacit check`` of a launch whose text is damaged, or the stage that reads all of it."""
    cases = []
    for row in read("rows"):
        for side in ("private", "public") if row["of"] == "both" else (row["of"],):
            cases.append(
                Case(
                    f"{side}: {row['name']}",
                    lambda folder, row=row, side=side: _command(folder, row, side),
                    0 if row.get("ok") else PERMANENT,
                    tuple(row.get("says", ())),
                )
            )
    return cases


def _command(folder: Path, row: dict, side: str) -> list[str]:
    raw = changed(_FIELDS[side], _value(folder, row, side), _launch(folder))
    file = str(write_launch(folder, raw))
    if not row.get("stage"):
        return ["check", file]
    installed(folder, "people")
    run = launch_id(LaunchConfig.model_validate(raw))
    return ["stage", _STAGES[side], file, "--id", run]


def _launch(folder: Path) -> dict:
    """A launch on good files."""
    good = folder / "good.jsonl"
    good.write_text("".join(_good(number) for number in range(40)), encoding="utf-8")
    public = {"source": "files", "train": [str(good)], "validation": [str(good.with_name("held.jsonl"))]}
    good.with_name("held.jsonl").write_bytes(good.read_bytes())
    private = {"source": "files", "name": "people", "paths": [str(good)], "max_words_per_device": 100}
    return RAW | {"public_text": public | {"max_tokens": 100_000}, "private_text": private}


def _value(folder: Path, row: dict, side: str) -> object:
    """What the launch file says: a path, in a list where it is one of text."""
    path = _make(folder, row) if "path" not in row else row["path"]
    if "FIFO" in path:
        os.mkfifo(folder / "pipe")
    stand_ins = {
        "FIFO*": str(folder / "pip*"),
        "FIFO": str(folder / "pipe"),
        "FOLDER": str(folder),
        "LONG": "x" * 900,
        "FILE": str(folder / "good.jsonl"),
    }
    for name, value in stand_ins.items():
        path = path.replace(name, value)
    return path if side == "blocklist" else [path]


def _make(folder: Path, row: dict) -> str:
    """Write the file of a case."""
    if "link" in row:
        (folder / row["link"]).symlink_to(folder / row["link"])
        return str(folder / row["link"])
    path = folder / row["file"]
    content = _content(folder, row)
    if path.suffix == ".gz" and "hex" not in row and not row.get("plain"):
        content = gzip.compress(content, 6, mtime=0)
    content = bytearray(content[: int(len(content) * row.get("cut", 1))])
    for place in row.get("flip", ()):
        content[place] ^= 0xFF
    path.write_bytes(bytes(content) + row.get("tail", "").encode())
    return str(path)


def _content(folder: Path, row: dict) -> bytes:
    if "hex" in row:
        return bytes.fromhex(row["hex"])
    if "columns" in row or "bomb" in row:
        pq.write_table(_table(row), folder / "made.parquet")
        return (folder / "made.parquet").read_bytes()
    lines = "".join(_good(number) for number in range(row.get("good", 0)))
    for line in row.get("lines", ()):
        for name, value in _LONG_LINES.items():
            line = line.replace(name, value)
        lines += line + "\n"
    if "spaces" in row:
        lines += (" " * 999_999 + "\n") * row["spaces"]
    return lines.encode("utf-8-sig" if row.get("mark") else "utf-8")


def _table(row: dict) -> pa.Table:
    if "bomb" in row:
        rows, text = row["bomb"]["rows"], "x" * row["bomb"]["text"]
        indices = pa.repeat(0, rows).cast(pa.int32())
        packed = pa.DictionaryArray.from_arrays(indices, pa.array([text]))
        return pa.table({"client_id": packed, "text": packed})
    columns = {name: pa.array(values) for name, values in row["columns"].items()}
    if "binary" in row:
        packed = pa.array([bytes.fromhex(text) for text in row["columns"][row["binary"]]], pa.binary())
        columns[row["binary"]] = pa.Array.from_buffers(pa.string(), len(packed), packed.buffers())
    names, arrays = list(columns), list(columns.values())
    if "twice" in row:
        names.append(row["twice"])
        arrays.append(columns[row["twice"]])
    return pa.Table.from_arrays(arrays, names=names)


def _good(number: int) -> str:
    text = f"you see me later or so {'abcdefgh'[number % 8]}."
    return json.dumps({"client_id": f"d{number % 20}", "text": text}) + "\n"
