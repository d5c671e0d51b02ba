"""Words found locally (LDP TrieHH) and by a trusted aggregator, at equal coverage, and what one device loses to each.

    .venv/stages/bin/python -m benchmarks.privacy.words [PART ...] [--data FOLDER]
    .venv/stages/bin/python -m benchmarks.privacy.words pictures

Parts are chat, blogs, sms, synthetic, millions and scale; none means all. 'chat' is the packaged demo's population with
its vocabulary; 'blogs' and 'sms' read en_blogs.parquet and fr-FR_88milsms.parquet in FOLDER (client_id, text, locale,
ts) and are left out without it. 'synthetic' types words of wordfreq's English list by their frequency; 'millions' are
more people of a tenth of the words each. 'scale' streams 30 million devices. Seconds are CPU seconds of one thread.
Epsilon is a whole device's; of a local discovery against whoever collects messages, and after shuffling. 'pictures'
measures nothing and draws the committed table.
"""

import argparse
import math
import resource
import statistics
import string
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from scipy import optimize

from benchmarks.privacy import words_pictures
from benchmarks.privacy.discovery import population
from discovery import discover as trie
from discovery.central.histogram import Shard, shards_of
from discovery.central.select import select
from discovery.config import FAILURE_SHARE, CentralConfig, TrieConfig
from discovery.coverage import coverage
from discovery.device.typed import TypedWords
from federated.accounting.gaussian import epsilon_of_rho
from federated.config.population import ChitchatPopulation, FilePopulation
from federated.devices import store
from pipeline.config import load_launch
from pretrain import text
from pretrain.corpus import build_corpus, open_corpus
from pretrain.vocabulary import from_counts

DEMO = Path("dags/launches/demo-en-US.yaml")
DELTA, WORDS, EPSILONS = 1e-6, 50, (0.5, 1.0, 2.0, 4.0)
VARIANTS = {
    "adaptive weights": {"adaptive_weights": True},
    "two passes": {"passes": 2},
    "both": {"adaptive_weights": True, "passes": 2},
}
LOCAL = TrieConfig(
    kind="ldp-triehh",
    epsilon0=8.0,
    delta=DELTA,
    messages_per_device=10,
    honest_share=1.0,
    layers=8,
    max_prefixes=100,
    false_discovery_rate=0.05,
)


@dataclass(frozen=True)
class People:
    """Devices that answer, what is known beforehand, and unknown words of others on which coverage is measured."""

    typed: TypedWords
    known: frozenset[str]
    held_out: tuple[Counter[str], ...]
    alphabet: str


def central_of(epsilon: float, words: int = WORDS) -> CentralConfig:
    """The least noise that gives a device this epsilon."""
    left = DELTA * (1 - FAILURE_SHARE)
    rho = optimize.brentq(lambda rho: epsilon_of_rho(rho, left) - epsilon, 1e-9, 100.0)
    return CentralConfig(kind="central", noise_multiplier=(2 * rho) ** -0.5, words_per_device=words, delta=DELTA)


def key_of(seed: int) -> bytes:
    """A public key; nobody's secret is at stake in a benchmark."""
    return seed.to_bytes(32, "big")


def compare(
    people: People,
    local: TrieConfig,
    seeds: int,
    epsilons: Sequence[float] = EPSILONS,
    variants: Mapping[str, Mapping[str, object]] = MappingProxyType(VARIANTS),
    steps: int = 9,
) -> None:
    """One table: the local discovery, central ones, and the central one of the local one's coverage.

    Args:
      steps: of bisection for the epsilon of that coverage.
    """
    print(f"{len(people.typed):,} devices answer, {len(people.held_out):,} others")
    print(f"{'way':>24}{'epsilon':>10}{'shuffled':>10}{'coverage %':>16}{'words':>8}{'false':>7}{'CPU s':>8}")
    held = set(people.typed.parted()[0].distinct)

    def row(name: str, epsilon: float, shuffled: float | None, runs: list[set[str]], seconds: float) -> float:
        shares = [100 * coverage(run, people.held_out, 0.95)[0] for run in runs]
        spread = statistics.stdev(shares) if len(shares) > 1 else 0.0
        false = statistics.mean(len(run - held) for run in runs)
        print(
            f"{name:>24}{epsilon:>10.3g}{'-' if shuffled is None else f'{shuffled:.3g}':>10}"
            f"{statistics.mean(shares):>10.1f} ±{spread:>4.1f}{statistics.mean(map(len, runs)):>8.1f}{false:>7.1f}"
            f"{seconds / len(runs):>8.2f}",
            flush=True,
        )
        return statistics.mean(shares)

    def central(epsilon: float, **variant: object) -> list[set[str]]:
        config = central_of(epsilon).model_copy(update=variant)
        return [
            {
                word.word
                for word in select(lambda: shards_of(people.typed), len(people.typed), people.known, config, key).words
            }
            for key in map(key_of, range(seeds))
        ]

    print(f"noise for epsilon 2: {central_of(2.0).noise_multiplier:.4g}, {WORDS} words a device")
    began, found, shuffled = time.process_time(), [], 0.0
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            result = trie.discover(
                people.typed, known_words=people.known, alphabet=people.alphabet, config=local, key=key_of(seed),
                directory=Path(folder) / "layers",
            )  # fmt: skip
        found.append({word.word for word in result.words})
        shuffled = max(shuffled, result.device_epsilon_central or math.inf)
    target = row("local", local.messages_per_device * local.epsilon0, shuffled, found, time.process_time() - began)
    for epsilon in epsilons:
        began = time.process_time()
        runs = central(epsilon)
        row("central", epsilon, None, runs, time.process_time() - began)
    for name, variant in variants.items():
        began = time.process_time()
        runs = central(2.0, **variant)
        row(name, 2.0, None, runs, time.process_time() - began)
    low, high = (0.01, 40.0) if steps > 5 else (0.005, 0.5)
    for _ in range(steps):
        middle = math.sqrt(low * high)
        reached = statistics.mean(100 * coverage(run, people.held_out, 0.95)[0] for run in central(middle))
        low, high = (middle, high) if reached < target else (low, middle)
    began = time.process_time()
    row("central, as far", high, None, central(high), time.process_time() - began)


