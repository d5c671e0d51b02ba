"""The attack of somebody who knows all devices but one, on every public number of a launch whose counts ship alone."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evaluation.audit.released.splits import TRAIN
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.run import artifacts
from pipeline.run.known import run_folder
from pipeline.run.stage import StageContext
from pipeline.stages import audit_releases as audits
from pipeline.stages import count
from pipeline.stages.audit_releases import audit_releases
from pretrain.text import vocabulary
from pretrain.text.vocabulary import EOS, SPECIALS, TokenStream, Vocabulary, join_owners
from pretrain.text.words import write_words
from tests.helpers.launches.pipeline_launch import after_stand_ins, launch_config, run_all

BASE = Vocabulary((*SPECIALS, "see", "you", "soon", "today"))
GROWN = vocabulary.extend(BASE, ["lol"], 1)
WORDS = range(len(SPECIALS), len(GROWN))
ALONE = {"noise_multiplier": 1.0, "model": "counts"}
MADE_UP = {"source": "synthetic", "name": "made-up", "devices": 40, "max_words_per_device": 30}
POLICY = {"max_rho": 0.5, "population_max_rho": 50.0}
World = Callable[[int | None], dict]


def people(last: int | None) -> TokenStream:
    """Thirty devices; the last one typed one word again and again, or nothing."""
    rng = np.random.default_rng(3)
    known = [np.append(rng.choice(WORDS, size=12), EOS) for _ in range(29)]
    return join_owners([*known, np.array([] if last is None else [*[last] * 4, EOS], dtype=np.int64)])


class SingleSplitStore:
    """A device store whose thirty devices all train."""

    directory = Path("store")

    def __init__(self, streams: TokenStream) -> None:
        self.streams = streams

    def encode(self, words: Vocabulary, split: str) -> TokenStream:
        return self.streams

    def devices(self, split: str) -> np.ndarray:
        return np.arange(30 if split == "train" else 0)


@pytest.fixture
def world(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> World:
    """What the audit says of a release of counts, in the world whose last device typed this word."""
    words = {"ingest_public": BASE, "build_vocabulary": GROWN}
    public = write_words(settings.home / "public", [[["see", "you", "soon"], ["see", "you"]]] * 30).encode(GROWN)
    monkeypatch.setattr(artifacts, "vocabulary", lambda ctx, stage: words[stage])
    monkeypatch.setattr(artifacts, "public_streams", lambda ctx, given: (public, public))
    monkeypatch.setattr(artifacts, "frequencies", lambda ctx: np.empty(0))
    monkeypatch.setattr(audits, "device_ids", lambda folder: [str(number) for number in range(30)])
    monkeypatch.setattr(audits, "splits_of", lambda ids, *rule: np.full(len(ids), TRAIN))
    # The vocabulary is no release, and this launch has discovered no word.
    monkeypatch.setattr("pipeline.stages.audit_releases.audited_vocabulary", lambda ctx: ())
    before = ("ingest_public", "ingest_private", "build_vocabulary", "plan")

    def audited(last: int | None) -> dict:
        config = launch_config(name=f"world-{last}", counts=ALONE, policy=POLICY, private_text=MADE_UP)
        monkeypatch.setattr(artifacts, "store", lambda ctx: SingleSplitStore(people(last)))
        run_all(config, settings, after_stand_ins(before, count.count))
        run = run_folder(settings, launch_id(config))
        said = audit_releases(StageContext(config, run, settings, "audit_releases", None)).model_dump_json()
        return json.loads(said.replace(run.launch_id, "launch"))

    return audited


def test_no_public_number_tells_the_true_last_device_from_any_other(world: World) -> None:
    true = world(WORDS[0])
    assert all(verdict["passed"] for audit in true["release_audits"] for verdict in audit["verdicts"])
    others = {guess: world(guess) for guess in (None, *WORDS[1:])}
    apart = [guess for guess, seen in others.items() if seen != true]
    assert not apart, f"{len(apart)} of {len(others)} guesses of the last device are told from the truth"
