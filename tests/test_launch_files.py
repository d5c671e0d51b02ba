"""Every launch file in the repository is valid, and production files keep the papers' shape."""

from pathlib import Path

import pytest
import yaml

from federated.config.population import FilePopulation
from pipeline.config import LaunchConfig, launch_id, load_launch
from pretrain.config import C4Corpus

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "dags" / "launches").glob("*.yaml"))
PRODUCTION = [path for path in FILES if path.stem in {"en-US", "es-ES", "fr-FR", "pt-BR"}]


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_is_valid_and_named_after_itself(path: Path):
    config = load_launch(path)
    # The DAG's id is the file's name, the launch's id begins with the name in it: one name for both.
    assert config.name == path.stem
    assert config.locale in path.stem
    assert launch_id(config).startswith(f"{path.stem}-")


def test_no_two_files_are_the_same_launch():
    ids = [launch_id(load_launch(path)) for path in FILES]
    assert len(set(ids)) == len(ids) >= 3


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_says_every_privacy_parameter_itself(path: Path):
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"noise_multiplier", "clip_norm", "rounds", "report_goal", "min_sep", "max_participations", "delta"} <= set(
        raw["mechanism"]
    )
    assert {"epsilon0", "delta", "messages_per_device"} <= set(raw["discovery"])
    assert {"max_rho", "population_max_rho", "max_discovery_epsilon0", "min_canary_rank"} <= set(raw["policy"])
    assert raw["mechanism"]["randomness"] == "secure"


def test_the_production_locales_are_there():
    assert [path.stem for path in PRODUCTION] == ["en-US", "es-ES", "fr-FR", "pt-BR"]


@pytest.mark.parametrize("path", PRODUCTION, ids=name_of)
def test_production_files_have_the_papers_shape(path: Path):
    config: LaunchConfig = load_launch(path)
    assert isinstance(config.public_text, C4Corpus)
    assert isinstance(config.private_text, FilePopulation)
    assert (config.model.embedding_dim, config.model.hidden_dim, config.model.tied) == (96, 670, False)
    assert config.mechanism.report_goal == 6500
    assert config.mechanism.noise_multiplier == 7.0
    assert config.mechanism.delta == 1e-10
    assert config.schedule
    assert config.reviewers


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"locale": False}, "locale"),
        ({"mechanism": {"max_participations": 500}}, "lower it to"),
        ({"mechanism": {"delta": 2.0}}, "mechanism"),
        ({"polices": {}}, "polices"),
    ],
)
def test_a_changed_file_that_is_wrong_is_refused(change: dict, expected: str, tmp_path: Path):
    raw = yaml.safe_load(PRODUCTION[0].read_text(encoding="utf-8"))
    for field, value in change.items():
        raw[field] = {**raw[field], **value} if isinstance(raw.get(field), dict) else value
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    with pytest.raises(ValueError, match=expected):
        load_launch(path)
