"""The index of launches."""

import logging
from pathlib import Path

import pytest

from reports import site
from tests.helpers.reports_example import block, example


def add_run(runs: Path, name: str, **changes: object) -> Path:
    """A run's folder with the disclosure that the index reads."""
    path = runs / name / "public" / "report" / "disclosure.json"
    path.parent.mkdir(parents=True)
    path.write_text(example(**changes).model_dump_json(), encoding="utf-8")
    return path


def test_index_lists_every_report_and_survives_one_that_it_cannot_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert "No launch" in site.build(tmp_path).read_text(encoding="utf-8")
    add_run(tmp_path, "test-fixture-01")
    add_run(tmp_path, "older").write_text("{}", encoding="utf-8")
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
        add_run(tmp_path, run, launch=block("launch", id=run, created_at=made))
    page = site.build(tmp_path).read_text(encoding="utf-8")
    assert page.index(">second<") < page.index(">first<")
