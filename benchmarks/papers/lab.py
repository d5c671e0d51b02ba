"""Data of the figures with training: real devices, public text, a vocabulary and a start, made once.

Small by default, so that a figure takes minutes on one core; ``FULL`` has the papers' model and rounds, for a GPU.
"""

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from evaluation.arms.held_out import HeldOut, held_out
from federated.config.population import ChitchatPopulation, FilePopulation
from federated.devices import store as population
from pretrain.config import ModelConfig, PretrainConfig, SampleCorpus
from pretrain.model.keyboard_lm import KeyboardLM, build_model, parameter_count
from pretrain.text import vocabulary as vocabularies
from pretrain.text.corpus import Corpus, build_corpus, open_corpus
from pretrain.text.vocabulary import TokenStream, Vocabulary, from_counts, join_streams
from pretrain.training.train import pretrain, start_from_frequencies

SEED, LOCALE = 1, "en-US"
SIMULATED = "SIMULATED: NOT A PRIVATE RUN"
# Points of recall: two standard errors of a difference of two models on the words that all are judged on.
CHANCE = 0.3
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Size:
    """Sizes of a figure's model, text and rounds.

    Attributes:
      public_words, steps: of pretraining.
      goal: devices in a round.
      words: of a device that one round uses.
      words_a_device: that a device keeps.
      curve_devices: held-out devices of the curves.
      held_out: words of other devices that a finished model is judged on.
      server_rate: where an arm says nothing else.
    """

    model: ModelConfig
    vocabulary: int
    public_words: int
    steps: int
    rounds: int
    goal: int
    words: int
    words_a_device: int
    curve_devices: int
    held_out: int
    server_rate: float


SMALL = Size(
    model=ModelConfig(embedding_dim=32, hidden_dim=64, tied=True),
    vocabulary=3000,
    public_words=700_000,
    steps=1500,
    rounds=24,
    goal=100,
    words=40,
    words_a_device=400,
    curve_devices=80,
    held_out=40_000,
    server_rate=1.0,
)
FULL = Size(
    model=ModelConfig(embedding_dim=96, hidden_dim=670, tied=False),
    vocabulary=10_000,
    public_words=5_000_000,
    steps=20_000,
    rounds=1000,
    goal=500,
    words=1600,
    words_a_device=1600,
    curve_devices=300,
    held_out=60_000,
    server_rate=1.0,
)


@dataclass(frozen=True)
class Lab:
    """The place of runs: everything in ``work`` is kept and found again; it holds text of devices."""

    size: Size
    folder: Path | None
    work: Path
    device: Literal["cpu", "cuda"]

    @property
    def text_name(self) -> str:
        """Whose text this is."""
        return "6,000 bloggers" if self.folder else "packaged chat of 1,315 senders"

    @cached_property
    def store(self) -> population.DeviceStore:
        """The real devices."""
        place = self.work / "store"
        if not (place / "store.json").exists():
            shared: dict[str, Any] = {"max_words_per_device": self.size.words_a_device, "test_fraction": 0.1}
            if self.folder:
                paths = (str(self.folder / "users" / "en_blogs.parquet"),)
                config: FilePopulation | ChitchatPopulation = FilePopulation(
                    source="files", name="blogs", paths=paths, **shared
                )
            else:
                config = ChitchatPopulation(source="chitchat", name="chat", **shared)
            population.build_store(config, LOCALE, SEED, place)
        return population.open_store(place)

    @cached_property
    def corpus(self) -> Corpus:
        """Packaged public text."""
        config = SampleCorpus(source="sample", max_tokens=self.size.public_words, max_validation_tokens=20_000)
        build_corpus(config, LOCALE, self.work / "public")
        return open_corpus(self.work / "public")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The most frequent words of public text, most frequent first."""
        path = self.work / "vocabulary.json"
        if not path.exists():
            vocabularies.save(from_counts(self.corpus.counts(), self.size.vocabulary), path)
        return vocabularies.load(path)

    @cached_property
    def public(self) -> TokenStream:
        """Public text in that vocabulary."""
        return join_streams([shard.encode(self.vocabulary) for shard in self.corpus.train])

    @cached_property
    def scratch(self) -> KeyboardLM:
        """The model before it has read anything."""
        return build_model(self.size.model, len(self.vocabulary), SEED)

    @cached_property
    def pretrained(self) -> KeyboardLM:
        """The model after public text."""
        model, path = copy.deepcopy(self.scratch), self.work / "pretrained.pt"
        if path.exists():
            model.load_state_dict(torch.load(path, weights_only=True))
            return model
        stream = self.public
        start_from_frequencies(model, stream.tokens_N)
        shape = {"batch_sentences": 64, "sequence_words": 20, "learning_rate": 0.006}
        every = {"evaluate_every_steps": self.size.steps}
        config = PretrainConfig(steps=self.size.steps, **shape, **every)
        held = stream.select(np.arange(min(20, len(stream))))
        pretrain(config, model.to(self.device), stream, held, self.work / "pretrain", SEED, _tell)
        torch.save(model.to("cpu").state_dict(), path)
        return model

    @cached_property
    def devices(self) -> TokenStream:
        """Devices to train on."""
        return self.store.encode(self.vocabulary, "train")

    @cached_property
    def curve(self) -> TokenStream:
        """Held-out devices of the curves."""
        held = self.store.encode(self.vocabulary, "validation")
        return held.select(np.arange(min(self.size.curve_devices, len(held))))

    @cached_property
    def text(self) -> HeldOut:
        """Other held-out devices, for finished models."""
        return held_out(self.store.words, self.store.devices("test"), self.size.held_out)

    @property
    def said(self) -> str:
        """The settings that every run here shares, in sentences."""
        return (
            f"{SIMULATED}. Text of {self.text_name}, {len(self.devices):,} devices to train on, at most "
            f"{self.size.words} words of each a round; vocabulary of {len(self.vocabulary):,}, "
            f"{parameter_count(self.scratch):,} weights, start from packaged public text unless said otherwise. "
            f"One draw of noise. Recall on {len(self.text.place_P):,} words of other devices; a word outside the "
            f"vocabulary is a miss, and differences under {CHANCE:g} points may be chance."
        )


def _tell(point: Mapping[str, Any]) -> None:
    _log.info("pretraining %s", {name: round(float(value), 3) for name, value in point.items()})
