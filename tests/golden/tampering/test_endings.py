"""A real launch held as evidence failed after its spend, and one that has not ended: all that verify looks at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.ground import settings as settings_module
from pipeline.ground.errors import PERMANENT
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id, load_launch
from pipeline.run.known import run_folder
from pipeline.run.stage import StageContext, StageResult, Stages
from pipeline.stages.graph import STAGES
from pipeline.stages.launch import run_stages
from pipeline.tracking import mlflow_tracker
from tests.golden import seeded_launch
from tests.golden.facts import Launched
from tests.golden.seeded_launch import SEEDED
from tests.golden.tampering.checking import checks
from tests.golden.tampering.conftest import Whole
from tests.golden.tampering.edits import Launch
from tests.helpers.launches.command import answered
from tests.helpers.launches.stages import running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]


def refused(_ctx: StageContext) -> StageResult:
    raise ValueError("too few devices to compare on")


def other(home: Path, name: str) -> tuple[LaunchConfig, Settings]:
    """The seeded launch under another name, which reuses what it can of the first."""
    file = seeded_launch.write_launch(home, SEEDED)
    text = file.read_text(encoding="utf-8").replace(f"name: tiny-{SEEDED}", f"name: {name}", 1)
    file = file.with_name(f"{name}.yaml")
    file.write_text(text, encoding="utf-8")
    return load_launch(file), settings_module.load({"TACIT_HOME": str(home), "TACIT_PDF": "no"})


def unmade(stage: str) -> Stages:
    return running(STAGES, **{stage: refused})


def launched(config: LaunchConfig, here: Settings, stage: str) -> Launch:
    run_id = launch_id(config)
    tracker = mlflow_tracker.MlflowTracker(here, config, run_id)
    with pytest.raises(ValueError, match="too few devices"):
        run_stages(config, run_id, here, unmade(stage), tracker)
    return Launch(here, run_folder(here, run_id))


@pytest.fixture(scope="module")
def home(seeded: Launched, whole: Whole) -> Iterator[Path]:
    """The home of the seeded launch, without these launches and their entries in the ledger afterwards."""
    yield seeded.home
    whole.put_back()


def test_a_launch_held_without_its_comparison_verifies(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    held = launched(*other(home, "without-ab"), "ab_test")
    found = checks(held)
    assert {name: check.detail for name, check in found.items() if check.passed is not True} == {}
    assert found["files:ab_test"].detail == "it did not finish, and the launch is held for that"
    assert answered(home, "verify", held.run.launch_id)["ok"]


def test_a_launch_that_has_not_ended_is_not_called_broken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    begun = launched(*other(home, "without-count"), "fine_tune")
    said = answered(home, "verify", begun.run.launch_id, code=PERMANENT)
    assert (said["ok"], said["failed"], said["unknown"]) == (False, 0, 0)
    assert said["unfinished"] == ["fine_tune", "audit", "ab_test", "audit_releases", "decide", "report", "publish"]
