"""Log lines of a stage tell times in two digits: a round takes as long as its devices typed."""

import logging

import pytest

from pipeline.ground.settings import Settings
from pipeline.run import artifacts
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext
from tests.helpers.launches.pipeline_launch import launch_config


def test_a_round_s_time_has_two_digits_in_the_log(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    run = RunDir(settings.runs_dir, "launch-1")
    tell = artifacts.progress(StageContext(launch_config(), run, settings, "fine_tune", None))
    with caplog.at_level(logging.INFO):
        tell({"round": 1, "rounds": 8, "seconds": 12.3456})
    assert "seconds 12," in f"{caplog.text.strip()},"
    assert "12.3" not in caplog.text


def test_a_second_training_of_a_stage_has_a_name_of_its_own(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """\"ab_test: round 1\" was said of a training that nothing had announced."""
    ctx = StageContext(launch_config(), RunDir(settings.runs_dir, "launch-1"), settings, "ab_test", None)
    with caplog.at_level(logging.INFO):
        artifacts.progress(ctx, "training without privacy")({"round": 1, "rounds": 8})
    assert caplog.messages == ["ab_test, training without privacy: round 1, rounds 8"]
