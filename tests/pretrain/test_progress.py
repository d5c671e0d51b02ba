"""Progress of long work: shares, never counts; a time left once there is something to say it by."""

import logging
from pathlib import Path

import pytest

from pretrain import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def points(caplog: pytest.LogCaptureFixture) -> list[progress.Point]:
    return [record.__dict__["progress"] for record in caplog.records]


def test_what_is_left_follows_from_what_was_done(clock: list[float], caplog: pytest.LogCaptureFixture):
    add = progress.along("words", 1000)
    for seconds, amount in ((110.0, 100), (110.1, 50), (130.0, 250), (140.0, 600)):
        clock[0] = seconds
        add(amount)
    assert points(caplog) == [
        progress.Point("words", 0.1, 90.0),
        progress.Point("words", 0.4, 45.0),  # the second came too soon to be told
        progress.Point("words", 1.0, 0.0),
    ]
    assert "1000" not in caplog.text


def test_after_a_resumption_what_was_done_before_counts_for_nothing(
    clock: list[float], caplog: pytest.LogCaptureFixture
):
    reach = progress.reaching("rounds")
    for seconds, share in ((100.0, 0.5), (110.0, 0.6)):
        clock[0] = seconds
        reach(share, f"round {10 * share:.0f}")
    assert points(caplog) == [progress.Point("rounds", 0.5, None), progress.Point("rounds", 0.6, pytest.approx(40.0))]
    assert "rounds: round 6" in caplog.text


def test_the_latest_point_is_kept_for_whoever_asks_and_gone_at_the_end(tmp_path: Path, clock: list[float]):
    path = tmp_path / "point"
    with progress.kept_in(path):
        assert progress.read(path) is None
        progress.along("words", 4)(1)
        assert progress.read(path) == progress.Point("words", 0.25, 0.0)
        path.write_text("{", encoding="utf-8")
        assert progress.read(path) is None
    assert not path.exists()
    assert logging.getLogger(progress.__name__).handlers == []
