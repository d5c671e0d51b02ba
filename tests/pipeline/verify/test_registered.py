"""Every feature's registered version is held against what was published; none may be left out or changed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.ground import settings
from pipeline.publication.registry import version_description
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.verify import registered
from tests.helpers.launches.pipeline_launch import launch_config

NAMES = ("keyboard-en-US-NWP", "keyboard-en-US-OTF")
FILES = {"data/bundle/bundle.json": "a" * 64, "MLmodel": "b" * 64}
TAGS = {"tacit.launch": "launch-1"}


def record(**changes: object) -> StageRecord:
    stated = {"published": True, "registered_model": NAMES[0], "version": 2, "versions": {NAMES[0]: 2, NAMES[1]: 1}}
    return StageRecord(
        launch_id="launch-1",
        stage="publish",
        config_digest="",
        inputs={},
        outputs={"bundle/bundle.json": "a" * 64},
        private_outputs=False,
        started_at="",
        seconds=0.0,
        processor="any",
        result=stated | {"registered_files": FILES} | changes,
    )


def passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: StageRecord, wrong: str = "", *features: str
) -> dict[str, bool | None]:
    """Checks by their names; ``wrong`` is a registered model with a file changed."""
    registry = SimpleNamespace(
        tags=lambda name, version: TAGS,
        description=lambda name, version: version_description(TAGS),
        files=lambda name, version, folder: FILES | ({"MLmodel": "c" * 64} if name == wrong else {}),
    )
    monkeypatch.setattr(registered, "Registry", lambda here: registry)
    monkeypatch.setattr(registered, "registered_tags", lambda config, launch_id, bundle: TAGS)
    config, here = launch_config(features=features or ("NWP", "OTF")), settings.load({"TACIT_HOME": str(tmp_path)})
    run = RunDir(tmp_path, "launch-1")
    return {check.id: check.passed for check in registered.registered(config, run, here, {"publish": published})}


def test_each_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert passed(tmp_path, monkeypatch, record()) == {"registered": True, f"registered:{NAMES[1]}": True}
    assert passed(tmp_path, monkeypatch, record(), NAMES[1]) == {"registered": True, f"registered:{NAMES[1]}": False}
    assert passed(tmp_path, monkeypatch, record(), NAMES[0])["registered"] is False


@pytest.mark.parametrize("changes", [{"version": 3}, {"versions": {NAMES[0]: 2}}, {"versions": {NAMES[1]: 2}}])
def test_what_contradicts_itself_or_leaves_a_feature_out_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict
) -> None:
    assert passed(tmp_path, monkeypatch, record(**changes)) == {"registered": False}
