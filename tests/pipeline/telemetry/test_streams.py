"""A command ends the same whoever reads it, and for how long."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.ground.errors import TEMPORARY
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.telemetry.streams import patient

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
    PrivacyLedger.create(f"sqlite:///{tmp_path / 'runs' / 'ledger.db'}")
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