def real(config: ChitchatPopulation | FilePopulation, locale: str) -> People:
    """A population split as a launch splits it, with the demo's size of vocabulary from packaged public text."""
    demo = load_launch(DEMO)
    with tempfile.TemporaryDirectory() as folder:
        build_corpus(demo.public_text, locale, Path(folder) / "corpus")
        counts = open_corpus(Path(folder) / "corpus").counts()
        known = frozenset(from_counts(counts, demo.vocabulary.base_size).words)
        store.build_store(config, locale, demo.seed, Path(folder) / "store")
        devices = store.open_store(Path(folder) / "store")
        typed = TypedWords.gather(devices.typed_words("train"))
        held_out = tuple(
            Counter(word for word in words if word not in known)
            for split in ("validation", "test")
            for words in devices.device_words(split)
        )
    return People(typed, known, held_out, text.alphabet(locale))


def chat() -> None:
    """The packaged demo's senders."""
    config = load_launch(DEMO).private_text
    assert isinstance(config, ChitchatPopulation)
    compare(real(config, "en-US"), LOCAL, 6)


def brought(path: Path, locale: str) -> None:
    """A population that somebody brought along."""
    config = FilePopulation(
        source="files", name="brought", paths=(str(path),), max_words_per_device=400, test_fraction=0.2
    )
    compare(real(config, locale), LOCAL, 4)


def synthetic() -> None:
    """Populations of ten and a hundred thousand, all of whose words are unknown, and their weights for coverage."""
    for devices in (10_000, 100_000):
        typed, weights = population(devices)
        share = Counter({word: round(1e9 * weight) for word, weight in weights.items()})
        local = LOCAL.model_copy(update={"layers": 15, "max_prefixes": 1_500})
        compare(People(typed, frozenset(), (share,), string.printable), local, 1)


def millions() -> None:
    """One and thirty million people with a tenth of the words each, both ways, at equal coverage."""
    for devices in (1_000_000, 30_000_000):
        typed, weights = population(devices, words_each=20)
        share = Counter({word: round(1e9 * weight) for word, weight in weights.items()})
        local = LOCAL.model_copy(update={"layers": 15, "max_prefixes": 1_500})
        compare(People(typed, frozenset(), (share,), string.printable), local, 1, epsilons=(1.0,), variants={}, steps=5)


def scale(devices: int = 30_000_000, words_each: int = 20, listed: int = 200_000) -> None:
    """Streamed shards of devices whose words follow Zipf's law; every tenth types a word that nobody else does."""
    chances = np.cumsum(1 / np.arange(3, listed + 3))
    chances /= chances[-1]
    common = tuple(f"w{number}" for number in range(listed))
    size, generated, largest = 250_000, 0.0, 0.0

    def shards() -> Iterator[Shard]:
        nonlocal generated
        for first in range(0, devices, size):
            began = time.process_time()
            rng = np.random.default_rng(first)
            numbers = np.searchsorted(chances, rng.random((size, words_each))).astype(np.int32)
            own = np.arange(0, size, 10)
            numbers[own, 0] = listed + np.arange(len(own))
            distinct = common + tuple(f"own{first + device}" for device in own.tolist())
            typed = TypedWords(distinct, np.arange(size + 1) * words_each, numbers.ravel())
            generated += time.process_time() - began
            yield Shard(first, typed)

    config = central_of(1.0, 10)
    began = time.process_time()
    found = select(shards, devices, frozenset(), config, key_of(1)).words
    spent = time.process_time() - began - generated
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    wrong = sum(word.word.startswith("own") for word in found)
    print(f"{devices:,} devices of {words_each} words, at most 10 contributed, epsilon 1 at delta {DELTA:g}:")
    print(f"{len(found):,} of {listed:,} words found, {wrong} that one device alone typed")
    print(f"{spent:.0f} CPU s ({generated:.0f} more to make the devices up), at most {largest:.1f} GiB")


def main() -> None:
    """Print one table a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ("chat", "blogs", "sms", "synthetic", "millions", "scale", "pictures")
    parser.add_argument("parts", nargs="*", choices=[[], *known], default=[])
    parser.add_argument("--data", type=Path, help="folder of populations; left out, 'blogs' and 'sms' are not measured")
    options = parser.parse_args()
    parts = {"chat": chat, "synthetic": synthetic, "millions": millions, "scale": scale}
    if options.data:
        parts["blogs"] = lambda: brought(options.data / "en_blogs.parquet", "en-US")
        parts["sms"] = lambda: brought(options.data / "fr-FR_88milsms.parquet", "fr-FR")
    if options.parts == ["pictures"]:
        print(*words_pictures.write(), sep="\n")
        return
    for part in options.parts or list(parts):
        print(f"\n{part}")
        parts[part]()


if __name__ == "__main__":
    main()
