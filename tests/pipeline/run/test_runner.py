"""A stage is run once, whatever happens in between."""

import math
import multiprocessing
import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ground.errors import BudgetExceeded, LedgerConflict, PermanentError, StageInputMissing
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import finished, runner
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RESULT, RunDir, StageRecord
from pipeline.run.runner import StageOutcome
from pipeline.run.stage import StageContext
from pipeline.stages.graph import STAGES
from pipeline.stages.launch import run_stages
from tests.helpers.launches.pipeline_launch import Calls, Counted, launch_config, stand_in
from tests.helpers.launches.stages import running, stages_of

CONFIG = launch_config()
ID = launch_id(CONFIG)
NAMES = ("ingest_private", "plan", "fine_tune")


@pytest.fixture
def calls() -> Calls:
    return Calls()


def run_all(
    calls: Calls, settings: Settings, config: LaunchConfig = CONFIG, run_id: str | None = None
) -> list[StageOutcome]:
    """All three stages in order."""
    return [runner.run_stage(name, config, run_id or launch_id(config), settings, calls.stages) for name in NAMES]


def test_second_run_redoes_nothing_and_spends_nothing(calls: Calls, settings: Settings):
    first = run_all(calls, settings)
    assert not any(outcome.skipped for outcome in first)
    entries = PrivacyLedger.of(settings).spends()
    second = run_all(calls, settings)
    assert all(outcome.skipped for outcome in second)
    assert [outcome.record for outcome in second] == [outcome.record for outcome in first]
    assert calls.made == list(NAMES)
    assert PrivacyLedger.of(settings).spends() == entries


