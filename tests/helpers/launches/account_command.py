"""``tacit account`` inside the test's own process: a second instead of three for every call."""

import json
import logging

from click.testing import Result
from typer.testing import CliRunner

from pipeline.cli.app import app


def run(*arguments: str, code: int = 0) -> Result:
    """What the command printed; it must end with ``code``."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    done = CliRunner().invoke(app, ["account", *arguments])
    # The command sent its logs to the standard error of this call, which is gone now.
    root.handlers[:] = handlers
    root.setLevel(level)
    assert done.exit_code == code, done.output
    return done


def answer(*arguments: str, code: int = 0) -> dict:
    """The one line on standard output."""
    (line,) = run(*arguments, "--json", code=code).stdout.splitlines()
    return json.loads(line)
