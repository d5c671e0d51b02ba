"""No message about people's data shows it: not on standard error, not as JSON, not in logs, not in an exception."""

import json
import logging
import sys
import traceback
import uuid
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from pipeline.cli.support import command
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.entries import Spend
from pipeline.telemetry import logs
from pipeline.tracking import mlflow_tracker
from tacit.training import ingested
from tests.bad_inputs.cases import PERMANENT, changed
from tests.bad_inputs.rows import NoTracker
from tests.helpers.launches.command import ended, invoked
from tests.helpers.launches.installed import installed
from tests.helpers.launches.pipeline_launch import launch_config, write_launch

WORD, NUMBER = "plantedsecret", 4471004471
# Whatever a careless exporter may put where text, an id, a time or a locale belongs.
WRONG: dict[str, object] = {
    "text": WORD,
    "a list": [f"my pin is {WORD}", NUMBER],
    "an object": {WORD: NUMBER},
    "a number": NUMBER,
    "a long number": int(f"{NUMBER}" * 2),
    "a fraction": NUMBER + 0.5,
    "true": True,
    "half a pair": f"{WORD}\ud800",
    "a control": f"{WORD}\x1b[31m\u202e",
    "nothing": None,
}
COLUMNS = ("client_id", "text", "locale", "ts")


def _good(number: int) -> dict[str, object]:
    day = f"2026-01-{1 + number % 9:02d}T00:00:00Z"
    return {"client_id": f"d{number % 20}", "text": "see you soon", "locale": "en-US", "ts": day}


def _lines(folder: Path, rows: list[dict]) -> Path:
    path = folder / "typed.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _said(folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything that ``check`` and the stage say of one file of people's text, with every log line."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TACIT_HOME", str(folder))
    monkeypatch.setattr(mlflow_tracker, "MlflowTracker", NoTracker)
    private = {"source": "files", "name": "people", "paths": [str(path)], "max_words_per_device": 100}
    raw = changed("private_text", private)
    file, run = str(write_launch(folder, raw)), launch_id(LaunchConfig.model_validate(raw))
    installed(folder, "people")
    done = [
        invoked(["--verbose", *command])
        for command in (
            ["check", file, "--json"],
            ["stage", "ingest_private", file, "--id", run, "--json"],
        )
    ]
    assert {each.exit_code for each in done} <= {0, PERMANENT}, [each.output for each in done]
    public = [each.read_text(errors="replace") for each in folder.glob("runs/*/public/**/*") if each.is_file()]
    return "\n".join([*(each.output for each in done), *(_chain(each.exception) for each in done), *public])


def _chain(error: BaseException | None) -> str:
    """The traceback that a caller of the library, or a debugger, would see."""
    return "" if error is None else "".join(traceback.format_exception(error))


