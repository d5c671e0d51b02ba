"""The index of launches."""

import logging
from pathlib import Path

import pytest

from reports import site
from reports.render import render
from tests.helpers.reports_example import example


def test_index_lists_every_report_and_survives_one_that_it_cannot_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert "No launch" in site.build(tmp_path).read_text(encoding="utf-8")
    for run in ("test-fixture-01", "older"):
        folder = tmp_path / run / "public" / "report"
        folder.mkdir(parents=True)
        render(example(), folder)
    (folder / "disclosure.json").write_text("{}", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        page = site.build(tmp_path).read_text(encoding="utf-8")
    assert 'href="test-fixture-01/public/report/report.html"' in page
    for shown in ("9.00%", "0.501", "4.89"):
        assert page.count(shown) == 1
    assert "without numbers" in page
    assert 'href="older/public/report/report.html"' in page
    assert "not a disclosure of this version" in caplog.text
    assert "<script" not in page


def test_index_puts_the_newest_first(tmp_path: Path) -> None:
    for run, made in (("first", "2026-01-01"), ("second", "2026-02-01")):
        folder = tmp_path / run / "public" / "report"
        folder.mkdir(parents=True)
        launch = example().launch.model_copy(update={"id": run, "created_at": made})
        render(example().model_copy(update={"launch": launch}), folder)
    page = site.build(tmp_path).read_text(encoding="utf-8")
    assert page.index(">second<") < page.index(">first<")
