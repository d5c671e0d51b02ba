"""Log lines as JSON, an object a line; and standard streams whose reader leaves, or whose disk is full."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.ground.errors import TEMPORARY
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.telemetry import logs, work
from pipeline.telemetry.logs import patient
from tests.helpers.launches.installed import at


@pytest.fixture
def root() -> None:
    kept = logging.getLogger()
    handlers, level = kept.handlers[:], kept.level
    yield
    kept.handlers[:], kept.level = handlers, level


@pytest.mark.usefixtures("root")
def test_lines_say_which_stage_of_which_launch_and_which_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(logging.INFO, "json")
    logging.getLogger("some").info("before %d", 1)
    work.attempt(3)
    with work.at("demo-0123abcd", "plan", "en-US", ("NWP",)):
        logging.getLogger("some").warning("two\nlines", extra={"secret": "not said"})
    work.attempt(1)
    before, within = map(json.loads, capsys.readouterr().err.splitlines())
    assert before.keys() == {"time", "level", "logger", "message"}
    assert before["message"] == "before 1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", within.pop("time")), "no more than seconds"
    expected = {"level": "WARNING", "logger": "some", "message": "two\nlines"}
    assert within == expected | {"launch_id": "demo-0123abcd", "stage": "plan", "attempt": 3}


@pytest.mark.usefixtures("root")
def test_a_traceback_has_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(logging.INFO, "json")
    typed = "what somebody " + "typed"
    try:
        int(typed and "x")
    except ValueError:
        logging.getLogger("some").error("failed", exc_info=sys.exc_info())
    (line,) = capsys.readouterr().err.splitlines()
    assert "invalid literal" in json.loads(line)["traceback"]
    assert "what somebody typed" not in line


FULL = Path("/dev/full")
COMMAND = [sys.executable, "-m", "tacit"]


def test_what_nobody_reads_goes_nowhere():
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as file:
        stream = patient(file, "standard output")
        print("read", file=stream, flush=True)
        assert os.read(reader, 100) == b"read\n"
        os.close(reader)
        for _ in range(2):
            print("not read", file=stream, flush=True)
        stream.close()


def test_a_full_disk_is_said_once_with_the_stream():
    with FULL.open("w", encoding="utf-8") as file:
        stream = patient(file, "standard output")
        with pytest.raises(OSError, match="No space left on device: 'standard output'"):
            print("answer", file=stream, flush=True)
        print("and so on", file=stream, flush=True)
        stream.close()


def test_a_closed_stream_is_none():
    with patient(None, "standard error") as stream:
        print("to nobody", file=stream, flush=True)


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_failure(tmp_path: Path):
    PrivacyLedger.create(at(tmp_path))
    variables = os.environ | {"TACIT_HOME": str(tmp_path)}
    reader, writer = os.pipe()
    os.close(reader)
    closed = subprocess.run([*COMMAND, "ledger", "show"], env=variables, stdout=writer, stderr=writer, check=False)
    os.close(writer)
    assert closed.returncode == 0
    with FULL.open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [*COMMAND, "ledger", "show"], env=variables, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, "standard output" in done.stderr) == (TEMPORARY, True)
