"""A model that users have: an untrained bundle in the registry, with words of its own."""

import json
from pathlib import Path

from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.registry import Registry, promote
from pipeline.run.population import register_simulation
from pretrain.files import sha256
from pretrain.model import export
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.text import vocabulary
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from tests.helpers.launches.pipeline_launch import launch_config

# Other words in another order than a launch has, one of which only users' present model knows.
THEIRS = Vocabulary((*SPECIALS, "you", "later", "see"))


def list_files(bundle: Path, **about: object) -> None:
    """Write ``bundle.json``: what is said of the bundle, and the digests of the files that are there."""
    paths = sorted(path for path in bundle.iterdir() if path.is_file() and path.name != "bundle.json")
    files = {path.name: sha256(path) for path in paths}
    (bundle / "bundle.json").write_text(json.dumps(about | {"files": files}), encoding="utf-8")


def publish(
    settings: Settings,
    folder: Path,
    launch_id: str,
    words: Vocabulary = THEIRS,
    trained_on: dict | None = None,
    features: tuple[str, ...] = ("NWP",),
) -> Path:
    """Register a bundle of an untrained model and make it the champion; returns the bundle.

    Args:
      trained_on: its disclosure's population; another one than launches here have, if None.
    """
    bundle = folder / launch_id / "bundle"
    bundle.mkdir(parents=True)
    vocabulary.save(words, bundle / "vocabulary.json")
    population = trained_on or {"name": "others", "split_rule": "theirs"}
    (bundle / "disclosure.json").write_text(json.dumps({"population": population}), encoding="utf-8")
    export.export_onnx(model_of(words, len(launch_id)), bundle / "model.onnx")
    list_files(bundle, launch_id=launch_id)
    tags = {"tacit.launch": launch_id, "bundle.sha256": sha256(bundle / "bundle.json")}
    registry, config = Registry(settings), launch_config(features=features)
    register_simulation(config, PrivacyLedger.of(settings))
    for feature, name in registry.names_of(config).items():
        promote(config, registry, name, registry.register(config, launch_id, bundle, tags, feature))
    return bundle


def model_of(words: Vocabulary, seed: int) -> KeyboardLM:
    return build_model(launch_config().model, len(words), seed)
