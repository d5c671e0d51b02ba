"""``tacit account`` inside the test's own process: a second instead of three for every call."""

import json

from click.testing import Result

from tests.helpers.launches.command import ended


def run(*arguments: str, code: int = 0) -> Result:
    """What the command printed; it must end with ``code``."""
    return ended("account", *arguments, code=code)


def answer(*arguments: str, code: int = 0) -> dict:
    """The one line on standard output."""
    (line,) = run(*arguments, "--json", code=code).stdout.splitlines()
    return json.loads(line)
