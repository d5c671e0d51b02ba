"""MLflow on a real database: one run per stage whatever is retried, and nothing private in it."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import pytest

from pipeline.ground.errors import PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.run import runner
from pipeline.run.known import run_folder
from pipeline.run.stage import Stage
from pipeline.tracking import mlflow_tracker
from pipeline.tracking.mlflow_tracker import MlflowTracker
from pretrain.files import write_text
from tests.helpers.launches.pipeline_launch import Calls, Counted, launch_config
from tests.helpers.launches.stages import stages_of

# MLflow's own code uses what SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

CONFIG = launch_config()
ID = launch_id(CONFIG)
PUBLIC = Stage("plan", "", reads=lambda config: ("mechanism.rounds",), code=("pretrain",))
NAMES = ("ingest_private", "plan", "fine_tune")

Run = Callable[[], list[bool]]


@pytest.fixture
def run(tracked: Settings) -> Run:
    """Run three stages, tracked, and say which were skipped."""

    def once() -> list[bool]:
        calls, tracker = Calls(), MlflowTracker(tracked, CONFIG, ID)
        return [runner.run_stage(name, CONFIG, ID, tracked, calls.stages, tracker).skipped for name in NAMES]

    return once


def runs(settings: Settings) -> dict[str, list]:
    """Live MLflow runs by their key."""
    client = mlflow_tracker.connect(settings)
    found: dict[str, list] = {}
    for experiment in client.search_experiments(filter_string="name LIKE 'keyboard/%'"):
        assert experiment.name == "keyboard/en-US"
        for item in client.search_runs([experiment.experiment_id]):
            found.setdefault(item.data.tags["tacit.key"], []).append(item)
    return found


@pytest.mark.slow
def test_parent_and_children(run: Run, tracked: Settings):
    assert run() == [False] * 3
    found = runs(tracked)
    assert sorted(found) == [ID, *sorted(f"{ID}/{name}" for name in NAMES)]
    (parent,), (plan,), (trained,) = (found[key] for key in (ID, f"{ID}/plan", f"{ID}/fine_tune"))
    assert parent.data.params["mechanism.noise_multiplier"] == "6.0"
    assert parent.data.metrics["rho"] == 0.25
    assert parent.data.tags["decision"] == "hold"
    assert trained.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert plan.data.metrics["plan/value"] == 8
    assert plan.data.metrics.keys() == {"stage/seconds", "plan/value", "plan_curve/loss"}, "details are in result.json"
    assert {"policy.max_rho", "discovery.kind", "pretrain.steps", "audit.directions"} <= parent.data.params.keys()
    assert (parent.info.status, parent.inputs.dataset_inputs[0].dataset.name) == ("SCHEDULED", "people")
    assert plan.info.status == "FINISHED"
    client = mlflow_tracker.connect(tracked)
    history = client.get_metric_history(plan.info.run_id, "plan_curve/loss")
    assert [(point.step, point.value) for point in history] == [(1, 2.5), (2, 1.5)]
    assert {item.path for item in client.list_artifacts(plan.info.run_id)} == {"numbers", "result.json"}
    (dataset,) = client.get_run(found[f"{ID}/ingest_private"][0].info.run_id).inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("people", "d" * 36)


@pytest.mark.slow
def test_times_in_mlflow_are_the_record_s_hour_and_two_digits(run: Run, tracked: Settings):
    run()
    client, hour = mlflow_tracker.connect(tracked), 3_600_000
    for key, (item,) in runs(tracked).items():
        seconds = item.data.metrics.get("stage/seconds", 0.0)
        times = {
            point.timestamp - round(1000 * seconds)
            for name in item.data.metrics
            for point in client.get_metric_history(item.info.run_id, name)
        }
        assert item.info.start_time % hour == 0, key
        if key == ID:  # Its values are a millisecond apart.
            continue
        assert item.info.end_time == item.info.start_time + round(1000 * seconds)
        assert times == {item.info.start_time}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begun", "lasted"),
    [
        (("20", "20", "20"), 10 + 900 + 2),  # within an hour, in an order that nobody recorded
        (("20", "21", "21"), 10 + 900 + 2),  # the first may have begun at the end of its hour
        (("20", "20", "23"), 2 * 3600 + 2),  # it waited for two hours at least
    ],
)
def test_a_launch_lasts_from_its_first_stage_to_its_last(
    tracked: Settings, monkeypatch: pytest.MonkeyPatch, begun: tuple[str, ...], lasted: int
):
    tracker = MlflowTracker(tracked, CONFIG, ID)
    for name, hour, seconds in zip(("plan", "fine_tune", "report"), begun, (10.0, 900.0, 2.0), strict=True):
        # MLflow is told when it likes.
        monkeypatch.setattr(mlflow_tracker, "this_hour", lambda: "2026-11-25T09:00:00+00:00")
        stage = stages_of({name: lambda ctx: Counted(value=1, headline={"decision": "hold"})})
        record = runner.run_stage(name, CONFIG, ID, tracked, stage).record
        started = f"2026-11-24T{hour}:00:00+00:00"
        logged = record.model_copy(update={"seconds": seconds, "started_at": started})
        tracker.log_stage(run_folder(tracked, ID), logged, ())
    (parent,) = runs(tracked)[ID]
    began = datetime.fromisoformat("2026-11-24T20:00:00+00:00").timestamp()
    assert (parent.info.start_time, parent.info.end_time) == (1000 * began, 1000 * (began + lasted))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "status"),
    [("waiting", "SCHEDULED"), ("held", "KILLED"), ("published", "FINISHED"), ("rolled back", "KILLED")],
)
def test_only_what_is_published_has_a_tick(tracked: Settings, state: str, status: str):
    tracker = MlflowTracker(tracked, CONFIG, ID)
    tracker.show_state(state, "ana, bo")
    (parent,) = runs(tracked)[ID]
    assert parent.info.status == status
    assert (parent.data.tags["tacit.state"], parent.data.tags["approver"]) == (state, "ana, bo")


@pytest.mark.slow
def test_a_launch_that_a_kill_ended_is_shown_as_failed_by_the_next(tracked: Settings):
    killed, waits = launch_config(name="killed"), launch_config(name="waits")
    for config in (killed, waits):
        _of(tracked, config).show_state("unfinished")
        with run_folder(tracked, launch_id(config)).lock("plan"):
            pass  # As a process that is gone leaves it.
    (tracked.runs_dir / launch_id(waits) / "public" / "plan").mkdir(parents=True)
    (tracked.runs_dir / launch_id(waits) / "public" / "plan" / "result.json").touch()
    MlflowTracker(tracked, CONFIG, ID).show_state("unfinished")
    states = {key: (run.info.status, run.data.tags["tacit.state"]) for key, (run,) in runs(tracked).items()}
    goes_on = ("SCHEDULED", "unfinished")
    assert states == {launch_id(killed): ("FAILED", "failed"), launch_id(waits): goes_on, ID: goes_on}
    runner.run_stage("plan", killed, launch_id(killed), tracked, Calls().stages, tracker := _of(tracked, killed))
    (mended,) = runs(tracked)[launch_id(killed)]
    assert (mended.info.status, mended.data.tags["tacit.state"]) == goes_on, "it was gone on with"
    with pytest.raises(OSError, match="no disk"), tracker.failing():
        raise OSError("no disk")
    (failed,) = runs(tracked)[launch_id(killed)]
    assert (failed.info.status, failed.data.tags["tacit.state"]) == ("FAILED", "failed")


def _of(tracked: Settings, config: LaunchConfig) -> MlflowTracker:
    return MlflowTracker(tracked, config, launch_id(config))


@pytest.mark.slow
def test_a_retry_after_a_crash_leaves_one_run_and_no_double_point(run: Run, tracked: Settings):
    run()
    before = {key: [item.info.run_id for item in items] for key, items in runs(tracked).items()}
    for name in ("plan", "fine_tune"):  # as if the machine had died between logging and writing the result
        (tracked.runs_dir / ID / "public" / name / "result.json").unlink()
    shutil.rmtree(tracked.runs_dir / ID / "public" / "ingest_private")
    assert run() == [True] * 3, "the records came back from MLflow"
    assert {key: [item.info.run_id for item in items] for key, items in runs(tracked).items()} == before

    tracker, folder = MlflowTracker(tracked, CONFIG, ID), run_folder(tracked, ID)
    record = folder.record("plan")
    tracker.log_stage(folder, record, PUBLIC.fields(CONFIG))
    assert [item.info.run_id for item in runs(tracked)[f"{ID}/plan"]] == before[f"{ID}/plan"]
    tracker.log_stage(folder, record.model_copy(update={"seconds": 99.0}), PUBLIC.fields(CONFIG))
    (again,) = runs(tracked)[f"{ID}/plan"]
    assert again.info.run_id not in before[f"{ID}/plan"]
    assert len(mlflow_tracker.connect(tracked).get_metric_history(again.info.run_id, "plan_curve/loss")) == 2


@pytest.mark.slow
def test_lost_public_files_come_back_by_digest(run: Run, tracked: Settings):
    run()
    shutil.rmtree(tracked.runs_dir / ID / "public")
    folder = run_folder(tracked, ID, MlflowTracker(tracked, CONFIG, ID).fetch)
    assert folder.input("fine_tune", "model.txt").read_text() == "rounds 8\n"
    assert folder.input("plan", "numbers/plan.txt").read_text() == "rounds 8\n"
    assert not folder.fetch("plan", "numbers/other.txt", folder.public("plan") / "other.txt")
    assert not folder.fetch("adapt", "result.json", folder.public("adapt") / "result.json")


@pytest.mark.slow
def test_a_public_file_stands_once_and_one_that_replaces_it_leaves_mlflow_s(run: Run, tracked: Settings):
    run()
    own = tracked.runs_dir / ID / "public" / "plan" / "numbers" / "plan.txt"
    (logged,) = (tracked.runs_dir / "mlflow-artifacts").rglob("plan.txt")
    assert logged.samefile(own)
    assert [path.name for path in logged.parent.iterdir()] == ["plan.txt"]
    write_text(own, "another record's")
    assert logged.read_text(encoding="utf-8") == "rounds 8\n"


@pytest.mark.slow
def test_nothing_private_reaches_mlflow(run: Run, tracked: Settings):
    run()
    folder = run_folder(tracked, ID)
    needles = [b"a word nobody may see", b"noise state", folder.secret("fine_tune")]
    needles.append(needles[-1].hex().encode())
    places = [tracked.runs_dir / "mlflow.db", *(tracked.runs_dir / "mlflow-artifacts").rglob("*")]
    content = b"".join(path.read_bytes() for path in places if path.is_file())
    assert b"rounds 8" in content
    assert [needle for needle in needles if needle in content] == []
    private = b"".join(path.read_bytes() for path in folder.path.joinpath("private").rglob("*") if path.is_file())
    assert all(needle in private for needle in needles[:3])


@pytest.mark.slow
def test_a_record_that_points_outside_the_public_folder_is_refused(run: Run, tracked: Settings):
    run()
    folder = run_folder(tracked, ID)
    digest = "0" * 64
    record = folder.record("plan")
    for outputs in ({"../../private/fine_tune/key": digest}, {"numbers/plan.txt": digest}):
        with pytest.raises(PermanentError, match="not the public file"):
            MlflowTracker(tracked, CONFIG, ID).log_stage(folder, record.model_copy(update={"outputs": outputs}), ())


@pytest.mark.slow
def test_the_row_shows_what_was_logged_last_in_the_same_hour(tracked: Settings, monkeypatch: pytest.MonkeyPatch):
    """A launch's rho is training's first, then the sum's; neither a longer stage nor a larger value comes before it."""
    monkeypatch.setattr(mlflow_tracker, "this_hour", lambda: "2026-11-24T20:00:00+00:00")
    monkeypatch.setattr(runner, "this_hour", lambda: "2026-11-24T20:00:00+00:00")
    tracker = MlflowTracker(tracked, CONFIG, ID)
    for name, rho, seconds in (("fine_tune", 0.25, 900.0), ("decide", 0.2, 0.1), ("report", 0.3, 2.0)):
        stage = stages_of({name: lambda ctx, rho=rho: Counted(value=1, headline={"rho": rho})})
        record = runner.run_stage(name, CONFIG, ID, tracked, stage).record
        tracker.log_stage(run_folder(tracked, ID), record.model_copy(update={"seconds": seconds}), ())
        (parent,) = runs(tracked)[ID]
        assert parent.data.metrics["rho"] == rho


