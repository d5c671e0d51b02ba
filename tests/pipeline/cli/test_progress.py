"""Lines about long work: at most one in ten seconds and the last; a bar where there is a terminal."""

import io
import logging

import pytest
from rich.console import Console

from pipeline.cli import progress
from pretrain.progress import Point


def record(share: float, left: float | None = None) -> logging.LogRecord:
    made = logging.LogRecord("x", logging.INFO, "", 0, "%s", (f"words: {share:.0%}",), None)
    made.progress = Point("words", share, left)
    return made


def test_a_line_every_ten_seconds_and_the_last(monkeypatch: pytest.MonkeyPatch):
    shown = progress.Shown(console=Console(file=io.StringIO()))
    lines = []
    for seconds in range(60):
        monkeypatch.setattr(progress.time, "monotonic", lambda seconds=seconds: 1000.0 + seconds)
        each = record(seconds / 100, 200.0)
        lines += [each.getMessage()] if shown.filter(each) else []
    assert lines == [f"words: {share}%, about 3 min 20 s left" for share in range(0, 60, 10)]
    assert shown.filter(record(1.0))


def test_a_terminal_has_a_bar_that_ends():
    page = io.StringIO()
    shown = progress.Shown(console=Console(file=page, force_terminal=True, width=80))
    for share in (0.2, 1.0):
        shown.filter(record(share))
    assert "words" in page.getvalue()
    assert "━" in page.getvalue()
    again = record(0.1)
    assert not shown.filter(again), "the last line was a moment ago"
    shown.filter(record(1.0))


def test_quiet_commands_say_nothing_of_it_and_other_lines_pass():
    shown = progress.Shown(quiet=True, console=Console(file=io.StringIO()))
    assert not shown.filter(record(1.0))
    assert shown.filter(logging.LogRecord("x", logging.INFO, "", 0, "else", (), None))
