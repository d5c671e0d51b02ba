"""The day until which a launch may keep what people typed, written down beside their text before any of it is read.

It stands in the private folder, so that text expires by it whatever becomes of the launch's records, its launch file
and the ledger.
"""

import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from federated.config.population import Kept
from federated.devices.withdrawn import Withdrawn
from pipeline.ground.errors import LaunchError
from pipeline.ledger import clock
from pipeline.run.bookkeeping import WINDOW
from pipeline.run.run_dir import RunDir
from pretrain.files import PRIVATE, write_text

_STAGE = "ingest_private"


@dataclass(frozen=True)
class Window:
    """Retention window of text.

    Attributes:
      days: None for ever, as where it is nobody's.
      as_of: the last day of which text was read.
      withdrawn: digest of the devices that were left out.
    """

    days: int | None
    as_of: date | None
    withdrawn: str = ""

    @property
    def ends(self) -> datetime | None:
        """The moment at which the text is to be gone; None if never."""
        if self.days is None or self.as_of is None:
            return None
        return clock.start_of(self.as_of.isoformat()) + timedelta(days=self.days + 1)

    @property
    def is_over(self) -> bool:
        """True if the text is to be gone by now."""
        return self.ends is not None and clock.now() >= self.ends


FOR_EVER = Window(None, None)


def write(run: RunDir, retention: Kept | None, withdrawn: Withdrawn) -> None:
    """Write the window of a launch's text down, and who is left out of it; again, for text that is read again."""
    days, as_of = (retention.days, retention.as_of.isoformat()) if retention else (None, None)
    content = {"days": days, "as_of": as_of, "withdrawn": withdrawn.digest}
    write_text(run.private(_STAGE) / WINDOW, json.dumps(content), PRIVATE)


def read(run: RunDir) -> Window | None:
    """The window that was written down; None if there is none that can be read."""
    try:
        content = json.loads((run.path / "private" / _STAGE / WINDOW).read_text(encoding="utf-8"))
        return _window(content["days"], content["as_of"], str(content["withdrawn"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def recorded(run: RunDir) -> Window | None:
    """The window that the record of the ingestion states; None if no record of it counts, as without a ledger."""
    try:
        record = run.record(_STAGE)
        return None if record is None else _window(record.result["days_kept"], record.result["as_of"])
    except (LaunchError, OSError, ValueError, LookupError, TypeError):
        return None


def _window(days: int | None, as_of: str | None, withdrawn: str = "") -> Window:
    return Window(None if days is None else int(days), None if as_of is None else date.fromisoformat(as_of), withdrawn)