@pytest.mark.slow
def test_the_page_of_a_decided_launch_leads_to_its_report(tracked: Settings):
    tracker = MlflowTracker(tracked, CONFIG, ID)
    for name in ("decide", "report"):
        headline = {"decision": "launch", "loss": "epsilon 4.89 at delta 1e-10"} if name == "decide" else {}
        stage = stages_of({name: lambda ctx, headline=headline: Counted(value=1, headline=headline)})
        tracker.log_stage(run_folder(tracked, ID), runner.run_stage(name, CONFIG, ID, tracked, stage).record, ())
    found = runs(tracked)
    note = found[ID][0].data.tags["mlflow.note.content"]
    assert note.startswith("**Launch**; one device loses epsilon 4.89 at delta 1e-10.")
    assert f"/runs/{found[f'{ID}/report'][0].info.run_id}/artifacts/report.html" in note


def test_an_unfinished_log_is_not_taken_for_a_finished_stage(tracked: Settings, monkeypatch: pytest.MonkeyPatch):
    class PowerCut(Exception):
        pass

    def cut(*_: object) -> None:
        raise PowerCut

    calls, tracker = Calls(), MlflowTracker(tracked, CONFIG, ID)
    with monkeypatch.context() as patch:
        patch.setattr(type(mlflow_tracker.connect(tracked)), "log_text", cut)
        with pytest.raises(PowerCut):
            runner.run_stage("plan", CONFIG, ID, tracked, calls.stages, tracker)
    assert not runner.run_stage("plan", CONFIG, ID, tracked, calls.stages, tracker).skipped
    assert calls.made == ["plan"]
    assert len(runs(tracked)[f"{ID}/plan"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_a_second_machine_takes_public_stages_over_by_their_content(tracked: Settings, damaged: bool):
    calls = Calls()
    stages = stages_of({"plan": calls.plan}, PUBLIC)
    runner.run_stage("plan", CONFIG, ID, tracked, stages, MlflowTracker(tracked, CONFIG, ID))
    if damaged:
        (logged,) = (tracked.runs_dir / "mlflow-artifacts").rglob("plan.txt")
        logged.write_text("not what was logged", encoding="utf-8")

    there = replace(tracked, runs_dir=tracked.home / "another machine's runs")
    config = launch_config(name="other")
    run_id, tracker = launch_id(config), MlflowTracker(there, config, launch_id(config))
    record = runner.run_stage("plan", config, run_id, there, stages, tracker).record
    assert calls.made == (["plan", "plan"] if damaged else ["plan"])
    assert record.reused_from == (None if damaged else ID)
    assert (run_folder(there, run_id).input("plan", "numbers/plan.txt")).read_text() == "rounds 8\n"
    (plan,) = runs(tracked)[f"{run_id}/plan"]
    assert plan.data.tags["tacit.content"] == record.content
    assert plan.data.tags.get("tacit.reused_from") == record.reused_from
    assert plan.data.metrics["plan/value"] == 8
    assert plan.data.params == {"mechanism.rounds": "8"}


@pytest.mark.slow
def test_a_damaged_record_in_mlflow_is_passed_over(tracked: Settings):
    stages = stages_of({"plan": Calls().plan}, PUBLIC)
    tracker = MlflowTracker(tracked, CONFIG, ID)
    record = runner.run_stage("plan", CONFIG, ID, tracked, stages, tracker).record
    assert [found for found, _ in tracker.identical("plan", record.content)] == [record]
    assert list(tracker.identical("ingest_public", record.content)) == []
    assert list(tracker.identical("plan", "0" * 64)) == []
    (logged,) = (tracked.runs_dir / "mlflow-artifacts").rglob("result.json")
    logged.write_text(logged.read_text(encoding="utf-8").replace('"value": 8', '"value": 9'), encoding="utf-8")
    assert list(tracker.identical("plan", record.content)) == []
