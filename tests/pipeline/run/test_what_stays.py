"""Remains of a stage, and of a launch in which one failed: report, seals, digests in the ledger, no leavings."""

import multiprocessing
import os
from collections.abc import Callable

import pytest

from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import runner
from pipeline.run.known import run_folder
from pipeline.run.run_dir import STATE, receipt_digest
from pipeline.run.runner import StageOutcome, Stages
from pipeline.run.stage import StageContext
from pipeline.stages.graph import STAGES
from pipeline.stages.launch import launch, run_stages
from tests.helpers.launches.pipeline_launch import Calls, Counted, launch_config
from tests.helpers.launches.stages import stages_of

CONFIG = launch_config()
ID = launch_id(CONFIG)


@pytest.fixture
def calls() -> Calls:
    return Calls()


def run_all(calls: Calls, settings: Settings) -> list[StageOutcome]:
    """All three stages in order."""
    names = ("ingest_private", "plan", "fine_tune")
    return [runner.run_stage(name, CONFIG, ID, settings, calls.stages) for name in names]


def everything(broken: str = "") -> Stages:
    """A launch of small stages that decides by what evidence there is; one of them may fail for good."""

    def stage(name: str) -> Callable[[StageContext], Counted]:
        def run_it(ctx: StageContext) -> Counted:
            if name == broken:
                raise ArithmeticError(f"{name} went wrong")
            if name == "decide":
                missing = [needed for needed in ("audit", "ab_test") if not ctx.run.optional(needed)]
                return Counted(value=len(missing), text="hold" if missing else "launch")
            if name in ("report", "publish"):
                return Counted(value=1, text=ctx.run.result("decide")["text"])
            return Counted(value=1)

        return run_it

    return stages_of({name: stage(name) for name in STAGES})


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["audit", "ab_test"])
def test_evidence_that_cannot_be_had_holds_the_launch_and_leaves_its_report(settings: Settings, broken: str):
    with pytest.raises(ArithmeticError, match=f"{broken} went wrong"):
        run_stages(CONFIG, ID, settings, everything(broken))
    run = run_folder(settings, ID)
    assert run.record("report").result["text"] == "hold"
    assert run.record("publish") is None
    # Once it can be had, what was made without it is made again.
    outcomes = run_stages(CONFIG, ID, settings, everything())
    again = {name for name, outcome in outcomes.items() if not outcome.skipped}
    assert again == {broken, "decide", "report", "publish"}
    assert outcomes["publish"].result["text"] == "launch"


@pytest.mark.slow
def test_a_launch_through_its_report_is_held_for_missing_evidence_and_shows_it(settings: Settings):
    """The library's launch through one stage, once its text was read, so that nothing is checked before."""
    made = everything("ab_test")
    runner.run_stage("ingest_private", CONFIG, ID, settings, made)
    for last, reported in (("ab_test", False), ("report", True), ("publish", True)):
        with pytest.raises(ArithmeticError, match="ab_test went wrong"):
            launch(CONFIG, ID, settings, made, last=last)
        run = run_folder(settings, ID)
        assert (run.record("report") is not None) is reported
        assert (run.public("launch") / STATE).is_file() is reported
    assert "held" in (run.public("launch") / STATE).read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="this launch has no 'ship'; it has ingest_public, ingest_private"):
        launch(CONFIG, ID, settings, made, last="ship")


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["fine_tune", "decide", "report"])
def test_any_other_failure_ends_the_launch_there(settings: Settings, broken: str):
    with pytest.raises(ArithmeticError, match=f"{broken} went wrong"):
        run_stages(CONFIG, ID, settings, everything(broken))
    assert run_folder(settings, ID).record(broken) is None
    assert run_folder(settings, ID).record("publish") is None


def test_a_restart_takes_away_what_a_kill_left(calls: Calls, settings: Settings):
    gone = multiprocessing.get_context("fork").Process(target=os.getpid)
    gone.start()
    gone.join()
    run = run_folder(settings, ID)
    left = [
        run.private("plan") / f"..outcome.json.{gone.pid}.tmp",
        run.public("plan") / f".result.json.{gone.pid}.tmp",
        run.public("plan") / "numbers" / f".plan.txt.{gone.pid}.tmp",
        run.public("launch") / f".launch.json.{gone.pid}.tmp",
        settings.runs_dir / f".mlflow.db.{gone.pid}.tmp",
    ]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    run_all(calls, settings)
    assert not any(path.exists() for path in left)
    assert sorted(path.name for path in run.public("plan").iterdir()) == [".processors", "numbers", "result.json"]
    # Killed between the record and this.
    outcome = run.private("plan") / ".outcome.json"
    outcome.write_text("{}", encoding="utf-8")
    assert runner.find_done("plan", CONFIG, ID, settings)
    assert not outcome.exists()


def test_every_stage_is_written_down_in_the_ledger(calls: Calls, settings: Settings):
    records = {outcome.record.stage: outcome.record for outcome in run_all(calls, settings)}
    bound = PrivacyLedger.of(settings).bound_results(ID)
    assert {name: (receipt_digest(record), record.ledger["result"]) for name, record in records.items()} == bound


def test_a_private_folder_is_sealed(calls: Calls, settings: Settings):
    record = run_all(calls, settings)[2].record
    run = run_folder(settings, ID)
    assert record.private_digest
    assert run.private_problems("fine_tune", record.private_digest) == []
    (run.private("fine_tune") / "state.txt").write_text("other noise", encoding="utf-8")
    (run.private("fine_tune") / "more.txt").touch()
    (run.private("fine_tune") / "key").unlink()
    assert run.private_problems("fine_tune", record.private_digest) == [
        "state.txt was changed",
        "key is lost",
        "more.txt was added",
    ]
    (run.private("fine_tune") / ".manifest.json").write_text("{}", encoding="utf-8")
    assert run.private_problems("fine_tune", record.private_digest) == [".manifest.json is lost or changed"]
    # Two launches that keep the same have other digests: the figure tells nothing of the files.
    assert run_folder(settings, "a").seal_private("plan") is None
    for name in ("a", "b"):
        (run_folder(settings, name).private("plan") / "same").write_text("the same")
    assert len({run_folder(settings, name).seal_private("plan") for name in ("a", "b")}) == 2
