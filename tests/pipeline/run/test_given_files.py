"""Files that a person gives: a change of one is noticed, although the configuration names only its path."""

from pathlib import Path

import pytest

from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.run import runner
from pipeline.run.known import run_folder
from pipeline.run.stage import StageContext, Stages
from pretrain.files import sha256
from tests.helpers.launches.pipeline_launch import Counted, launch_config
from tests.helpers.launches.stages import stages_of

CONFIG = launch_config()


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    path = tmp_path / "blocked.txt"
    path.write_text("slur\n", encoding="utf-8")
    return path


def stages(made: list[str], *paths: str | Path) -> Stages:
    """A stage that reads ``paths``; those that are not absolute lie in its private folder."""

    def plan(ctx: StageContext) -> Counted:
        made.append("plan")
        for path in paths:
            ctx.run.use_file(ctx.private / path)
        return Counted(value=1)

    return stages_of({"plan": plan})


def test_a_changed_or_missing_file_makes_the_stage_run_again(listed: Path, settings: Settings):
    made: list[str] = []

    def run() -> runner.StageOutcome:
        return runner.run_stage("plan", CONFIG, launch_id(CONFIG), settings, stages(made, listed))

    first = run()
    assert first.record.inputs == {f"given/{listed}": sha256(listed)}
    assert run().skipped
    listed.write_text("slur\nanother\n", encoding="utf-8")
    second = run()
    assert not second.skipped
    assert second.record.inputs != first.record.inputs
    assert run().skipped
    assert made == ["plan", "plan"]
    listed.unlink()
    with pytest.raises(FileNotFoundError):
        run()


def test_a_sheet_in_the_private_folder_counts_too_and_names_no_machine(settings: Settings):
    made: list[str] = []
    run_id = launch_id(CONFIG)
    sheet = run_folder(settings, run_id).private("plan") / "review.csv"
    sheet.write_text("keep", encoding="utf-8")
    given = stages(made, "review.csv")
    record = runner.run_stage("plan", CONFIG, run_id, settings, given).record
    assert list(record.inputs) == ["given/private/plan/review.csv"]
    assert runner.run_stage("plan", CONFIG, run_id, settings, given).skipped
    sheet.write_text("drop", encoding="utf-8")
    assert not runner.run_stage("plan", CONFIG, run_id, settings, given).skipped
    assert len(made) == 2
