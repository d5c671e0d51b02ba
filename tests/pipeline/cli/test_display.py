"""The tables people see, and lines about long work: at most one in ten seconds and the last; a bar on a terminal."""

import io
import logging
import math
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.cli import display
from pipeline.cli.display import ending, show_stage, shown
from pipeline.run.run_dir import StageRecord
from pipeline.run.runner import StageOutcome
from pipeline.run.stage import of_launch
from pipeline.stages.graph import STAGES
from pipeline.stages.launch import Ending
from pretrain.progress import Point
from tests.helpers.launches.pipeline_launch import launch_config, spend

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


def test_a_stage_is_a_short_table(tmp_path: Path):
    text = io.StringIO()
    stages = of_launch(launch_config(), STAGES)
    for name in (*stages[:8], "ab_test"):
        (tmp_path / "public" / name).mkdir(parents=True)
        (tmp_path / "public" / name / "result.json").touch()
    show_stage(StageOutcome(RECORD, skipped=False), Console(file=text, width=80), stages, tmp_path)
    assert "9/14 fine_tune (12.3 s)" in text.getvalue(), "counts are not asked for; nine have ended"
    assert "1,600" in text.getvalue()
    assert "curve" not in text.getvalue()
    assert "device" in text.getvalue()
    again = io.StringIO()
    show_stage(StageOutcome(RECORD, skipped=True), Console(file=again, width=80), stages, tmp_path)
    assert again.getvalue().startswith("fine_tune (already done)"), "no number that would jump"


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
        ("/runs/x/bundle", "launch", ("published", "as version 1"), "tacit predict /runs/x/bundle"),
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
        rho=0.25,
        epsilon=3.5001,
        delta=1e-6,
        run_dir=Path("/runs/x"),
        report=Path("/runs/x/report.html"),
        bundle=None if bundle is None else Path(bundle),
        tracking_uri="sqlite:////runs/mlflow.db",
    )
    text = ending(end)
    assert expected in text
    assert "ledger:    /runs/ledger.db" in text
    assert "epsilon 3.51 at delta 1e-06" in text
    assert ("model:" in text) == (decision == "launch")


def record(share: float, left: float | None = None) -> logging.LogRecord:
    made = logging.LogRecord("x", logging.INFO, "", 0, "%s", (f"words: {share:.0%}",), None)
    made.progress = Point("words", share, left)
    return made


def test_a_line_every_ten_seconds_and_the_last(monkeypatch: pytest.MonkeyPatch):
    shown = display.ProgressFilter(console=Console(file=io.StringIO()))
    lines = []
    for seconds in range(60):
        monkeypatch.setattr(display.time, "monotonic", lambda seconds=seconds: 1000.0 + seconds)
        each = record(seconds / 100, 200.0)
        lines += [each.getMessage()] if shown.filter(each) else []
    assert lines == [f"words: {share}%, about 3 min 20 s left" for share in range(0, 60, 10)]
    assert shown.filter(record(1.0))


def test_a_terminal_has_a_bar_that_ends():
    page = io.StringIO()
    shown = display.ProgressFilter(console=Console(file=page, force_terminal=True, width=80))
    for share in (0.2, 1.0):
        shown.filter(record(share))
    assert "words" in page.getvalue()
    assert "━" in page.getvalue()
    again = record(0.1)
    assert not shown.filter(again), "the last line was a moment ago"
    shown.filter(record(1.0))


def test_quiet_commands_say_nothing_of_it_and_other_lines_pass():
    shown = display.ProgressFilter(quiet=True, console=Console(file=io.StringIO()))
    assert not shown.filter(record(1.0))
    assert shown.filter(logging.LogRecord("x", logging.INFO, "", 0, "else", (), None))
