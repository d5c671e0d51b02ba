"""Log lines for people, or as JSON with launch, stage and attempt: one object a line, on standard error.

Both standard streams bear a reader that leaves, and say once that a disk is full.
"""

import io
import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

from typing_extensions import Buffer

from pipeline.telemetry import work

_QUIET = ("mlflow", "alembic", "httpx", "datasets", "matplotlib", "fontTools", "opentelemetry")


class JsonLines(logging.Formatter):
    """A log record as one JSON object.

    Guarantee: nothing but what the line for people says, and which launch, stage and attempt it is of. Arguments that a
    caller gave beside the message are left out, as are the values in a traceback's frames.
    """

    def format(self, record: logging.LogRecord) -> str:
        at_work = work.now()
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if at_work.stage:
            line |= {"launch_id": at_work.launch_id, "stage": at_work.stage, "attempt": at_work.attempt}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: int | str, form: str) -> None:
    """Send logs to standard error, in the form that the settings name: ``text`` or ``json``."""
    logging.basicConfig(
        level=level,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
        force=True,
    )
    logging.captureWarnings(form == "json")
    for handler in logging.getLogger().handlers:
        if form == "json":
            handler.setFormatter(JsonLines())
        # The quantiser of onnxruntime tells the root logger about every tensor.
        handler.addFilter(lambda record: record.name != "root" or record.levelno >= logging.WARNING)
    for noisy in _QUIET:
        logging.getLogger(noisy).setLevel(logging.WARNING)


class _PatientFile(io.FileIO):
    """Says a failure once, by the stream's name; what nobody reads any more goes nowhere."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._name, self._lost = name, False

    def write(self, data: Buffer) -> int:
        if not self._lost:
            try:
                return super().write(data)
            except BrokenPipeError:
                self._lost = True
            except OSError as error:
                self._lost = True
                raise OSError(error.errno, error.strerror, self._name) from None
        return memoryview(data).nbytes


def patient(stream: TextIO | None, name: str) -> TextIO:
    """The same stream, on which a command ends as it would have ended with somebody reading.

    Work that is done is not reported as failed, and a scheduler does not try again, because `head` had enough.

    Args:
      stream: None where it is closed.
    """
    if stream is None:
        return io.TextIOWrapper(io.BufferedWriter(io.FileIO(os.devnull, "wb")), "utf-8")
    stream.flush()
    raw = io.BufferedWriter(_PatientFile(stream.fileno(), name))
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=bool(stream.line_buffering))


def be_patient() -> None:
    """Both standard streams from now on."""
    sys.stdout, sys.stderr = patient(sys.stdout, "standard output"), patient(sys.stderr, "standard error")