def test_a_stage_names_every_processor_that_its_attempts_ran_on(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """Training resumes a checkpoint of another one, and its bits are then those of neither."""
    processors = ["A, torch 1", "A, torch 1", "B, torch 1"]
    monkeypatch.setattr(runner, "processor", lambda: processors.pop(0))

    def plan(ctx: StageContext) -> Counted:
        if processors:
            raise ArithmeticError("cut off")
        return Counted(value=1)

    stages = stages_of({"plan": plan})
    for _ in range(2):
        with pytest.raises(ArithmeticError):
            runner.run_stage("plan", CONFIG, ID, settings, stages)
    record = runner.run_stage("plan", CONFIG, ID, settings, stages).record
    assert record.processor == "A, torch 1; B, torch 1"


def test_reserves_the_plan_and_commits_what_was_spent(calls: Calls, settings: Settings):
    record = run_all(calls, settings)[2].record
    ledger = PrivacyLedger.of(settings)
    reserved, committed = ledger.spends()
    assert (reserved.kind, reserved.rho, committed.kind, committed.rho) == ("reserve", 0.4, "commit", 0.25)
    assert (reserved.population, reserved.launch_id, reserved.stage) == ("chitchat:people", ID, "fine_tune")
    assert {kind: record.ledger[kind] for kind in ("reserve", "commit")} == {
        "reserve": reserved.hash,
        "commit": committed.hash,
    }
    assert ledger.verify(record.ledger.values()) == []


def test_only_spending_stages_get_a_key(calls: Calls, settings: Settings):
    run_all(calls, settings)
    key = run_folder(settings, ID).secret("fine_tune")
    assert calls.keys == [key]
    text = "".join(entry.model_dump_json() for entry in PrivacyLedger.of(settings).spends())
    assert key.hex() not in text


def test_seeded_keys_are_the_same_everywhere(settings: Settings):
    config = launch_config(mechanism={"randomness": "seeded"})
    keys = []
    for _ in range(2):
        calls = Calls()
        run_all(calls, settings, config)
        keys += calls.keys
        shutil.rmtree(settings.runs_dir / launch_id(config))
    assert keys[0] == keys[1]


def test_a_changed_output_is_made_again(calls: Calls, settings: Settings):
    run_all(calls, settings)
    (settings.runs_dir / ID / "public" / "plan" / "numbers" / "plan.txt").write_text("changed")
    outcomes = run_all(calls, settings)
    assert [outcome.skipped for outcome in outcomes] == [True, False, True]
    assert calls.made == [*NAMES, "plan"]


@pytest.mark.slow
@pytest.mark.parametrize("opened", ["needs", "may_need", "evidence"])
def test_a_changed_input_makes_a_stage_stale(calls: Calls, settings: Settings, opened: str):
    stages = calls.stages
    stages["fine_tune"] = replace(stages["fine_tune"], **{"needs": (), opened: ("ingest_private", "plan")})
    for name in NAMES:
        runner.run_stage(name, CONFIG, ID, settings, stages)

    def other_plan(ctx):
        calls.plan(ctx)
        return Counted(value=99)

    changed = running(stages, plan=other_plan)
    (settings.runs_dir / ID / "public" / "plan" / RESULT).unlink()
    runner.run_stage("plan", CONFIG, ID, settings, changed)
    # What was released was released from another plan: doing it again would be a second release.
    with pytest.raises(LedgerConflict, match="the inputs changed"):
        runner.run_stage("fine_tune", CONFIG, ID, settings, stages)
    assert calls.made == [*NAMES, "plan"]


def test_a_lost_private_folder_is_made_again_unless_it_was_released(calls: Calls, settings: Settings):
    run_all(calls, settings)
    shutil.rmtree(settings.runs_dir / ID / "private")
    assert [outcome.skipped for outcome in run_all(calls, settings)] == [False, True, True]


def test_a_second_release_under_a_new_key_is_refused(calls: Calls, settings: Settings):
    run_all(calls, settings)
    shutil.rmtree(settings.runs_dir / ID)
    with pytest.raises(LedgerConflict, match=r"the key changed since .* second, unaccounted release"):
        run_all(calls, settings)
    assert calls.made.count("fine_tune") == 1


def test_no_budget_no_run(calls: Calls, settings: Settings):
    config = launch_config(policy={"max_rho": 0.2, "population_max_rho": 0.3})
    with pytest.raises(BudgetExceeded):
        run_all(calls, settings, config)
    assert "fine_tune" not in calls.made
    assert PrivacyLedger.of(settings).spends() == []


def test_a_changed_privacy_parameter_is_a_new_launch_and_a_new_spend(calls: Calls, settings: Settings):
    run_all(calls, settings)
    changed = launch_config(mechanism={"noise_multiplier": 12.0})
    run_all(calls, settings, changed)
    assert launch_id(changed) != ID
    assert PrivacyLedger.of(settings).total("chitchat:people") == 0.5
    with pytest.raises(ValueError, match="run it under its own id"):
        runner.run_stage("plan", changed, ID, settings, calls.stages)


def test_a_dated_run_is_a_launch_of_its_own(calls: Calls, settings: Settings):
    run_all(calls, settings)
    run_all(calls, settings, run_id=launch_id(CONFIG, "20261121"))
    assert {entry.launch_id for entry in PrivacyLedger.of(settings).spends()} == {ID, f"{ID}-20261121"}


def test_speed_settings_do_not_make_a_stage_stale(calls: Calls, settings: Settings):
    run_all(calls, settings)
    assert all(outcome.skipped for outcome in run_all(calls, settings, launch_config(runtime={"workers": 2})))


@pytest.mark.parametrize("name", ["plain", ""])
def test_unknown_stage(calls: Calls, settings: Settings, name: str):
    with pytest.raises(ValueError, match="choose one of ingest_private, plan"):
        runner.run_stage(name, CONFIG, ID, settings, calls.stages)


def test_an_input_that_is_not_there_spends_nothing(calls: Calls, settings: Settings):
    with pytest.raises(StageInputMissing, match="stage 'ingest_private' has not finished"):
        runner.run_stage("fine_tune", CONFIG, ID, settings, calls.stages)
    assert PrivacyLedger.of(settings).spends() == []


@pytest.mark.slow
def test_a_failed_stage_leaves_its_reservation_and_no_result(calls: Calls, settings: Settings):
    run_all(Calls(), settings, run_id=ID + "-20260101")
    stages = calls.stages

    def fails(ctx):
        raise ArithmeticError("diverged")

    failing = running(stages, fine_tune=fails)
    for name in NAMES[:2]:
        runner.run_stage(name, CONFIG, ID, settings, failing)
    with pytest.raises(ArithmeticError):
        runner.run_stage("fine_tune", CONFIG, ID, settings, failing)
    assert PrivacyLedger.of(settings).total("chitchat:people") == pytest.approx(0.25 + 0.4)
    assert not (settings.runs_dir / ID / "public" / "fine_tune" / RESULT).exists()
    assert not runner.run_stage("fine_tune", CONFIG, ID, settings, stages).skipped


def test_a_spending_stage_must_state_its_spend(calls: Calls, settings: Settings):
    silent = running(calls.stages, fine_tune=lambda ctx: Counted(value=1))
    for name in NAMES[:2]:
        runner.run_stage(name, CONFIG, ID, settings, silent)
    with pytest.raises(PermanentError, match="states none"):
        runner.run_stage("fine_tune", CONFIG, ID, settings, silent)


@stand_in
class Nested(Counted):
    rows: list[dict]


@pytest.mark.parametrize(
    "make",
    [lambda: Counted(value=1, headline={"rho": math.nan}), lambda: Nested(value=1, rows=[{"exposure": math.inf}])],
)
def test_numbers_that_are_not_finite_are_refused(settings: Settings, make: Callable[[], Counted]):
    def broken(ctx):
        return make()

    with pytest.raises((ValueError, ArithmeticError), match="finite"):
        runner.run_stage("plan", CONFIG, ID, settings, stages_of({"plan": broken}))


class DyingTracker:
    """Ends the process, as a power cut would, when it is asked to log."""

    def log_stage(self, run: RunDir, record: StageRecord, fields: Collection[str]) -> None:
        os._exit(9)

    def fetch(self, stage: str, filename: str, destination: Path) -> bool:
        return False

    def checkpoints(self) -> dict[str, str]:
        return {}

    def keep_checkpoint(self, note: str) -> None:
        pass


def _die(settings: Settings, where: str) -> None:
    """Run up to a point and end without any clean-up."""
    calls = Calls()
    for name in NAMES[:2]:
        runner.run_stage(name, CONFIG, ID, settings, calls.stages)
    stages = calls.stages
    if where == "while running":

        def dies(ctx):
            calls.fine_tune(ctx)
            os._exit(9)

        stages = running(stages, fine_tune=dies)
    elif where == "before the digest":
        finished.write_down = lambda *_: os._exit(9)
    elif where == "before the commit":
        PrivacyLedger.commit = lambda *_: os._exit(9)
    elif where == "before the result":
        real = runner.write_text

        def write_text(path: Path, *arguments, **more) -> None:
            if path.name == RESULT:
                os._exit(9)
            real(path, *arguments, **more)

        runner.write_text = write_text
    tracker = DyingTracker() if where == "while tracking" else None
    runner.run_stage("fine_tune", CONFIG, ID, settings, stages, tracker)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "computed_again"),
    [
        ("while running", True),
        # What nobody wrote down could be anybody's: it is computed again, under the same key.
        ("before the digest", True),
        ("before the commit", False),
        ("while tracking", False),
        ("before the result", False),
    ],
)
def test_a_crash_at_any_step_is_repaired_by_running_again(
    calls: Calls, settings: Settings, where: str, computed_again: bool
):
    victim = multiprocessing.get_context("fork").Process(target=_die, args=(settings, where))
    victim.start()
    victim.join(300)
    assert victim.exitcode == 9
    assert not (settings.runs_dir / ID / "public" / "fine_tune" / RESULT).exists()
    key = run_folder(settings, ID).secret("fine_tune")

    outcome = runner.run_stage("fine_tune", CONFIG, ID, settings, calls.stages)
    assert not outcome.skipped
    assert calls.made == (["fine_tune"] if computed_again else [])
    assert calls.keys == ([key] if computed_again else [])
    ledger = PrivacyLedger.of(settings)
    assert [entry.kind for entry in ledger.spends()] == ["reserve", "commit"]
    assert ledger.verify(outcome.record.ledger.values()) == []
    assert runner.run_stage("fine_tune", CONFIG, ID, settings, calls.stages).skipped