def _is_silent(said: str) -> None:
    for planted in (WORD, str(NUMBER), "\x1b[31m", "\u202e"):
        assert planted not in said, said[:1_000]


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("column", COLUMNS)
def test_lines(column: str, wrong: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [_good(number) for number in range(60)]
    rows[7][column] = wrong
    _is_silent(_said(tmp_path, _lines(tmp_path, rows), monkeypatch))


@pytest.mark.parametrize(
    "line",
    [
        f"{WORD} is no JSON",
        f'{{"client_id": "{WORD}", "text": "{WORD}',
        f'{{"client_id": "d1", "text": "\\{WORD}"}}',
        f'["{WORD}", {NUMBER}]',
        f'"{WORD}"',
        f'{{"{WORD}": {NUMBER}}}',
        str(NUMBER),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_lines_of_no_record(line: str, first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _lines(tmp_path, [_good(number) for number in range(60)])
    content = path.read_text(encoding="utf-8")
    path.write_text(f"{line}\n{content}" if first else f"{content}{line}\n", encoding="utf-8")
    _is_silent(_said(tmp_path, path, monkeypatch))


PARQUET: dict[str, Callable[[], pa.Array]] = {
    "text": lambda: pa.array([WORD] * 60),
    "a category": lambda: pa.array([WORD] * 60).dictionary_encode(),
    "lists": lambda: pa.array([[WORD]] * 60),
    "structs": lambda: pa.array([{WORD: NUMBER}] * 60),
    "numbers": lambda: pa.array([NUMBER] * 60),
    "large numbers": lambda: pa.array([NUMBER * 10**9 + 1] * 60),
    "fractions": lambda: pa.array([NUMBER + 0.5] * 60),
    "bytes": lambda: pa.array([WORD.encode()] * 60),
    "no UTF-8": lambda: pa.array([WORD.encode() + b"\xf4\x28"] * 60).view(pa.string()),
    "times beyond time": lambda: pa.array([NUMBER * 10**7] * 60, pa.timestamp("ms")),
    "nothing": lambda: pa.nulls(60),
}


@pytest.mark.parametrize("wrong", PARQUET.values(), ids=PARQUET)
@pytest.mark.parametrize("column", COLUMNS)
def test_parquet(column: str, wrong: Callable[[], pa.Array], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.Table.from_pylist([_good(number) for number in range(60)])
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, wrong()), tmp_path / "typed.parquet")
    _is_silent(_said(tmp_path, tmp_path / "typed.parquet", monkeypatch))


@pytest.mark.parametrize("column", ["client_id", "text"])
def test_columns_under_other_names(column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table on its side has ids, or words, as the names of its columns."""
    table = pa.Table.from_pylist([_good(number) for number in range(60)])
    named = [WORD if name == column else name for name in table.schema.names]
    pq.write_table(table.rename_columns(named), tmp_path / "typed.parquet")
    _is_silent(_said(tmp_path, tmp_path / "typed.parquet", monkeypatch))


@pytest.mark.parametrize("content", [f'{{"client_id": ["{WORD}"]}}', f'{{"client_id": {NUMBER}}}', WORD, f'["{WORD}"]'])
def test_lists_of_withdrawn_devices(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_HOME", str(tmp_path))
    installed(tmp_path, "people")
    (tmp_path / "gone.jsonl").write_text(content + "\n", encoding="utf-8")
    done = invoked(["--verbose", "withdraw", "people", "--ids", str(tmp_path / "gone.jsonl"), "--json"])
    assert done.exit_code == PERMANENT
    _is_silent(done.output + _chain(done.exception))


@pytest.mark.parametrize("wrong", [[WORD], {WORD: 1}, NUMBER, WORD.encode()], ids=["list", "object", "number", "bytes"])
@pytest.mark.parametrize("column", COLUMNS)
def test_frames(column: str, wrong: object) -> None:
    frame = pd.DataFrame([_good(number) for number in range(60)]).astype(object)
    frame.at[7, column] = wrong
    with pytest.raises(ValueError, match=f"column '{column}'") as refused, ingested(frame, launch_config(), 0):
        pass
    _is_silent(_chain(refused.value))


# A terminal would turn red, clear, ring, and show a name from right to left or with an invisible sign.
ESCAPES = "\x1b[31m", "\x9b2J", "\x07", "\x7f", "\u202e", "\u2066", "\u200f", "\u200b", "\ufeff", "\u2028"
ESCAPED = "".join(ESCAPES)


def _shows_no_escape(said: str) -> None:
    assert not [each for each in ESCAPES if each in said], ascii(said[-500:])


@pytest.mark.parametrize("verbose", [[], ["--verbose"]], ids=["terse", "verbose"])
@pytest.mark.parametrize(
    "command",
    [
        ["check", "FILE"],
        ["check", "FILE", "--json"],
        ["check", f"no{ESCAPED}.yaml"],
        ["launch", f"no{ESCAPED}.yaml"],
        ["status", f"no{ESCAPED}"],
        ["explain", f"no{ESCAPED}"],
        ["predict", f"no{ESCAPED}", "hello"],
        ["verify", f"no{ESCAPED}"],
        ["stage", f"no{ESCAPED}", "FILE"],
        ["withdraw", f"no{ESCAPED}", "--ids", f"no{ESCAPED}"],
        ["withdraw", "people", "--ids", f"no{ESCAPED}.jsonl"],
        ["ledger", "show", "--population", f"no{ESCAPED}"],
    ],
    ids=lambda command: ascii(" ".join(command))[:30],
)
def test_names_are_escaped(
    command: list[str], verbose: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACIT_HOME", str(tmp_path))
    file = write_launch(tmp_path, changed(f"private_text.na{ESCAPED}me", ESCAPED)).rename(tmp_path / f"a{ESCAPED}.yaml")
    done = invoked([*verbose, *(str(file) if each == "FILE" else each for each in command)])
    assert done.exit_code
    _shows_no_escape(done.output)


@pytest.mark.parametrize("form", [logs.TextLines, logs.JsonLines])
@pytest.mark.parametrize("level", [logging.INFO, logging.ERROR])
def test_log_lines_are_escaped(form: Callable[[], logging.Formatter], level: int) -> None:
    try:
        raise KeyError(ESCAPED)
    except KeyError:
        record = logging.LogRecord("a", level, "b", 1, f"file {ESCAPED} می\u200cخواهم 👩\u200d🚒", (), sys.exc_info())
    line = form().format(record)
    _shows_no_escape(line)
    assert "می\u200cخواهم 👩\u200d🚒" in (json.loads(line)["message"] if form is logs.JsonLines else line)


@pytest.mark.parametrize(
    "convert",
    [
        lambda: pa.array([WORD]).cast(pa.int64()),
        lambda: pd.Timestamp(f"{NUMBER}{NUMBER}-01-01"),
        lambda: np.array([WORD]).astype(float),
        lambda: int(WORD),
        lambda: float(WORD),
        lambda: date.fromisoformat(WORD),
        lambda: uuid.UUID(f"{WORD}-{WORD}"),
        lambda: json.loads(f'{{"{WORD}'),
        lambda: Decimal(WORD) if pa.scalar(WORD).cast(pa.decimal128(5)) else None,
        lambda: Spend.model_validate({"unit": WORD}),
        lambda: [WORD].index("another"),
        lambda: WORD.encode("ascii") and f"{WORD}\udcff".encode(),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_library_s_own_error(
    convert: Callable[[], object], form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a reader that forgot to catch it."""
    monkeypatch.setenv("TACIT_LOG", form)

    def read(as_json: bool) -> None:
        convert()

    with pytest.raises(typer.Exit) as ended:
        command(read)(as_json=True)
    assert ended.value.exit_code == PERMANENT
    said = capsys.readouterr()
    _is_silent(said.out + said.err)
    assert "may quote data" in said.out


ROWS = {
    "rows": f'{{"client_id": "{WORD}", "text": "my pin is {NUMBER}"}}\n{{"client_id": "{WORD}", "text": ["{WORD}"]}}\n',
    "one row": f'{{"client_id": "{WORD}", "text": "{WORD}", "locale": "{WORD}", "name": ["{WORD}"], "like": {NUMBER}}}',
    "a table": f"client_id,text\n{WORD},my pin: {NUMBER}\n",
    "messages": f"{WORD}: my pin is {NUMBER}\n{WORD}: {WORD}\n",
    "a message": f"{WORD}: [\n",
    "a number": f"{NUMBER}: {WORD}",
    "a tag": f"!{WORD} a",
    "an anchor": f"&{WORD} a: *{WORD}",
    "a directive": f"%{WORD} {WORD}\n--- a",
    "a time": f"at: 2026-99-99\n{WORD}: '\\ud800'",
    "an escape": f'"{WORD} \\q": a',
    "a control": f"{WORD}\x01",
    "a text": WORD,
}


# One row as YAML has a launch file's own field, whose value its reader needs.
@pytest.mark.parametrize(
    ("rows", "ending"),
    [(rows, ending) for rows in ROWS for ending in ("jsonl", "yaml") if rows + ending != "one rowyaml"],
)
def test_people_s_file_in_the_place_of_a_launch_file(rows: str, ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"people.{ending}"
    file.write_text(ROWS[rows])
    for command_line in (["check", str(file), "--json"], ["check", str(file), "--alone"], ["plan", str(file)]):
        _is_silent(ended(*command_line, code=PERMANENT, variables={"TACIT_HOME": str(tmp_path)}).output)
