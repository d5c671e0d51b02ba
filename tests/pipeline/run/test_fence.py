"""Of attempts only the newest writes."""

import threading
from functools import partial
from pathlib import Path

import pytest

from pipeline.ground.errors import StaleAttempt
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import fence, runner
from tests.helpers.launches import small_run
from tests.helpers.launches.pipeline_launch import Calls, Counted, launch_config
from tests.helpers.launches.stages import running


def refused(folder: Path, number: int) -> str:
    """Why a write is refused; the block of one that is refused does not run."""
    ran = False
    try:
        with fence.standing(folder, number):
            ran = True
    except StaleAttempt as error:
        assert not ran
        return str(error)
    return ""


def test_a_newer_attempt_shuts_the_older_out(tmp_path: Path) -> None:
    first = fence.begin(tmp_path)
    assert not refused(tmp_path, first)
    second = fence.begin(tmp_path)
    assert second == first + 1
    assert "attempt 1 may no longer write, as attempt 2 has begun" in refused(tmp_path, first)
    assert not refused(tmp_path, second)


def test_nobody_begins_while_somebody_writes(tmp_path: Path) -> None:
    first, begun = fence.begin(tmp_path), threading.Event()

    def another() -> None:
        fence.begin(tmp_path)
        begun.set()

    newer = threading.Thread(target=another)
    with fence.standing(tmp_path, first):
        newer.start()
        assert not begun.wait(0.2)
        assert fence.current(tmp_path) == first
    newer.join()
    assert fence.current(tmp_path) == first + 1


def test_workers_that_were_shut_out_leave_no_checkpoint(tmp_path: Path) -> None:
    attempt = fence.begin(tmp_path)

    def overtaken(message: dict[str, float]) -> None:
        if message["round"] == 4:
            fence.begin(tmp_path)

    writing = partial(fence.standing, tmp_path, attempt)
    with pytest.raises(StaleAttempt):
        small_run.run(small_run.Launch(), tmp_path / "rounds", overtaken, writing=writing)
    assert [path.name for path in (tmp_path / "rounds").glob("*.ckpt")] == ["round-00000003.ckpt"]


def test_an_attempt_that_was_shut_out_commits_nothing_to_the_ledger(settings: Settings) -> None:
    config, stages, ledger = launch_config(), Calls().stages, PrivacyLedger.of(settings)

    def overtaken(ctx: object) -> Counted:
        fence.begin(ctx.private)
        return stages["fine_tune"].function(ctx)

    late = running(stages, fine_tune=overtaken)
    for name in ("ingest_private", "plan"):
        runner.run_stage(name, config, launch_id(config), settings, late)
    with pytest.raises(StaleAttempt, match="attempt 1 may no longer write, as attempt 2 has begun"):
        runner.run_stage("fine_tune", config, launch_id(config), settings, late)
    assert [entry.kind for entry in ledger.spends()] == ["reserve"]
    runner.run_stage("fine_tune", config, launch_id(config), settings, stages)
    assert [entry.kind for entry in ledger.spends()] == ["reserve", "commit"]
