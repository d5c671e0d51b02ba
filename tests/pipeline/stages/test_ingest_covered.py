"""Ingestion under a budget: nothing that leaves follows from what a device typed."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.champion import trained_on
from pipeline.run import artifacts
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext
from pipeline.stages import ingest
from pipeline.stages.training.fine_tune_inputs import watched_on
from pretrain.text import corpus
from pretrain.text.vocabulary import SPECIALS, TokenStream, Vocabulary
from tests.helpers.launches.pipeline_launch import launch_config

MADE_UP = {"source": "synthetic", "name": "made-up", "devices": 60, "max_words_per_device": 30}
WORDS = Vocabulary((*SPECIALS, "see", "you"))


def entered(settings: Settings, seed: int, **changes: object) -> dict:
    """What is told of a population of other text and the same devices."""
    config = launch_config(private_text=MADE_UP, seed=seed, **changes)
    run = run_folder(settings, f"launch-{seed}-{len(changes)}")
    return ingest.ingest_private(StageContext(config, run, settings, "ingest_private", None)).model_dump(mode="json")


def stored(settings: Settings, **changes: object) -> Path:
    return settings.runs_dir / f"launch-1-{len(changes)}" / "private" / "ingest_private" / "store"


def test_what_leaves_the_store_does_not_depend_on_text(settings: Settings) -> None:
    budget = {"evaluation": {"noise_multiplier": 2.0}}
    plain, one, other = entered(settings, 1), entered(settings, 1, **budget), entered(settings, 2, **budget)
    digests = {"store_digest", "datasets"}
    assert {name: one[name] for name in one if name not in digests} == {
        name: other[name] for name in other if name not in digests
    }
    # Under the population's key, so that it tells nothing; in one launch the same of the same text, so that a change
    # is noticed.
    for told, changes in ((plain, {}), (one, budget)):
        private = json.loads((stored(settings, **changes) / "store.json").read_text(encoding="utf-8"))
        assert private["summary"]["digest"] not in str(told)
    assert one == entered(settings, 1, **budget)
    assert re.fullmatch("[0-9a-f]{64}", one["store_digest"])


def test_a_split_is_named_by_its_fractions_too(settings: Settings) -> None:
    few, many = told_with(settings, 0.1), told_with(settings, 0.2)
    assert few["split_rule"] != many["split_rule"], "a device that one holds out the other trains on"
    assert trained_on(few) != trained_on(many)
    assert trained_on(few) == ("synthetic:made-up", few["split_rule"])
    population = PrivacyLedger.of(settings).population("synthetic:made-up")
    assert few["split_rule"] == population.split_rule(0.1)


def told_with(settings: Settings, fraction: float) -> dict:
    config = launch_config(private_text=MADE_UP | {"test_fraction": fraction})
    run = run_folder(settings, f"launch-{fraction}")
    return ingest.ingest_private(StageContext(config, run, settings, "ingest_private", None)).model_dump(mode="json")


def test_training_is_watched_on_public_text(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    held_out = TokenStream(np.array([4, 5, 2], dtype=np.int32), np.array([0, 3]))
    store = SimpleNamespace(encode=lambda words, split: read.append(split))
    monkeypatch.setattr(artifacts, "store", lambda ctx: read.append("store"))
    monkeypatch.setattr(artifacts, "encode", lambda shards, words: held_out)
    monkeypatch.setattr(corpus, "open_corpus", lambda path: type("Opened", (), {"validation": []}))
    monkeypatch.setattr(RunDir, "input", lambda run, stage, name: Path(name))
    run, config = run_folder(settings, "launch-1"), launch_config(evaluation={"noise_multiplier": 2.0})
    ctx = StageContext(config, run, settings, "fine_tune", None)
    assert watched_on(ctx, WORDS, store) is held_out
    assert read == [], "validation devices are not read"
    watched_on(replace(ctx, config=launch_config()), WORDS, store)
    assert read == ["validation"]
