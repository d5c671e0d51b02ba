"""A record counts only if the ledger holds its digest: an edited, copied or older one publishes nothing."""

import json
import shutil
from pathlib import Path

import pytest

from pipeline.ground.errors import LaunchError, ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, load_kept_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.approvals import require_approved
from pipeline.publication.registry import Registry
from pipeline.run import runner
from pipeline.run.known import write_down
from pipeline.run.run_dir import RESULT, record_digest, record_text
from pipeline.stages.graph import STAGES
from pretrain.files import sha256
from tests.helpers.launches import publishable
from tests.helpers.launches.command import answered
from tests.helpers.launches.decided import Compared, decided_launch, stages
from tests.helpers.launches.stages import stages_of

pytestmark = [
    pytest.mark.slow,
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


def edit(folder: Path, **result: object) -> None:
    """Change what a stage's record states, as with an editor."""
    path = folder / RESULT
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | {"result": content["result"] | result}), encoding="utf-8")


@pytest.fixture
def held(tracked: Settings, tmp_path: Path) -> tuple[LaunchConfig, str]:
    """A launch that its gates held, with everything on disk that a publication needs."""
    run_id = publishable.launch(tracked, tmp_path, "hold", logged=STAGES)["run_id"]
    return load_kept_launch(tracked.runs_dir / run_id / "public" / "launch" / "launch.json"), run_id


def champion(settings: Settings) -> int | None:
    return Registry(settings).alias(publishable.NAME, "champion")


@pytest.mark.parametrize("in_mlflow", [True, False])
def test_a_hold_edited_to_a_launch_publishes_nothing(
    held: tuple[LaunchConfig, str], tracked: Settings, in_mlflow: bool
):
    """With MLflow the record comes back from there; without, the stage says what is wrong and what to do."""
    config, run_id = held
    edit(tracked.runs_dir / run_id / "public" / "decide", decision="launch", reasons=["fine"])
    (tracked.runs_dir / run_id / "public" / "publish" / RESULT).unlink()
    if in_mlflow:
        assert answered(tracked.home, "stage", "publish", run_id)["published"] is False
    else:
        with pytest.raises(LaunchError, match=r"decide.*does not match the ledger.*run stage 'decide' again"):
            runner.run_stage("publish", config, run_id, tracked, publishable.stages("hold"))
    assert champion(tracked) is None
    assert answered(tracked.home, "predict", "en-US", "see you", code=65)["ok"] is False


def test_a_hold_that_says_it_was_published_shows_so_nowhere(held: tuple[LaunchConfig, str], tracked: Settings):
    run_id = held[1]
    public = tracked.runs_dir / run_id / "public"
    edit(public / "decide", decision="launch")
    versions = {publishable.NAME: 1}
    edit(public / "publish", published=True, registered_model=publishable.NAME, version=1, versions=versions)
    (row,) = answered(tracked.home, "runs")["runs"]
    assert (row["state"], row["decision"]) == ("unfinished", None)
    assert answered(tracked.home, "review", run_id)["state"] == "held", "as MLflow and the ledger know it"


def run_of(settings: Settings) -> tuple[LaunchConfig, str, Path]:
    config, run_id = decided_launch(settings, "hold")
    return config, run_id, settings.runs_dir / run_id


def test_edited_evidence_is_made_again_and_not_decided_on(settings: Settings):
    config, run_id, folder = run_of(settings)
    edit(folder / "public" / "ab_test", top1_gain=1.0)
    (folder / "public" / "decide" / RESULT).unlink()
    opened = runner.open_run(config, run_id, settings)
    assert opened.record("ab_test") is None
    again = runner.run_stage("ab_test", config, run_id, settings, stages("hold"))
    assert not again.skipped
    assert again.result["top1_gain"] == 0.029


def test_a_file_changed_along_with_its_digest_is_made_again(settings: Settings):
    config, run_id, folder = run_of(settings)
    made = folder / "public" / "audit" / "made.txt"
    made.write_text("nothing was found")
    path = made.with_name(RESULT)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["outputs"]["made.txt"] = sha256(made)
    path.write_text(json.dumps(content), encoding="utf-8")
    assert runner.find_done("audit", config, run_id, settings) is None
    runner.run_stage("audit", config, run_id, settings, stages("hold"))
    assert made.read_text() == "audit"


def test_a_computation_left_by_a_crash_counts_only_as_the_ledger_holds_it(settings: Settings):
    """``.outcome.json`` is finished without being computed again, so it is a record like any other."""
    config, run_id, folder = run_of(settings)
    path = folder / "public" / "decide" / RESULT
    content = json.loads(path.read_text(encoding="utf-8"))
    content["result"]["decision"] = "launch"
    (folder / "private" / "decide" / ".outcome.json").write_text(
        json.dumps({"record": content, "binding": None}), encoding="utf-8"
    )
    path.unlink()
    done = runner.run_stage("decide", config, run_id, settings, stages("hold"))
    assert done.result["decision"] == "hold"


def test_a_decision_about_evidence_that_was_made_again_since_publishes_nothing(settings: Settings):
    """Every record of it counts; but the decision is about another comparison than the one that stands."""
    config, run_id = decided_launch(settings, "launch")
    opened, ledger = runner.open_run(config, run_id, settings), PrivacyLedger.of(settings)
    decided = opened.record("decide")
    compared = record_digest(opened.record("ab_test"))
    (opened.public("decide") / RESULT).unlink()
    decided = decided.model_copy(update={"inputs": {f"ab_test/{RESULT}": compared}})
    write_down(decided, settings)
    (opened.public("decide") / RESULT).write_text(record_text(decided), encoding="utf-8")
    require_approved(config, opened, ledger)
    (opened.public("ab_test") / RESULT).unlink()
    less = stages_of({"ab_test": lambda ctx: Compared(value=1, top1_gain=-0.05)})
    runner.run_stage("ab_test", config, run_id, settings, less)
    with pytest.raises(ReleaseRefused, match=r"ab_test/result.json has changed since stage 'decide' read it"):
        require_approved(config, opened, ledger)


def test_a_bundle_says_whether_the_ledger_knows_it(tracked: Settings, tmp_path: Path):
    done = publishable.launch(tracked, tmp_path)
    assert answered(tracked.home, "predict", str(done["bundle"]), "see you")["known"] is True
    copied = shutil.copytree(done["bundle"], tmp_path / "copied")
    about = json.loads((copied / "bundle.json").read_text(encoding="utf-8"))
    (copied / "bundle.json").write_text(json.dumps(about | {"more": 1}), encoding="utf-8")
    assert answered(tracked.home, "predict", str(copied), "see you")["known"] is False
