"""Log lines on standard error: as text, or as one JSON object a line with launch, stage and attempt.

A closed pipe on a standard stream is not an error, and a full disk is reported once.
"""

import io
import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

from typing_extensions import Buffer

from pipeline.telemetry import work

_QUIET = ("mlflow", "alembic", "httpx", "datasets", "matplotlib", "fontTools", "opentelemetry")


# Controls but for line break and tab, direction marks, separators, and halves of characters: a name that holds them
# would clear a terminal, or show other words than it has. Joiners stay, which words and pictures need.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Escape characters that a terminal would obey or not show, in everything that is printed or logged."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class TextLines(logging.Formatter):
    """A log record as a line for people: with time, level and logger where all are shown, else its message alone."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        if logging.getLogger().isEnabledFor(logging.INFO):
            return printable(super().format(record))
        message = record.getMessage()
        lines = [message if record.levelno < logging.WARNING else f"{record.levelname.lower()}: {message}"]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        return printable("\n".join(lines))


class JsonLines(logging.Formatter):
    """A log record as one JSON object.

    Guarantee: it holds only the content of the text line, and the launch, stage and attempt. Extra arguments of the
    caller are left out, as are the values in a traceback's frames.
    """

    def format(self, record: logging.LogRecord) -> str:
        at_work = work.now()
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if at_work.stage:
            line |= {"launch_id": at_work.launch_id, "stage": at_work.stage, "attempt": at_work.attempt}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return printable(json.dumps(line, ensure_ascii=False))


def configure(level: int | str, form: str) -> None:
    """Send logs to standard error, in the form of the settings: ``text`` or ``json``.

    A line of text has time, level and logger if the level is INFO or lower.
    """
    logging.basicConfig(
        level=level,
        stream=sys.stderr,
        force=True,
    )
    logging.captureWarnings(form == "json")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines() if form == "json" else TextLines())
        # The quantiser of onnxruntime logs every tensor to the root logger.
        handler.addFilter(lambda record: record.name != "root" or record.levelno >= logging.WARNING)
    for noisy in _QUIET:
        logging.getLogger(noisy).setLevel(logging.WARNING)


class _PatientFile(io.FileIO):
    """Stream that reports a write failure once, by its name, and discards output to a closed pipe."""

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
    """Wrap a stream so that a reader that closes it early does not change the command's exit code.

    Otherwise finished work would be reported as failed, and a scheduler would retry it, because `head` had stopped.

    Args:
      stream: the stream; None if it is closed.
    """
    if stream is None:
        return io.TextIOWrapper(io.BufferedWriter(io.FileIO(os.devnull, "wb")), "utf-8")
    stream.flush()
    raw = io.BufferedWriter(_PatientFile(stream.fileno(), name))
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=bool(stream.line_buffering))


def be_patient() -> None:
    """Wrap both standard streams with ``patient``."""
    sys.stdout, sys.stderr = patient(sys.stdout, "standard output"), patient(sys.stderr, "standard error")
