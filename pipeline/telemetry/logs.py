"""Log lines for people, or as JSON with launch, stage and attempt: one object a line, on standard error."""

import json
import logging
import sys
from datetime import UTC, datetime

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
