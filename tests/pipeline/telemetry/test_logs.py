"""Log lines as JSON: an object a line, with launch, stage and attempt."""

import json
import logging
import sys

import pytest

from pipeline.telemetry import logs, work


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
    assert within.pop("time").endswith("+00:00")
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


@pytest.mark.usefixtures("root")
def test_lines_for_people_are_what_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(logging.INFO, "text")
    logging.getLogger("some").info("done")
    logging.getLogger("alembic.x").info("not shown")
    assert capsys.readouterr().err.endswith("INFO    some: done\n")
