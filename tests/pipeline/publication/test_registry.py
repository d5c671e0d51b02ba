"""What is served is what a launch published, once; MLflow is only where it lies."""

from pathlib import Path

import pytest

from pipeline.ground.errors import ReleaseRefused
from pipeline.ground.settings import Settings
from pipeline.publication.approvals import rollback
from pipeline.publication.promotion import promote
from pipeline.publication.registry import Registry
from pipeline.tracking import mlflow_tracker
from pretrain.files import sha256
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
    assert len(client.search_model_versions(f"name = '{NAME}'")) == 1
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
    forged = {**honest.tags, "privacy.rho": "0.01"}
    client.create_model_version(NAME, honest.source, honest.run_id, tags=forged)
    client.set_registered_model_alias(NAME, "champion", "2")
    with pytest.raises(ReleaseRefused, match="neither published nor rolled back to"):
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


def test_publishing_again_does_not_undo_a_rollback(tracked: Settings, tmp_path: Path):
    launch(tracked, tmp_path)
    launch(tracked, tmp_path, seed=8)
    rollback("en-US", "NWP", tracked, "worse", "me", POPULATION)
    registry = Registry(tracked)
    assert registry.alias(NAME, "champion") == 1
    promote(launch_config(), registry, NAME, 2)
    assert registry.alias(NAME, "champion") == 1
