"""Standard output and standard error, whose reader may leave and whose disk may be full."""

import io
import os
import sys
from typing import TextIO

from typing_extensions import Buffer


class _Raw(io.FileIO):
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
    raw = io.BufferedWriter(_Raw(stream.fileno(), name))
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=bool(stream.line_buffering))


def be_patient() -> None:
    """Both standard streams from now on."""
    sys.stdout, sys.stderr = patient(sys.stdout, "standard output"), patient(sys.stderr, "standard error")
