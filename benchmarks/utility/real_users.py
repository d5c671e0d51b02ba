"""What benchmarks on real users share: the start that public text gives, device stores, runs as they were rehearsed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from federated.config.counts import CountsConfig
from federated.config.mechanism import MechanismConfig, TreeMechanism
from federated.config.planning import PlanningConfig, SmallTrade
from federated.config.population import EVERYBODY_TRAINS, FilePopulation
from federated.devices import store as devices
from federated.planning import recall, trade
from federated.planning.rehearsal import Setting
from federated.planning.search import terms_of
from federated.planning.trade import TradeSetting, Training, Tried
from federated.planning.verdict import Outcome
from pipeline.launch.config import LaunchConfig
from pretrain.corpus import build_corpus, open_corpus
from pretrain.export import load_model, save_model
from pretrain.model import KeyboardLM, build_model
from pretrain.ngrams.ngram import NGram
from pretrain.text import sentences
from pretrain.train import pretrain, start_from_frequencies
from pretrain.vocabulary import TokenStream, Vocabulary, from_counts, join_streams
from pretrain.words import WordStore, open_words, write_words

MANUALS = ("libreoffice", "debian-handbook")
DELTA = 1e-6


@dataclass(frozen=True)
class PublicStart:
    """What a launch file's public stages give for one language.

    Attributes:
      public: text that trained it, in the vocabulary's ids. words: of it.
    """

    vocabulary: Vocabulary
    public: TokenStream
    model: KeyboardLM
    words: int


def public_start(config: LaunchConfig, locale: str, folder: Path) -> PublicStart:
    """Pretrain as the launch file says, in whichever locale; what stands in ``folder`` is taken from there."""
    summary = build_corpus(config.public_text, locale, folder / "corpus")
    corpus = open_corpus(folder / "corpus")
    vocabulary = from_counts(corpus.counts(), config.vocabulary.base_size)
    train, validation = (
        join_streams([store.encode(vocabulary) for store in stores]) for stores in (corpus.train, corpus.validation)
    )
    weights = folder / "model.safetensors"
    if weights.exists():
        return PublicStart(vocabulary, train, load_model(weights, config.model), summary.train_tokens)
    model = build_model(config.model, len(vocabulary), config.seed)
    start_from_frequencies(model, train.tokens_N)
    pretrain(config.pretrain, model, train, validation, folder / "work", config.seed)
    save_model(model, weights)
    return PublicStart(vocabulary, train, model, summary.train_tokens)


def device_store(
    path: Path, locale: str, work: Path, seed: int, most: int | None = None, words_a_device: int = 400
) -> devices.DeviceStore:
    """The store of a Parquet file of users, a fifth of them held out, cut to ``most`` users; made once in ``work``."""
    if not (work / "store" / "store.json").exists():
        users = pq.read_table(path)
        if most is not None:
            clients = sorted(set(users["client_id"].to_pylist()))
            some = np.random.default_rng(0).permutation(clients)[:most].tolist()
            users = users.filter(pc.is_in(users["client_id"], pa.array(some)))
        work.mkdir(parents=True, exist_ok=True)
        pq.write_table(users, work / "users.parquet")
        config = FilePopulation(
            source="files",
            paths=(str(work / "users.parquet"),),
            name="users",
            max_words_per_device=words_a_device,
            test_fraction=0.2,
        )
        devices.build_store(config, locale, seed, work / "store")
    return devices.open_store(work / "store")


def public_texts(path: Path, seed: int) -> list[tuple[str, bool]]:
    """Documents of a Parquet file in a drawn order, and whether each is from a manual."""
    rows = pq.read_table(path, columns=["text", "source"])
    pairs = zip(rows["text"].to_pylist(), rows["source"].to_pylist(), strict=True)
    texts = [(text, source.startswith(MANUALS)) for text, source in pairs]
    return [texts[place] for place in np.random.default_rng(seed).permutation(len(texts))]


def public_words(path: Path, texts: list[str], locale: str, most: int) -> WordStore:
    """Documents up to so many words as a store; made once in ``path``."""

    def documents() -> Iterator[list[list[str]]]:
        total = 0
        for text in texts:
            cut = sentences(text, locale)
            total += sum(map(len, cut))
            yield cut
            if total > most:
                return

    return open_words(path) if (path / "meta.json").exists() else write_words(path, documents())


def first_people(people: TokenStream, words: int) -> TokenStream:
    """People from the first on, until they typed so many words."""
    ends = np.cumsum(recall.words(people))
    return people.select(np.arange(min(len(people), 1 + int(np.searchsorted(ends, words)))))


@dataclass(frozen=True)
class Asked:
    """What the launch file of a measured population would ask for.

    Attributes:
      devices: to train on. available: of them, how many the timer may count on.
      goal: devices in a round, and the most that the planner may choose.
    """

    noise_multiplier: float
    clip_norm: float
    rounds: int
    goal: int
    devices: int
    available: int
    rho: float


def trade_setting(
    start: PublicStart, how: Setting, people: TokenStream, asked: Asked, limits: SmallTrade
) -> TradeSetting:
    """What plays that launch: a tree with the longest rest that its devices allow, judged on these people."""
    rest = min(max(1, asked.available // asked.goal), asked.rounds)
    mechanism = TreeMechanism(
        kind="tree",
        noise_multiplier=asked.noise_multiplier,
        clip_norm=asked.clip_norm,
        rounds=asked.rounds,
        report_goal=asked.goal,
        min_sep=rest,
        max_participations=-(-asked.rounds // rest),
        delta=DELTA,
        randomness="seeded",
    )
    planning = {"population_estimate": asked.devices, "max_report_goal": asked.goal, "round_minutes": 10.0}
    return TradeSetting(
        setting=how,
        mechanism=mechanism,
        counts=None,
        terms=terms_of(
            mechanism, PlanningConfig.model_validate({**planning, "target_rho": asked.rho}), EVERYBODY_TRAINS
        ),
        rho=asked.rho,
        min_gain=0.0,
        vocabulary=start.vocabulary,
        public=start.public,
        ngram=NGram.fit(start.public, start.vocabulary, 3),
        people=people,
        limits=limits,
        inputs="",
    )


def tried_of(outcome: Outcome) -> Tried:
    """What was rehearsed, to be done for real."""
    if not outcome.run:
        return None, trade.counts_at(outcome.counts_rho)
    shared = {"delta": DELTA, "randomness": "seeded"}
    mechanism = TypeAdapter(MechanismConfig).validate_python({**outcome.run["mechanism"], **shared})
    counts = None if outcome.run["counts"] is None else CountsConfig.model_validate(outcome.run["counts"])
    return Training(mechanism, outcome.run["server_learning_rate"], outcome.gradient_rho), counts
