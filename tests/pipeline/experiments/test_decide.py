"""From publication to everybody or nobody: one small published launch, its experiment, logs, and how it ends."""

import re
import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.config.population import FilePopulation
from pipeline.experiments import decide as live
from pipeline.experiments import entries, logs
from pipeline.experiments.decide import TooEarly
from pipeline.ground import settings as settings_module
from pipeline.ground.errors import ReleaseRefused
from pipeline.publication.registry import Registry
from pipeline.run.stage import StageContext
from pipeline.stages.publish import publish
from pipeline.tracking.mlflow_tracker import checkpoints_of_locale, connect
from pipeline.verify.launch import verify
from pretrain.files import sha256
from tests.helpers.launches.command import answered, invoked
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.publishable import NAME
from tests.helpers.launches.published import publish as published_before
from tests.helpers.launches.tracking_database import moved
from tests.helpers.launches.trial import BLOCK, Trial, second_launch

pytestmark = [
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


@pytest.fixture(scope="module")
def made(tracking_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return second_launch(tracking_database, tmp_path_factory.mktemp("candidate"), experiment=BLOCK)


@pytest.fixture(scope="module")
def begun(made: Trial, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    copied = copy_of(made, tmp_path_factory.mktemp("experiment"))
    assert (copied.now.state, copied.alias("experiment"), copied.alias("champion")) == ("candidate", None, 1)
    assert "'tacit experiment begin' tries it on some" in copied.now.detail
    live.begin(copied.config, copied.run, copied.settings)
    return copied


@pytest.fixture
def candidate(made: Trial, tmp_path: Path) -> Trial:
    """A copy of a published launch, to begin."""
    return copy_of(made, tmp_path)


@pytest.fixture
def trial(begun: Trial, tmp_path: Path) -> Trial:
    """A copy of one that began, to end."""
    return copy_of(begun, tmp_path)


def copy_of(one: Trial, home: Path) -> Trial:
    shutil.copytree(one.settings.home / "runs", home / "runs")
    moved(one.settings.home, home)
    return Trial(settings_module.load({"TACIT_HOME": str(home)}), one.run_id)


def refused_to_begin(candidate: Trial, why: str) -> None:
    """Refused before anything changed."""
    before = {name: candidate.alias(name) for name in ("champion", "previous", "candidate", "experiment")}
    count = len(candidate.ledger.entries())
    with pytest.raises(ReleaseRefused, match=why):
        live.begin(candidate.config, candidate.run, candidate.settings)
    assert len(candidate.ledger.entries()) == count
    assert {name: candidate.alias(name) for name in before} == before


@pytest.mark.slow
def test_an_approved_model_is_some_devices_and_not_the_champion(begun: Trial):
    assert {name: begun.alias(name) for name in ("champion", "experiment", "candidate", "previous")} == {
        "champion": 1,
        "experiment": 2,
        "candidate": 2,
        "previous": None,
    }
    assert begun.now.state == "candidate"
    assert f"25.00% of devices have version 2 of {NAME}" in begun.tried.said
    assert begun.run.record("publish").result["alias"] == "candidate"
    count = len(begun.ledger.entries())
    kept = checkpoints_of_locale(begun.settings, begun.config.locale)[f"run {begun.run_id} in MLflow"]
    tree = [text.splitlines()[:3] for text in (kept, begun.ledger.witnessed())]
    assert tree[0] == tree[1], "MLflow covers its beginning"
    assert live.begin(begun.config, begun.run, begun.settings).ended is None
    entries.begin(begun.config, begun.run_id, {NAME: 1}, Registry(begun.settings), begun.ledger)
    assert begun.alias("experiment") == 2, "with the versions with which it began"
    assert len(begun.ledger.entries()) == count, "it begins once"


@pytest.mark.slow
def test_a_model_is_tried_only_against_the_one_that_it_was_compared_with(candidate: Trial):
    published_before(candidate.settings, candidate.settings.home, "between-00000001")
    assert candidate.alias("champion") == 3
    refused_to_begin(candidate, "was compared with version 1 .* have version 3 by now .* never compared")


@pytest.mark.slow
def test_no_device_gets_a_version_that_the_ledger_does_not_know(candidate: Trial):
    connect(candidate.settings).set_model_version_tag(NAME, "2", "bundle.sha256", "0" * 64)
    refused_to_begin(candidate, "version 2: the ledger holds no such bundle")


@pytest.mark.slow
def test_a_better_model_becomes_everybody_s_once(trial: Trial):
    files = trial.logged(picks=1.2)
    done = trial.decide(files)
    assert (done.decision, done.by) == ("promote", "ana")
    assert done.look is not None
    change = next(row for row in done.look.differences if row.metric == "prate").relative
    assert change["value"] == pytest.approx(0.2, abs=0.01)
    assert (trial.alias("champion"), trial.alias("previous"), trial.alias("experiment")) == (2, 1, None)
    assert trial.now.state == "published"
    entry = trial.tried.ended
    assert entry.logs == logs.read(files, trial.tried.first, 2).digests
    # Again, by somebody else, with other logs: what was decided stands.
    count = len(trial.ledger.entries())
    (trial.run.path / "public" / "launch" / "outcome.json").unlink()
    assert trial.decide(trial.logged(picks=0.5), by="bo") == done, "its evidence comes from MLflow"
    assert len(trial.ledger.entries()) == count
    assert trial.alias("champion") == 2


@pytest.mark.slow
def test_a_worse_model_is_taken_back_from_those_who_had_it(trial: Trial):
    done = trial.decide(trial.logged(picks=0.9))
    assert done.decision == "roll back"
    assert "change in predictions accepted (PRate)" in done.reasons[0]
    assert (trial.alias("champion"), trial.alias("experiment"), trial.alias("previous")) == (1, None, None)
    assert trial.now.state == "rolled back"
    assert re.match(r"by ana at \S+: experiment: change in predictions", trial.now.detail)
    assert live.begin(trial.config, trial.run, trial.settings).ended == "roll back"
    assert trial.alias("experiment") is None, "nor does another beginning"
    # Publishing it again does not bring it back.
    ctx = StageContext(trial.config, trial.run, trial.settings, "publish", None)
    with pytest.raises(ReleaseRefused, match="is rolled back"):
        publish(ctx)


@pytest.mark.slow
@pytest.mark.parametrize("better", [True, False])
@pytest.mark.parametrize("until", ["entry", "first alias"])
def test_whoever_comes_after_a_crash_does_what_the_ledger_says(
    trial: Trial, better: bool, until: str, monkeypatch: pytest.MonkeyPatch
):
    files = trial.logged(picks=1.2 if better else 0.8)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(*((entries, "carry_out") if until == "entry" else (Registry, "delete_alias")), killed)
        with pytest.raises(KeyboardInterrupt):
            trial.decide(files)
    assert trial.alias("experiment") == 2, "nothing was finished"
    done = trial.decide([], by="airflow")
    assert (done.decision, done.by) == ("promote" if better else "roll back", "ana")
    assert trial.alias("champion") == (2 if better else 1)
    assert trial.alias("experiment") is None


@pytest.mark.slow
def test_how_it_ended_is_verified(trial: Trial):
    def checked() -> dict[str, bool | None]:
        about = trial.config, trial.run, trial.settings, ("files",)
        return {check.id: check.passed for check in verify(*about) if check.id in ("outcome", "files")}

    assert checked() == {"files": True}
    path = trial.run.path / "public" / "launch" / "outcome.json"
    path.write_text("{}", encoding="utf-8")
    assert checked()["outcome"] is False, "nobody decided"
    path.unlink()
    trial.decide(trial.logged(picks=0.9))
    assert checked() == {"outcome": True, "files": True}
    path.write_text(path.read_text(encoding="utf-8").replace('"ana"', '"bo"'), encoding="utf-8")
    trial.ledger.bind_result(trial.run_id, path.name, sha256(path))
    assert checked()["outcome"] is False, "only the entry of its end says which file holds the evidence"
    path.unlink()
    assert checked()["outcome"] is False, "it is lost"


@pytest.mark.slow
def test_nothing_is_decided_before_its_days_are_over(trial: Trial):
    files = trial.logged()
    with pytest.raises(TooEarly, match=r"runs until the end of .* decided once"):
        trial.decide(files, today=trial.tried.last)
    look, _ = live.look(trial.config, trial.run, trial.settings, files, today=trial.tried.last)
    assert not look.over
    assert trial.now.state == "candidate"
    assert trial.tried.ended is None


@pytest.mark.slow
def test_a_person_stops_it_and_users_keep_what_they_have(trial: Trial):
    with pytest.raises(ReleaseRefused, match="say why"):
        live.stop(trial.config, trial.run, trial.settings, "ana", " ")
    done = live.stop(trial.config, trial.run, trial.settings, "ana", "crashes")
    assert (done.decision, done.reasons, done.look) == ("roll back", ("stopped: crashes",), None)
    assert (trial.alias("champion"), trial.alias("experiment")) == (1, None)
    assert trial.decide(trial.logged(picks=2.0)).decision == "roll back", "good logs come too late"


@pytest.mark.slow
def test_a_champion_that_is_another_by_now_was_no_control(trial: Trial):
    registry = Registry(trial.settings)
    registry.set_alias(NAME, "champion", 2)
    done = trial.decide(trial.logged(picks=1.2))
    assert done.decision == "roll back"
    assert f"{NAME}: the control had version 1, and users have 2 by now" in done.reasons[0]


@pytest.mark.slow
def test_people_are_not_judged_by_a_simulator(trial: Trial):
    (file,) = trial.logged(picks=1.2)
    typed = FilePopulation(source="files", name="people", paths=("p",), max_words_per_device=9)
    people = trial.config.model_copy(update={"private_text": typed})
    # The window of people comes after it began, that of a simulation before.
    began = entries.of(people, trial.run_id, trial.ledger.entries())
    made = pq.read_table(file)
    days = [began.first + timedelta(days=number % 2) for number in range(len(made))]
    logs.write(made.set_column(2, "day", pa.array(days)), Path(file), simulated=True)
    with pytest.raises(ValueError, match=r"a simulator made them, but private_text\.source is 'files'"):
        live.look(people, trial.run, trial.settings, [file])


@pytest.mark.slow
def test_two_experiments_at_once_would_share_their_control(begun: Trial):
    registry, ledger = Registry(begun.settings), begun.ledger
    with pytest.raises(ReleaseRefused, match=rf"is in that of {begun.run_id}, version 2; let it end"):
        entries.begin(begun.config, "other-00000001", {NAME: 1}, registry, ledger)


@pytest.mark.slow
def test_the_commands_say_what_and_why_and_how_it_ended(trial: Trial):
    home = trial.settings.home
    files = trial.logged(picks=0.9)
    said = answered(home, "experiment", "status", trial.run_id)
    assert (said["over"], said["arrived"], said["ended"]) == (True, False, None)
    following = answered(home, "status", trial.run_id)["next"]
    assert following[0] == f"try it on some devices: tacit experiment begin {trial.run_id}"
    assert f"tacit experiment status {trial.run_id}" in following[1]
    assert answered(home, "experiment", "decide", trial.run_id, code=75)["exit_code"] == 75
    (Path(files[0]).parent / "_SUCCESS").touch()
    look = answered(home, "experiment", "look", trial.run_id)
    assert {gate["id"]: gate["passed"] for gate in look["gates"]} == {
        "live_days": True,
        "live_buckets": True,
        "live_split": True,
        "live_control": True,
        "live_gain": False,
        "live_guardrails": True,
    }
    done = answered(home, "experiment", "decide", trial.run_id, code=3)
    assert (done["decision"], done["by"]) == ("roll back", settings_module.account())
    assert done["failed_gates"][0]["field"] == "experiment.min_gain"
    state = answered(home, "review", trial.run_id)
    assert state["state"] == "rolled back"
    badge = (trial.run.path / "public" / "launch" / "state.svg").read_text(encoding="utf-8")
    assert "rolled back" in badge
    text = invoked(["experiment", "decide", trial.run_id], {"TACIT_HOME": str(home), "MLFLOW_TRACKING_URI": None})
    assert text.exit_code == 3
    assert "next:    users keep their present model" in text.stdout


@pytest.mark.slow
def test_simulated_typists_make_logs_that_are_read_and_decide(trial: Trial):
    home = trial.settings.home
    folders = sorted(trial.run.path.glob("*/*"))
    made = answered(home, "experiment", "simulate", trial.run_id)["files"]
    assert sorted(trial.run.path.glob("*/*")) == folders, "verification takes another folder for an added one"
    assert len(made) == 2
    look = answered(home, "experiment", "look", trial.run_id, "--logs", *made[:1], "--logs", made[1])
    assert look["simulated"]
    assert look["buckets"] == 160
    assert {row["metric"] for row in look["differences"]} >= {"prate", "words_modified", "words_per_minute"}
    assert {gate["id"]: gate["passed"] for gate in look["gates"]}["live_split"]


def test_no_launch_promises_to_cover_everything_and_then_reads_logs():
    with pytest.raises(ValueError, match=r"experiment: given, but policy\.cover_everything is true"):
        launch_config(experiment=BLOCK, policy={"cover_everything": True}, evaluation={"noise_multiplier": 2.0})
