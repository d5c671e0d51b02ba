"""Stage ``count`` on a small store of made-up people; the stages before it are stand-ins."""

import numpy as np
import pytest

from federated.devices import store as population
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run import artifacts
from pipeline.run.population import register_simulation
from pipeline.run.stage import Stages
from pipeline.stages.count import count
from pretrain.text import vocabulary
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from pretrain.text.words import write_words
from tests.helpers.launches.pipeline_launch import after_stand_ins

BASE = Vocabulary((*SPECIALS, "see", "you", "soon"))
GROWN = vocabulary.extend(BASE, ["lol"], 1)
MADE_UP = {"source": "synthetic", "name": "made-up", "devices": 40, "max_words_per_device": 30}


def counting(config: LaunchConfig, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Stages:
    words = {"ingest_public": BASE, "build_vocabulary": GROWN}
    public = write_words(settings.home / "public", [[["see", "you", "soon"], ["see", "you"]]] * 30).encode(GROWN)
    ledger = PrivacyLedger.of(settings)
    register_simulation(config, ledger)
    key = population.split_key(config.population, ledger.split_secret(config.population))
    population.build_store(config.private_text, "en-US", 1, settings.home / "store", key)
    store = population.open_store(settings.home / "store")
    monkeypatch.setattr(artifacts, "vocabulary", lambda ctx, stage: words[stage])
    monkeypatch.setattr(artifacts, "public_streams", lambda ctx, given: (public, public))
    monkeypatch.setattr(artifacts, "frequencies", lambda ctx: np.empty(0))
    monkeypatch.setattr(artifacts, "store", lambda ctx: store)
    # The vocabulary is no release, and this launch has discovered no word.
    monkeypatch.setattr("pipeline.stages.audit_releases.audited_vocabulary", lambda ctx: ())
    return after_stand_ins(("ingest_public", "ingest_private", "build_vocabulary", "plan"), count)
