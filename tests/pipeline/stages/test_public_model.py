"""Two launches on the same public text: the second takes the corpus, the vocabulary and the model over."""

import shutil
from pathlib import Path

import pytest

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id, load_launch
from pipeline.run import runner
from pipeline.run.bookkeeping import PROCESSORS
from pipeline.run.run_dir import RESULT, StageRecord
from pipeline.run.stage import Stages
from pipeline.stages.graph import STAGES
from tests.helpers.launches.stages import running
from tests.helpers.launches.tiny_launch import write_launch

# Hugging Face's streams warn where MLflow's code does.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]
NAMES = ("ingest_public", "pretrain")


def changed(config: LaunchConfig, **changes: dict | object) -> LaunchConfig:
    """The configuration with some fields replaced; mappings are merged."""
    content = config.model_dump(mode="json")
    merged = {name: content[name] | value if isinstance(value, dict) else value for name, value in changes.items()}
    return LaunchConfig.model_validate(content | {"name": "second"} | merged)


def run(config: LaunchConfig, settings: Settings, stages: Stages = STAGES) -> dict[str, StageRecord]:
    """Both public stages of a launch; their records."""
    return {
        name: runner.run_stage(name, config, launch_id(config), settings, stages).record
        for name in NAMES
        if name in stages
    }


def files(settings: Settings, config: LaunchConfig) -> dict[str, bytes]:
    """What the public stages made, but for their records."""
    folder = settings.runs_dir / launch_id(config) / "public"
    paths = [path for name in NAMES for path in (folder / name).rglob("*") if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in paths
        if path.name not in (RESULT, PROCESSORS)
    }


def refuse(*_: object) -> None:
    raise AssertionError("computed although it was made before")


@pytest.fixture
def first(tmp_path: Path, settings: Settings) -> LaunchConfig:
    """A launch whose public stages are done."""
    config = load_launch(write_launch(tmp_path))
    run(config, settings)
    return config


def test_only_the_mechanism_differs(first: LaunchConfig, settings: Settings) -> None:
    second = changed(first, mechanism={"noise_multiplier": 8.0}, audit={"directions": 96}, adapt={"steps": 6})
    records = run(second, settings, running(STAGES, **dict.fromkeys(NAMES, refuse)))
    assert {record.reused_from for record in records.values()} == {launch_id(first)}
    assert files(settings, second) == files(settings, first)
    shutil.rmtree(settings.runs_dir / launch_id(first))
    assert all(runner.find_done(name, second, launch_id(second), settings) for name in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "taken_over"),
    [
        ({"seed": 6}, {"ingest_public"}),
        ({"pretrain": {"steps": 20}}, {"ingest_public"}),
        ({"model": {"hidden_dim": 10}}, {"ingest_public"}),
        ({"vocabulary": {"max_new_words": 9}}, {"ingest_public", "pretrain"}),
        ({"vocabulary": {"base_size": 70}}, set()),
        ({"public_text": {"max_tokens": 10_000}}, set()),
    ],
)
def test_what_public_stages_read_decides(
    first: LaunchConfig, settings: Settings, changes: dict, taken_over: set[str]
) -> None:
    records = run(changed(first, **changes), settings)
    assert {name for name, record in records.items() if record.reused_from} == taken_over


@pytest.mark.slow
def test_other_bytes_in_the_same_file_are_other_text(first: LaunchConfig, settings: Settings) -> None:
    train, validation = (Path(paths[0]) for paths in (first.public_text.train, first.public_text.validation))
    shutil.copy(validation, train)
    train.write_bytes(train.read_bytes() * 3)
    records = run(changed(first), settings)
    assert [record.reused_from for record in records.values()] == [None, None]
    assert records["ingest_public"].result["train_tokens"] < 20_000
