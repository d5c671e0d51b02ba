"""Versions that are served: what a launch published, once, of its own population, and never a void launch's."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from pipeline.experiments.decide import begin
from pipeline.ground.errors import PermanentError, PopulationUnknown, ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.launch.config import load_kept_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.approvals import rollback, standing
from pipeline.publication.registry import Registry, model_name, promote
from pipeline.run.known import run_folder
from pipeline.tracking import mlflow_tracker
from pipeline.tracking.mlflow_tracker import MlflowTracker
from pretrain.files import sha256
from reports.disclosure.total import Total
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.publishable import NAME, POPULATION, launch

pytestmark = [
    pytest.mark.slow,
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


def test_a_report_written_again_publishes_nothing_again(tracked: Settings, tmp_path: Path):
    first = launch(tracked, tmp_path)
    before = sha256(first["bundle"] / "bundle.json")
    for stage in ("report", "publish"):
        (tracked.runs_dir / first["run_id"] / "public" / stage / "result.json").unlink()
    client = mlflow_tracker.connect(tracked)
    experiment = client.get_experiment_by_name("keyboard/en-US").experiment_id
    for stage in ("report", "publish"):
        (logged,) = client.search_runs([experiment], f"tags.`tacit.key` = '{first['run_id']}/{stage}'")
        client.delete_run(logged.info.run_id)
    again = launch(tracked, tmp_path, created_at="2026-11-22T10:00:00+00:00")
    assert (again["version"], sha256(again["bundle"] / "bundle.json")) == (1, before)
    (version,) = client.search_model_versions(f"name = '{NAME}'")
    stated = tuple(version.tags[name] for name in ("privacy.loss", "privacy.unit", "tacit.launch"))
    accounting = json.loads((again["bundle"] / "disclosure.json").read_text(encoding="utf-8"))["accounting"]
    loss = Total.model_validate(accounting["total"])
    assert stated == (loss.sentence, "device", first["run_id"])
    registry = Registry(tracked)
    assert (registry.alias(NAME, "champion"), registry.alias(NAME, "previous")) == (1, None)


def test_a_kill_before_the_registration_leaves_one_logged_model(tracked: Settings, tmp_path: Path):
    client = mlflow_tracker.connect(tracked)

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(client), "create_model_version", killed)
        with pytest.raises(Killed):
            launch(tracked, tmp_path)
    experiment = client.get_experiment_by_name("keyboard/en-US").experiment_id
    (left,) = client.search_logged_models([experiment])
    done = launch(tracked, tmp_path)
    assert [model.model_id for model in client.search_logged_models([experiment])] == [left.model_id]
    assert done["version"] == 1


def test_a_version_that_no_launch_registered_is_not_served(tracked: Settings, tmp_path: Path):
    done = launch(tracked, tmp_path)
    client, registry = mlflow_tracker.connect(tracked), Registry(tracked)
    honest = client.get_model_version(NAME, "1")
    forged = {**honest.tags, "privacy.loss": "epsilon 0.01"}
    client.create_model_version(NAME, honest.source, honest.run_id, tags=forged)
    client.set_registered_model_alias(NAME, "champion", "2")
    with pytest.raises(ReleaseRefused, match="the last publication or rollback set another one"):
        registry.download(NAME, "champion", tmp_path / "got")
    with pytest.raises(ReleaseRefused, match="the ledger holds no such bundle"):
        registry.fetch(registry.published(NAME, 2), tmp_path / "got")
    client.set_registered_model_alias(NAME, "champion", "1")
    assert registry.download(NAME, "champion", tmp_path / "got").is_dir()
    client.set_model_version_tag(NAME, "1", "bundle.sha256", "0" * 64)
    with pytest.raises(ReleaseRefused, match="the ledger"):
        registry.require_known(registry.published(NAME, 1))
    client.set_model_version_tag(NAME, "1", "tacit.launch", "somebody-else")
    with pytest.raises(ReleaseRefused, match="the ledger"):
        registry.require_known(registry.published(NAME, 1))
    assert done["registered_files"]["MLmodel"]


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE model_versions SET source = '{}', storage_location = '{}'",
        "UPDATE model_versions SET storage_location = '{}'",
        "UPDATE runs SET artifact_uri = '{}'",
    ],
)
def test_no_address_in_mlflow_s_rows_leads_out_of_its_own_store(tracked: Settings, tmp_path: Path, edit: str):
    """Anyone who may write to MLflow could have any file copied that the account of tacit may read."""
    run_id, store = launch(tracked, tmp_path)["run_id"], tracked.runs_dir / "mlflow-artifacts"
    outside = tmp_path / "outside"
    shutil.copytree(store, outside)
    (store / "link").symlink_to(outside)
    got, own = tmp_path / "got", tracked.artifact_root
    config = load_kept_launch(tracked.runs_dir / run_id / "public" / "launch" / "launch.json")

    def opened() -> None:
        if "runs" in edit:
            MlflowTracker(tracked, config, run_id).fetch("report", "disclosure.json", got / "disclosure.json")
        else:
            Registry(tracked).download(NAME, "champion", got)

    for address in (
        outside.as_uri(),
        f"file:{outside}",
        str(outside),
        f"{own}/../../../outside",
        f"{own}/%2e%2e/%2e%2e/outside",
        f"{own}/link",
        f"{own}-beside",
        "http://127.0.0.1:9/outside",
        "s3://bucket/outside",
    ):
        with sqlite3.connect(tracked.runs_dir / "mlflow.db") as database:
            database.execute(edit.replace("{}", address))
        got.mkdir()
        with pytest.raises(PermanentError, match="TACIT_ARTIFACT_ROOT"):
            opened()
        assert not list(got.iterdir()), address
        got.rmdir()


PEOPLE = {"source": "files", "paths": ["people.parquet"], "name": "people"}
SEEDED = {"randomness": "seeded"}


def test_a_void_launch_is_registered_and_never_champion(tracked: Settings, tmp_path: Path):
    registry = Registry(tracked)
    alone = launch(tracked, tmp_path, mechanism=SEEDED)
    assert (alone["published"], alone["alias"], registry.alias(NAME, "champion")) == (True, "candidate", None)
    assert alone["reason"] == "every gate passed, but noise was seeded: never champion"
    assert registry.tags(NAME, 1)["privacy.void"] == "noise was seeded"
    secret = launch(tracked, tmp_path)
    again = launch(tracked, tmp_path, mechanism=SEEDED, seed=8)
    assert (secret["alias"], again["version"]) == ("champion", 3)
    assert [registry.alias(NAME, name) for name in ("candidate", "champion", "previous")] == [3, 2, None]
    config, run = launch_config(mechanism=SEEDED, seed=8), run_folder(tracked, again["run_id"])
    assert "never champion, as noise was seeded" in standing(config, run, PrivacyLedger.of(tracked)).detail


def test_some_users_do_not_get_a_void_launch_either(tracked: Settings, tmp_path: Path):
    experiment = {"share": 0.5, "days": 3, "min_gain": 0.0}
    done = launch(tracked, tmp_path, mechanism=SEEDED, experiment=experiment)
    registry, run = Registry(tracked), run_folder(tracked, done["run_id"])
    with pytest.raises(ReleaseRefused, match=r"has none, it is published: .*never champion, as noise was seeded"):
        begin(launch_config(mechanism=SEEDED, experiment=experiment), run, tracked)
    assert (done["alias"], registry.alias(NAME, "experiment"), registry.alias(NAME, "champion")) == (
        "candidate",
        None,
        None,
    )


def test_nobody_goes_back_to_what_never_was_champion(tracked: Settings, tmp_path: Path):
    registry = Registry(tracked)
    for seed, randomness in enumerate(("secure", "seeded", "secure", "secure")):
        launch(tracked, tmp_path, seed=seed, mechanism={"randomness": randomness})
    mlflow_tracker.connect(tracked).set_registered_model_alias(NAME, "previous", "2")
    with pytest.raises(ReleaseRefused, match="version 2 was never champion"):
        rollback("en-US", "NWP", tracked, "worse", "me", POPULATION)
    assert registry.alias(NAME, "champion") == 4
    registry.set_alias(NAME, "previous", 3)
    rollback("en-US", "NWP", tracked, "worse", "me", POPULATION)
    assert [registry.alias(NAME, name) for name in ("champion", "previous")] == [3, 1]


def test_a_simulation_and_people_of_one_name_have_models_of_their_own(tracked: Settings, tmp_path: Path):
    """The demo is served as the demo: what is asked for without a population is people's."""
    registry, of_people = Registry(tracked), model_name("en-US", "NWP")
    demo = launch(tracked, tmp_path)
    assert (demo["registered_model"], demo["alias"]) == (NAME, "champion")
    assert registry.download(registry.name_for("en-US", "NWP", POPULATION), "champion", tmp_path / "demo").is_dir()
    with pytest.raises(ReleaseRefused, match=f"{of_people}: no version is 'champion'"):
        registry.download(registry.name_for("en-US", "NWP", None), "champion", tmp_path / "got")
    registered(PrivacyLedger.of(tracked), "people")
    typed = launch(tracked, tmp_path, private_text=PEOPLE)
    assert (typed["registered_model"], registry.name_for("en-US", "NWP", None)) == (of_people, of_people)
    assert (registry.owner(NAME), registry.owner(of_people)) == (POPULATION, "people")
    assert registry.champion_before(of_people, "another").launch_id == typed["run_id"]
    assert registry.champion_before(NAME, "another").launch_id == demo["run_id"]
    people, simulation = launch_config(private_text=PEOPLE), launch_config()
    for config, name in ((people, NAME), (simulation, of_people)):
        with pytest.raises(ReleaseRefused, match="a registered model of population"):
            promote(config, registry, name, 1)
    undone = [entry.population for entry in PrivacyLedger.of(tracked).entries() if entry.kind == "model"]
    assert undone == [POPULATION, "people"]


def test_people_whom_nobody_registered_have_no_champion(tracked: Settings, tmp_path: Path):
    with pytest.raises(PopulationUnknown, match="tacit ledger register people"):
        launch(tracked, tmp_path, private_text=PEOPLE)
    assert Registry(tracked).alias(model_name("en-US", "NWP"), "champion") is None
