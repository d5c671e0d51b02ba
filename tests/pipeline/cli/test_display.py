"""What people see of a launch: a line or a table a stage, lines about long work, a bar on a terminal, and the end."""

import io
import logging
import math
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.cli import display
from pipeline.cli.display import details, ending, in_a_line, shown
from pipeline.run.run_dir import StageRecord
from pipeline.run.runner import StageOutcome
from pipeline.stages.launch import Ending
from pretrain.progress import Point
from tests.helpers.launches.pipeline_launch import spend

RECORD = StageRecord(
    launch_id="trial-0123abcd",
    stage="fine_tune",
    config_digest="c",
    inputs={},
    outputs={},
    private_outputs=True,
    started_at="2026-11-21T00:00:00+00:00",
    seconds=12.34,
    processor="any",
    result={"rho": 0.25, "rounds": 1600, "curve": [{"step": 1}], "spend": spend(0.25).model_dump(), "rows": [{"a": 1}]},
)


def test_a_stage_is_a_line_of_number_seconds_and_what_it_says():
    ended, again = StageOutcome(RECORD, skipped=False), StageOutcome(RECORD, skipped=True)
    assert in_a_line(ended, "9/14", "{rounds:,} rounds") == f"✓  9/14  fine_tune         {'12 s':>12}  1,600 rounds"
    assert in_a_line(ended, "9/14", "{words:,} words").endswith("12 s"), (
        "a field that a launch leaves empty says nothing"
    )
    assert "already done" in in_a_line(again, "", "")


def test_details_are_a_short_table():
    text = io.StringIO()
    Console(file=text, width=80).print(details(StageOutcome(RECORD, skipped=False), "9/14"))
    assert "9/14 fine_tune (12 s)" in text.getvalue()
    assert "1,600" in text.getvalue()
    assert "curve" not in text.getvalue()
    assert "device" in text.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (0.000123456, "0.0001235"),
        (math.inf, "inf"),
        ("a" * 64, "aaaaaaaaaaaa..."),
        ({"train": 40, "test": 20}, "train: 40, test: 20"),
        (["one", "two"], "one\ntwo"),
        (["x"] * 7, "7 items"),
        ([{"row": 1}], None),
        ({}, None),
    ],
)
def test_cells(value: object, text: str | None):
    assert shown(value) == text


@pytest.mark.parametrize(
    ("bundle", "decision", "now", "expected"),
    [
        ("/runs/x/bundle", "launch", ("published", "as version 1"), "tacit predict trial-0123abcd"),
        (
            "/runs/x/bundle",
            "launch",
            ("candidate", "as version 2, not all have it"),
            "users:     as version 2, not all",
        ),
        (None, "launch", ("waiting", "for approval by ana or bo"), "waits for approval by ana or bo"),
        (None, "launch", ("rejected", "by ana"), "launch trial-0123abcd: rejected\n"),
        (None, "hold", ("held", "gain: too small"), "gain: too small"),
    ],
)
def test_ending(bundle: str | None, decision: str, now: tuple[str, str], expected: str):
    end = Ending(
        launch_id="trial-0123abcd",
        decision=decision,
        state=now[0],
        detail=now[1],
        ledger="/runs/ledger.db",
        reasons=("gain: too small",),
        rho=None,
        epsilon=3.51,
        delta=1e-6,
        guarantee="3.51 (local words 2.01)",
        loss="epsilon 3.51 (local words 2.01) at delta 1e-06",
        run_dir=Path("/runs/x"),
        report=Path("/runs/x/report.html"),
        bundle=None if bundle is None else Path(bundle),
        tracking_uri="sqlite:////runs/mlflow.db",
    )
    text = ending(end)
    assert expected in text
    assert "ledger:    /runs/ledger.db" in text
    assert "epsilon 3.51 (local words 2.01) at delta 1e-06" in text
    assert ("model:" in text) == (decision == "launch")


def record(share: float, left: float | None = None) -> logging.LogRecord:
    made = logging.LogRecord("x", logging.INFO, "", 0, "%s", (f"words: {share:.0%}",), None)
    made.progress = Point("words", share, left)
    return made


@pytest.mark.parametrize("every", [display.DETAILED, display.TERSE])
def test_progress_is_a_line_now_and_then_and_the_last(monkeypatch: pytest.MonkeyPatch, every: float):
    shown = display.ProgressFilter(every, console=lambda: Console(file=io.StringIO()))
    lines = []
    for seconds in range(100):
        monkeypatch.setattr(display.time, "monotonic", lambda seconds=seconds: 1000.0 + seconds)
        each = record(seconds / 100, 200.0)
        lines += [each.getMessage()] if shown.filter(each) else []
    assert lines == [f"words: {share}%, about 3 min 20 s left" for share in range(0, 100, int(every))]
    assert shown.filter(record(1.0))


@pytest.mark.parametrize("every", [display.DETAILED, display.TERSE])
def test_a_terminal_has_a_bar_that_ends(every: float):
    page = io.StringIO()
    shown = display.ProgressFilter(every, console=lambda: Console(file=page, force_terminal=True, width=80))
    for share in (0.2, 1.0):
        shown.filter(record(share))
    assert "words" in page.getvalue()
    assert "━" in page.getvalue()
    again = record(0.1)
    assert not shown.filter(again), "the last line was a moment ago"
    assert shown.filter(record(1.0)) == (every == display.DETAILED), "beside the bar only details are lines"


def test_quiet_commands_say_nothing_of_it_and_warnings_pass():
    shown = display.ProgressFilter(math.inf, console=lambda: Console(file=io.StringIO()))
    assert not shown.filter(record(1.0))
    assert shown.filter(logging.LogRecord("x", logging.WARNING, "", 0, "else", (), None))
