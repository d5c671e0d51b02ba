"""Record of a stage's last failed attempt, for readers without its log, such as ``tacit runs``."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline.ground.errors import BUG, exit_code
from pipeline.run.bookkeeping import STOPPED
from pipeline.telemetry.allowed import error_type
from pretrain.files import PRIVATE, write_text


@dataclass(frozen=True)
class Stop:
    """The end of a try.

    Attributes:
      error: its class, where it is one that we know.
      exit_code: of the command, which 'tacit explain' explains.
      when: in UTC, as 2026-01-31T12:00:00+00:00.
    """

    stage: str
    error: str
    exit_code: int
    when: str

    def __str__(self) -> str:
        when = self.when[:16].replace("T", " ")
        return f"{self.stage} stopped at {when}Z with exit code {self.exit_code} ({self.error}); its log says why"


@contextmanager
def noted(folder: Path, stage: str) -> Iterator[None]:
    """Keep, in a stage's private folder, how what is done in this block ended; nothing once it ended well.

    Guarantee: of an error its class and exit code alone, as its words may name what lies in somebody's files.
    """
    path = folder / STOPPED
    try:
        yield
    except Exception as error:
        stop = Stop(stage, error_type(error), exit_code(error) or BUG, datetime.now(UTC).isoformat(timespec="seconds"))
        with suppress(OSError):  # such as a full disk, which is the error already
            write_text(path, json.dumps(asdict(stop)), PRIVATE)
        raise
    path.unlink(missing_ok=True)


def latest(run: Path, stage: str = "*") -> Stop | None:
    """Stop of the last stage that stopped, or of one stage; None if none did, or if this user may not look."""
    stops = []
    for path in run.glob(f"private/{stage}/{STOPPED}"):
        with suppress(OSError, ValueError, TypeError):
            stops.append(Stop(**json.loads(path.read_text(encoding="utf-8"))))
    return max(stops, key=lambda stop: stop.when, default=None)
