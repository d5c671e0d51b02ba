"""Arms of one launch in miniature, trained on files of public and of private text, for ``ab_table.py``.

Models are small (embedding 48, hidden 128, 4,000 words) so that one core trains all of them in
minutes. New words are simply those that most training devices use and the public text lacks: this
measures the comparison of arms, not discovery. Noise is seeded, for the same table every time.
"""

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from evaluation.arms.arm import NextWord, PublicNGram, neural
from evaluation.arms.history import WithHistory
from evaluation.comparison.compare import Devices
from evaluation.config import HISTORY_WEIGHT, NGRAM_ORDER
from federated.accounting import guarantees as accounting
from federated.config.mechanism import TreeMechanism
from federated.config.population import FilePopulation
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.devices import store as population
from federated.rounds.rule import RoundRule
from federated.train import TrainingData, Workplace, fine_tune
from pretrain.config import AdaptConfig, ModelConfig, PretrainConfig
from pretrain.extend import adapt, grow
from pretrain.model import KeyboardLM, build_model
from pretrain.ngrams.ngram import NGram
from pretrain.text import sentences
from pretrain.train import pretrain
from pretrain.vocabulary import TokenStream, Vocabulary, extend, from_counts
from pretrain.words import WordStore, write_words

SEED, SEQUENCE = 1, 20
BASE_SIZE, NEW_WORDS, FEWEST_DEVICES = 4000, 200, 10
PUBLIC_WORDS, WORDS_A_DEVICE = 400_000, 200
PRETRAIN_STEPS, ADAPT_STEPS, UPPER_BOUND_STEPS = 2000, 100, 600
BATCH = 16
ROUNDS, CHAMPION_ROUNDS, MIN_SEP, MOST = 16, 5, 4, 4
MOST_A_ROUND = 80
NOISE, CLIP, SERVER_RATE = 3.0, 0.3, 1.0
DELTA = 1e-6


@dataclass(frozen=True)
class Trained:
    """Everything a comparison needs, and what the private arm's noise is worth."""

    arms: dict[str, NextWord]
    devices: Devices
    vocabulary: Vocabulary
    base_size: int
    train_devices: int
    report_goal: int
    rho: float
    epsilon: float
    delta: float


def train(users: Path, public: Path, locale: str, folder: Path) -> Trained:
    """Train the arms.

    ``champion`` is an earlier, shorter private run; ``upper_bound`` trained on the same devices in
    one place without any protection, which no launch may do.
    """
    text = write_words(folder / "public", _documents(public, locale))
    base = from_counts(text.word_counts(), BASE_SIZE)
    config = FilePopulation(
        source="files",
        paths=(str(users),),
        name="users",
        max_words_per_device=WORDS_A_DEVICE,
        test_fraction=0.25,
    )
    population.build_store(config, locale, SEED, folder / "store")
    store = population.open_store(folder / "store")
    grown = extend(base, _new_words(store, base), NEW_WORDS)

    model = build_model(ModelConfig(embedding_dim=48, hidden_dim=128, tied=True), len(base), SEED)
    _on_public(model, text.encode(base), PRETRAIN_STEPS, 6e-3, folder / "pretrain")
    start = grow(model, base, grown)
    split = _split(text.encode(grown))
    adapt(
        AdaptConfig(steps=ADAPT_STEPS, batch_sentences=BATCH, learning_rate=1e-3),
        start,
        *split,
        SEQUENCE,
        SEED,
        folder / "adapt",
    )
    devices = store.encode(grown, "train")
    goal = min(MOST_A_ROUND, len(devices) // (2 * MIN_SEP))
    private, champion = copy.deepcopy(start), copy.deepcopy(start)
    _federated(champion, devices, store.encode(grown, "validation"), CHAMPION_ROUNDS, goal, folder / "champion")
    guarantee = _federated(private, devices, store.encode(grown, "validation"), ROUNDS, goal, folder / "private")
    bound = copy.deepcopy(start)
    _on_public(bound, devices, UPPER_BOUND_STEPS, 2e-3, folder / "bound")

    size = len(grown)
    public_ngram = PublicNGram(NGram.fit(text.encode(grown), grown, NGRAM_ORDER))
    entrants: dict[str, NextWord] = {
        "ngram": public_ngram,
        "ngram_history": WithHistory(public_ngram, HISTORY_WEIGHT),
        "pretrained": neural(model, size),
        "champion": neural(champion),
        "private": neural(private),
        "private_history": WithHistory(neural(private), HISTORY_WEIGHT),
        "upper_bound": neural(bound),
    }
    held = Devices(store.words, store.devices("test"), store.devices("validation"))
    return Trained(
        entrants, held, grown, len(base), len(devices), goal, guarantee.rho, max(guarantee.epsilon.values()), DELTA
    )


def _federated(
    model: KeyboardLM, devices: TokenStream, validation: TokenStream, rounds: int, goal: int, folder: Path
) -> accounting.Guarantee:
    mechanism = TreeMechanism(
        kind="tree",
        noise_multiplier=NOISE,
        clip_norm=CLIP,
        rounds=rounds,
        report_goal=goal,
        min_sep=MIN_SEP,
        max_participations=MOST,
        delta=DELTA,
        randomness="seeded",
    )
    done = fine_tune(
        model,
        TrainingData(
            devices, np.zeros(len(devices), dtype=bool), validation.select(np.arange(min(20, len(validation))))
        ),
        RoundRule(mechanism, SEED, bytes(32)),
        LocalTrainingConfig(learning_rate=0.5, batch_sentences=8, sequence_words=SEQUENCE, max_words=200),
        ServerConfig(learning_rate=SERVER_RATE, momentum=0.9),
        Workplace(
            folder,
            RuntimeConfig(chunk_devices=16, evaluate_every_rounds=rounds, checkpoint_every_rounds=rounds),
            threads=1,
        ),
    )
    return accounting.from_records(mechanism, done.observed)


def _on_public(model: KeyboardLM, stream: TokenStream, steps: int, rate: float, folder: Path) -> None:
    config = PretrainConfig(
        steps=steps,
        batch_sentences=BATCH,
        sequence_words=SEQUENCE,
        learning_rate=rate,
        evaluate_every_steps=steps,
        checkpoint_every_steps=steps,
    )
    pretrain(config, model, *_split(stream), folder, SEED)


def _split(stream: TokenStream) -> tuple[TokenStream, TokenStream]:
    """All owners but fifty to train on; the fifty only to look at."""
    return stream.select(np.arange(50, len(stream))), stream.select(np.arange(50))


def _documents(path: Path, locale: str) -> Iterator[list[list[str]]]:
    left = PUBLIC_WORDS
    for text in pq.read_table(path, columns=["text"])["text"].to_pylist():
        document = sentences(text, locale)
        left -= sum(map(len, document))
        yield document
        if left <= 0:
            return


def _new_words(store: population.DeviceStore, base: Vocabulary) -> list[str]:
    """Words of many training devices that the base vocabulary lacks, most devices first."""
    counts = Counter(word for words in store.device_words("train") for word in set(words) if word not in base.index)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [word for word, devices in ranked if devices >= FEWEST_DEVICES]


def words_of(store: WordStore, owners: np.ndarray) -> int:
    """Words that some owners typed."""
    return sum(int(np.count_nonzero(store.owner(int(owner)))) for owner in owners)
