"""The tutorial as it stands: its file is written, its commands run, its output seen."""

from pathlib import Path

import pytest

from tests.helpers.launches.command import answered
from tests.helpers.launches.tracking_database import put
from tests.helpers.launches.tutorial import TUTORIAL, Reader, blocks


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning")
def test_a_newcomer_gets_from_nothing_to_a_held_and_to_a_published_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracking_database: Path
) -> None:
    reader = Reader(tmp_path / "reader")
    reader.home.mkdir()
    put(tracking_database, reader.home)
    monkeypatch.chdir(reader.home)
    for block in blocks(TUTORIAL):
        reader.does(block)
    rows = answered(reader.home, "runs")["runs"]
    assert [row["state"] for row in rows] == ["published", "held"]
    assert rows[0]["top1_gain_low"] > 0.1
    failed = [gate["id"] for gate in answered(reader.home, "status", rows[1]["launch_id"])["failed_gates"]]
    assert "variety" in failed, "by every key; a model of two words may pass the gates on gains"
    site = (reader.home / "runs" / "index.html").read_text(encoding="utf-8")
    assert all(row["launch_id"] in site for row in rows)
