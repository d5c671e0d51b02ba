"""Populations of the tables: people who train, nested; people held out; and a start of packaged text.

Everything here is made once in a private folder.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.utility.cell import Cell
from benchmarks.utility.recall import words_typed
from federated.config.population import FilePopulation
from federated.devices import store as devices
from pipeline.launch.config import LaunchConfig, load_launch
from pretrain.config import ModelConfig
from pretrain.model.export import load_model, save_model
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.ngrams.ngram import NGram
from pretrain.text.corpus import Corpus, build_corpus, open_corpus
from pretrain.text.vocabulary import TokenStream, Vocabulary, from_counts, join_streams
from pretrain.text.words import WordStore
from pretrain.training.train import pretrain, start_from_frequencies

PackagedSource = Literal["sample", "sample-with-chat"]
LAUNCH = Path("dags/launches/demo-en-US.yaml")
SEED, FOLDS, WORDS_A_DEVICE = 20261124, 5, 400


@dataclass(frozen=True)
class Population:
    """Users of one file.

    Attributes:
      held_out: people who never train; 0 holds out a fifth of them, another one each fold.
    """

    about: str
    users: str
    locale: str
    held_out: int = 0


POPULATIONS = {
    "talk": Population("public talk", "en_public_talk", "en-US", 600),
    "chat": Population("typed chat", "en-US_chitchat", "en-US"),
    "blogs": Population("bloggers", "en_blogs", "en-US"),
    "sms-fr": Population("text messages", "fr-FR_88milsms", "fr-FR"),
    "essays-es": Population("essays of learners", "es-US_cowsl2h", "es-US"),
    "rooms": Population("questions about programming", "en_gitter_fcc", "en"),
}


@dataclass(frozen=True)
class PublicStart:
    """Outputs of a launch file's public stages for one language.

    Attributes:
      public: text of the start in the vocabulary's ids.
      weights: file of the network, and its shape in ``config``.
      words: number of words of the text.
    """

    vocabulary: Vocabulary
    public: TokenStream
    weights: Path
    config: ModelConfig
    words: int

    def model(self) -> KeyboardLM:
        """A fresh copy of the network."""
        return self.load(self.weights)

    def load(self, weights: Path) -> KeyboardLM:
        """A network of the same shape."""
        return load_model(weights, self.config)

    @cached_property
    def ngram(self) -> NGram:
        """Model of order 3 of the start's own text."""
        return NGram.fit(self.public, self.vocabulary, 3)


@dataclass(frozen=True)
class People:
    """Those who may train, and those held out, in the start's ids. ``name`` says which."""

    name: str
    start: PublicStart
    train: TokenStream
    held_out: TokenStream

    @property
    def words_D(self) -> np.ndarray:
        """Words that each held-out person typed."""
        return words_typed(self.held_out)


def opened(cell: Cell, folder: Path, work: Path) -> People:
    """People of a cell.

    Raises:
      ValueError: more people than there are.
    """
    population = POPULATIONS[cell.population]
    start = public_start("en-US" if population.locale == "en" else population.locale, work, cell)
    everybody = _encoded(population, folder, work, start.vocabulary)
    order_D = np.random.default_rng(SEED).permutation(len(everybody))
    if population.held_out:
        held, rest = order_D[: population.held_out], order_D[population.held_out :]
    else:
        parts = np.array_split(order_D, FOLDS)
        held, rest = parts[cell.fold], np.concatenate([part for fold, part in enumerate(parts) if fold != cell.fold])
    if cell.people > len(rest):
        raise ValueError(f"people: {cell.people:,} of {cell.population}, which has {len(rest):,} beside those held out")
    train = rest[: cell.people or len(rest)]
    name = f"{cell.population}-{cell.fold}" if not population.held_out else cell.population
    return People("-".join([name, *cell.start]), start, everybody.select(train), everybody.select(held))


def launch() -> LaunchConfig:
    """The demo's launch file."""
    return load_launch(LAUNCH)


def public_text(locale: str, work: Path, source: PackagedSource = "sample") -> Corpus:
    """Packaged text in this language, in full."""
    folder = work / f"start-{locale}{'' if source == 'sample' else f'-public{source}'}" / "corpus"
    config = launch().public_text.model_copy(update={"source": source})
    if source != "sample":
        config = config.model_copy(update={"max_tokens": 2 * config.max_tokens})
    build_corpus(config, locale, folder)
    return open_corpus(folder)


def public_start(locale: str, work: Path, cell: Cell) -> PublicStart:
    """The start that the demo's launch file makes of packaged text in this language, of a cell's sizes."""
    # One for all cells of the same start, as its text and n-gram are large.
    sizes = Cell("", 0, "start", public=cell.public, hidden=cell.hidden, words=cell.words)
    return _public_start(locale, work, sizes)


# Xu et al. 2023, section 1, has two matrices of words, and the demo's network one of 64.
_SHAPES = {670: {"embedding_dim": 96, "tied": False}}


@cache
def _public_start(locale: str, work: Path, cell: Cell) -> PublicStart:
    config, corpus = launch(), public_text(locale, work, cell.public)
    folder = work / "-".join([f"start-{locale}", *cell.start])
    shape = config.model.model_copy(update={"hidden_dim": cell.hidden} | _SHAPES.get(cell.hidden, {}))
    vocabulary = from_counts(corpus.counts(), cell.words)
    train, validation = (
        join_streams([store.encode(vocabulary) for store in stores]) for stores in (corpus.train, corpus.validation)
    )
    weights = folder / "model.safetensors"
    if not weights.exists():
        model = build_model(shape, len(vocabulary), config.seed)
        start_from_frequencies(model, train.tokens_N)
        pretrain(config.pretrain, model, train, validation, folder / "work", config.seed)
        save_model(model, weights)
    return PublicStart(vocabulary, train, weights, shape, corpus.summary.train_tokens)


@cache
def _encoded(population: Population, folder: Path, work: Path, vocabulary: Vocabulary) -> TokenStream:
    """Everybody, in a vocabulary's ids."""
    return text_of(population, folder, work).encode(vocabulary)


def text_of(population: Population, folder: Path, work: Path) -> WordStore:
    """Text of everybody."""
    path = folder / "users" / f"{population.users}.parquet"
    store = work / f"store-{path.stem}"
    if not (store / "store.json").exists():
        config = FilePopulation(
            source="files", paths=(str(path),), name=path.stem.lower(), max_words_per_device=WORDS_A_DEVICE,
            test_fraction=0.2,
        )  # fmt: skip
        devices.build_store(config, population.locale, SEED, store)
    return devices.open_store(store).words
