"""Record of a stage's last failed attempt, for readers without a log."""

from pathlib import Path

import pytest

from pipeline.ground.errors import BudgetExceeded, StageBusy
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.run import attempts, runner
from pipeline.run.known import run_folder
from pipeline.run.stage import StageContext, StageResult
from tests.helpers.launches.pipeline_launch import Counted, launch_config
from tests.helpers.launches.stages import stages_of

SECRET = "a word nobody may see"


class _OfTheirs(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "name", "code"),
    [(BudgetExceeded(SECRET), "BudgetExceeded", 65), (OSError(SECRET), "OSError", 75), (_OfTheirs(SECRET), "other", 1)],
)
def test_the_class_of_an_error_is_kept_and_none_of_its_words(error: Exception, name: str, code: int, tmp_path: Path):
    folder = tmp_path / "private" / "plan"
    folder.mkdir(parents=True)
    with pytest.raises(type(error)), attempts.noted(folder, "plan"):
        raise error
    stop = attempts.latest(tmp_path)
    assert (stop.stage, stop.error, stop.exit_code) == ("plan", name, code)
    assert "plan stopped at 20" in str(stop)
    kept = [path for path in folder.iterdir() if SECRET not in path.read_text(encoding="utf-8")]
    assert kept == list(folder.iterdir())
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    with attempts.noted(folder, "plan"):
        pass
    assert attempts.latest(tmp_path) is None, "it ended well since"


def test_a_stage_that_fails_is_noted_until_it_ends_well(settings: Settings):
    config, fails = launch_config(), [True]

    def plan(ctx: StageContext) -> StageResult:
        if fails:
            raise ValueError(SECRET)
        return Counted(value=1)

    run_id, stages = launch_id(config), stages_of({"plan": plan})
    run = run_folder(settings, run_id)
    with pytest.raises(ValueError, match=SECRET):
        runner.run_stage("plan", config, run_id, settings, stages)
    assert attempts.latest(run.path).error == "ValueError"
    with run.lock("plan"), pytest.raises(StageBusy):
        runner.run_stage("plan", config, run_id, settings, stages)
    assert attempts.latest(run.path).error == "ValueError", "another one's try is not this one's end"
    fails.clear()
    runner.run_stage("plan", config, run_id, settings, stages)
    assert attempts.latest(run.path) is None
    assert run.record("plan").private_outputs is False