def test_a_finished_stage_keeps_no_half_of_its_record(calls: Calls, settings: Settings):
    """As after a crash that left the whole record in MLflow."""
    run_all(calls, settings)
    gone = multiprocessing.get_context("fork").Process(target=int)
    gone.start()
    gone.join()
    half = settings.runs_dir / ID / "public" / "plan" / f".{RESULT}.{gone.pid}.tmp"
    half.write_text("{", encoding="utf-8")
    assert runner.find_done("plan", CONFIG, ID, settings) is not None
    assert not half.exists()


@pytest.mark.slow
def test_launch_runs_every_stage_in_order_and_leaves_publication_to_reviewers(settings: Settings):
    seen: list[str] = []
    stages = stages_of({name: lambda ctx: Counted(value=1) for name in STAGES})
    uncounted = [name for name in STAGES if name != "count"]
    for config, expected in (
        (CONFIG, uncounted),
        (launch_config(name="reviewed", reviewers=["someone"]), uncounted[:-1]),
        (launch_config(counts={"noise_multiplier": 2.0, "model": "network"}), list(STAGES)),
    ):
        seen.clear()
        outcomes = run_stages(
            config,
            launch_id(config),
            settings,
            stages,
            on_stage=lambda outcome: seen.append(outcome.record.stage),
        )
        assert seen == list(outcomes) == expected


@pytest.mark.slow
def test_a_finished_launch_never_loads_its_stages(settings: Settings):
    stages = stages_of({name: lambda ctx: Counted(value=1) for name in STAGES})
    run_stages(CONFIG, ID, settings, stages)
    elsewhere = {name: replace(stage, run="no_such_module:stage") for name, stage in stages.items()}
    assert all(outcome.skipped for outcome in run_stages(CONFIG, ID, settings, elsewhere).values())
    (settings.runs_dir / ID / "public" / "publish" / RESULT).unlink()
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        run_stages(CONFIG, ID, settings, elsewhere)
