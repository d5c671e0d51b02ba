"""What may be champion: never a void launch, and in the registered model of its own population alone."""

from pathlib import Path

import pytest

from pipeline.ground.errors import PopulationUnknown, ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication import promotion
from pipeline.publication.approvals import rollback, standing
from pipeline.publication.registry import Registry, model_name
from pipeline.run.known import run_folder
from pipeline.tracking import mlflow_tracker
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.publishable import NAME, POPULATION, launch

PEOPLE = {"source": "files", "paths": ["people.parquet"], "name": "people"}
SEEDED = {"randomness": "seeded"}

pytestmark = [
    pytest.mark.slow,
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


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
    assert (
        "never champion, as noise was seeded"
        in standing(config, run, PrivacyLedger(tracked.ledger_url).entries()).detail
    )


def test_some_users_do_not_get_a_void_launch_either(tracked: Settings, tmp_path: Path):
    experiment = {"share": 0.5, "days": 3, "min_gain": 0.0}
    done = launch(tracked, tmp_path, mechanism=SEEDED, experiment=experiment)
    registry = Registry(tracked)
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
    with pytest.raises(ReleaseRefused, match="version 2 never was champion"):
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
    registered(PrivacyLedger(tracked.ledger_url), "people")
    typed = launch(tracked, tmp_path, private_text=PEOPLE)
    assert (typed["registered_model"], registry.name_for("en-US", "NWP", None)) == (of_people, of_people)
    assert (registry.owner(NAME), registry.owner(of_people)) == (POPULATION, "people")
    assert registry.champion_before(of_people, "another").launch_id == typed["run_id"]
    assert registry.champion_before(NAME, "another").launch_id == demo["run_id"]
    people, simulation = launch_config(private_text=PEOPLE), launch_config()
    for config, name in ((people, NAME), (simulation, of_people)):
        with pytest.raises(ReleaseRefused, match="a registered model of population"):
            promotion.promote(config, registry, name, 1)
    undone = [entry.population for entry in PrivacyLedger(tracked.ledger_url).entries() if entry.kind == "model"]
    assert undone == [POPULATION, "people"]


def test_people_whom_nobody_registered_have_no_champion(tracked: Settings, tmp_path: Path):
    with pytest.raises(PopulationUnknown, match="tacit ledger register people"):
        launch(tracked, tmp_path, private_text=PEOPLE)
    assert Registry(tracked).alias(model_name("en-US", "NWP"), "champion") is None
