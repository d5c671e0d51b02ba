"""The index of launches."""

import logging
from pathlib import Path

import pytest

from reports import site
from reports.keyboard import Writing
from tests.helpers.reports.keyboard_run import add_report
from tests.helpers.reports.reports_example import block, example


def index(runs: Path) -> str:
    """The index of runs, made where no runtime for keyboards is."""
    made = site.build(runs, runs / "nothing", lambda locale: Writing((), {}))
    return made.index.read_text(encoding="utf-8")


def test_index_lists_every_report_and_survives_one_that_it_cannot_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert "No launch" in index(tmp_path)
    add_report(tmp_path, "test-fixture-01")
    add_report(tmp_path, "older").write_text("{}", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        page = index(tmp_path)
    assert 'href="test-fixture-01/public/report/report.html"' in page
    for shown in ("9.00%", "0.501", "4.89"):
        assert page.count(shown) == 1
    assert "without numbers" in page
    assert 'href="older/public/report/report.html"' in page
    assert "not a disclosure of this version" in caplog.text
    assert "<script" not in page
    assert "default-src 'none'" in page


def test_index_puts_the_newest_first(tmp_path: Path) -> None:
    for run, made in (("first", "2026-01-01"), ("second", "2026-02-01")):
        add_report(tmp_path, run, example(launch=block("launch", id=run, created_at=made)))
    page = index(tmp_path)
    assert page.index(">second<") < page.index(">first<")
