"""Word discovery: honest messages per second, words found on a public population, and the paper's scale.

    .venv/stages/bin/python -m benchmarks.privacy.discovery [speed] [words] [scale] [passes] [--devices 360000]
        [--figures DIR]

'speed' builds an environment of its own in build/bench-ldpy for multi-freq-ldpy. 'words' types words of
wordfreq's English list by their frequency: 8,000 targets, devices with 160 words on average. 'passes' compares one
pass with several (Sun & Sun 2024, table 1) at equal epsilon: a million devices of 16 words. Seconds are CPU seconds of
one thread. Figures go to DIR.
"""

import argparse
import resource
import statistics
import string
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
import wordfreq
from scipy import optimize

from discovery import discover as trie
from discovery import outlook
from discovery.config import TrieConfig
from discovery.device.answer import END, Question
from discovery.device.typed import TypedWords
from discovery.device.votes import merge, votes_of_shard
from discovery.results import DiscoveryResult
from discovery.trie import certify, question_of
from reports.figures.discovery import domain_and_noise, words_by_layer

KEY = bytes(range(32))  # public numbers need no secret
PEER = "multi-freq-ldpy==0.2.5"
PEER_CODE = """
import sys, time
from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Client
domain, epsilon, seconds = int(sys.argv[1]), float(sys.argv[2]), 3.0
SS_Client(0, domain, epsilon)
count, began = 0, time.process_time()
while time.process_time() - began < seconds:
    for _ in range(20):
        SS_Client(count % domain, domain, epsilon)
        count += 1
print(count / (time.process_time() - began))
"""
TARGETS, HEAD = 8_000, 100
PREFIXES_OF_THE_PAPER, LETTERS = 10_000, "".join(sorted(string.printable)) + END


def question(prefixes: int, epsilon0: float, contributions: int) -> Question:
    """A layer with 100 letters, the end among them."""
    letters = LETTERS.replace("\x0b", "")
    rows = sorted(a + b + c for a in letters[10:40] for b in letters[10:40] for c in letters[10:40])[:prefixes]
    config = TrieConfig(
        kind="ldp-triehh",
        epsilon0=epsilon0,
        delta=1e-10,
        messages_per_device=contributions,
        honest_share=1.0,
        layers=15,
        max_prefixes=prefixes,
    )
    return question_of(4, tuple(rows), letters, frozenset(), config)


def typists(asked: Question, devices: int, seed: int) -> TypedWords:
    """Devices with as many words that end in this layer as they may send, by Zipf's law."""
    rng, each = np.random.default_rng(seed), asked.config.messages_per_device
    words = min(asked.broadcast.none, 50_000)
    items = rng.choice(asked.broadcast.none, size=words, replace=False)
    typed = np.minimum(rng.zipf(1.3, size=devices * each) - 1, words - 1).astype(np.int32)
    distinct = tuple(asked.broadcast.candidate(item) for item in items.tolist())
    return TypedWords(distinct, np.arange(devices + 1) * each, typed)


def speed() -> None:
    """Messages a second, beside a peer in the same run."""
    peer = _peer()
    print(
        f"{'domain':>9}{'epsilon0':>10}{'k':>6}{'devices/s':>12}{'60 each: messages/s':>21}"
        f"{'peer devices/s':>16}{'ratio':>9}"
    )
    for prefixes, epsilon0 in ((10, 8.0), (100, 8.0), (1000, 8.0), (10_000, 8.0), (10_000, 10.0)):
        rates = []
        for contributions, devices in ((1, 200_000), (60, 8_000)):
            asked = question(prefixes, epsilon0, contributions)
            typed, group = typists(asked, devices, 0), np.arange(devices)
            votes_of_shard(asked, group, typed, KEY)  # compiles
            seen = []
            for _ in range(5):
                began = time.process_time()
                votes_of_shard(asked, group, typed, KEY)
                seen.append(devices * contributions / (time.process_time() - began))
            rates.append(statistics.median(seen))
        domain = asked.broadcast.domain
        theirs = float(subprocess.check_output([peer, "-c", PEER_CODE, str(domain), str(epsilon0)]))
        size = asked.randomizer.size
        print(
            f"{domain:>9}{epsilon0:>10g}{size:>6}{rates[0]:>12,.0f}{rates[1]:>21,.0f}"
            f"{theirs:>16,.0f}{rates[0] / theirs:>9,.0f}",
            flush=True,
        )


def _peer() -> str:
    folder = Path(__file__).resolve().parents[2] / "build" / "bench-ldpy"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PEER], check=True, stdout=sys.stderr)
    return str(python)


def population(devices: int, words_each: int = 200) -> tuple[TypedWords, dict[str, float]]:
    """Devices that type target words by frequency, and the weight of each target.

    Args:
      words_each: a device types a lognormal number of words with about this mean, up to twice as many.
    """
    listed = wordfreq.get_frequency_dict("en", wordlist="large")
    usable = set(string.printable) - set(string.whitespace)
    ranked = sorted(
        (word for word in listed if len(word) <= 14 and usable.issuperset(word)), key=lambda w: (-listed[w], w)
    )
    targets = ranked[HEAD : HEAD + TARGETS]
    weights = np.array([listed[word] for word in targets])
    weights /= weights.sum()
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(np.log(words_each) - 0.5, 1.0, size=devices).astype(np.int64), 2 * words_each)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    numbers = np.empty(starts[-1], dtype=np.int32)
    for first in range(0, len(numbers), 2**22):
        part = numbers[first : first + 2**22]
        part[:] = np.minimum(np.searchsorted(np.cumsum(weights), rng.random(len(part))), TARGETS - 1)
    return TypedWords(tuple(targets), starts, numbers), dict(zip(targets, weights.tolist(), strict=True))


def words(devices: int, figures: Path | None) -> None:
    """Coverage and false words by epsilon; each a full run of honest messages."""
    typed, weights = population(devices)
    print(
        f"{devices:,} devices, {len(typed.numbers) / devices:.0f} words each, {TARGETS:,} targets; "
        "15 layers, 10 messages a device, 1,500 prefixes"
    )
    print(
        f"{'epsilon0':>9}{'coverage %':>12}{'words':>7}{'false':>7}{'clones':>8}{'blanket':>9}{'attack':>8}{'CPU s':>7}"
    )
    best = None
    for epsilon0 in (4.0, 6.0, 8.0, 10.0):
        began = time.process_time()
        found = run(typed, epsilon0)
        share = sum(weights.get(word.word, 0.0) for word in found.words)
        false = sum(word.word not in weights for word in found.words)
        print(
            f"{epsilon0:>9g}{100 * share:>12.1f}"
            f"{len(found.words):>7}{false:>7}{found.epsilon_central:>8.3f}{found.epsilon_blanket:>9.3f}{found.epsilon_attack:>8.3f}"
            f"{time.process_time() - began:>7.0f}",
            flush=True,
        )
        if epsilon0 == 8.0:
            best = found
    if figures:
        figures.mkdir(parents=True, exist_ok=True)
        _draw(figures, best, weights)


def run(typed: TypedWords, epsilon0: float) -> DiscoveryResult:
    """One discovery from first device to last word."""
    config = TrieConfig(
        kind="ldp-triehh",
        epsilon0=epsilon0, delta=1e-10, messages_per_device=10, honest_share=1.0, layers=15, max_prefixes=1500,
    )  # fmt: skip
    return one_pass(typed, config, frozenset())


def passes(devices: int) -> None:
    """Coverage of one pass and of several at equal epsilon of a device after shuffling, half of the others honest.

    Each pass asks devices of its own, for words that the passes before it did not find. Fewer devices hide one less, so
    several passes take a lower local epsilon.
    """
    typed, weights = population(devices, 20)
    print(f"{devices:,} devices, {len(typed.numbers) / devices:.0f} words each; 15 layers, 1,500 prefixes, delta 5e-11")
    print(
        f"{'messages':>8} {'sampler':>8} {'passes':>7}{'epsilon0':>10}{'epsilon':>9}{'coverage %':>12}"
        f"{'words':>7}{'false':>7}{'CPU s':>7}"
    )
    for messages, epsilon0, sampler in ((1, 5.0, "random"), (1, 6.5, "random"), (5, 6.5, "random"), (5, 6.5, "greedy")):
        whole = TrieConfig(
            kind="ldp-triehh", epsilon0=epsilon0, delta=5e-11, messages_per_device=messages, honest_share=0.5,
            sampler=sampler, layers=15, max_prefixes=1_500,
        )  # fmt: skip
        goal = 0.0
        for count in (1, 2):
            began, found, lost = time.process_time(), frozenset[str](), []
            for part in np.array_split(np.random.default_rng(1).permutation(devices), count):
                config = _losing(whole, len(part), found, goal) if goal else whole
                result = one_pass(typed.take(part), config, found)
                found |= {word.word for word in result.words}
                lost.append((config.epsilon0, result.device_epsilon_central))
            goal = lost[0][1]
            share, false = sum(weights.get(word, 0.0) for word in found), sum(word not in weights for word in found)
            print(
                f"{messages:>8} {sampler:>8} {count:>7}{min(lost)[0]:>10.2f}{max(each for _, each in lost):>9.3f}"
                f"{100 * share:>12.1f}{len(found):>7}{false:>7}{time.process_time() - began:>7.0f}",
                flush=True,
            )


def _losing(config: TrieConfig, devices: int, known: frozenset[str], shuffled: float) -> TrieConfig:
    """The same discovery at the local epsilon with which a device loses ``shuffled`` after shuffling."""

    def asked(epsilon0: float) -> TrieConfig:
        return config.model_copy(update={"epsilon0": epsilon0})

    def above(epsilon0: float) -> float:
        return outlook.local(asked(epsilon0), devices, string.printable, known).shuffled - shuffled

    return asked(float(optimize.brentq(above, 1.0, config.epsilon0 + 0.1, rtol=1e-4)))


def one_pass(typed: TypedWords, config: TrieConfig, known: frozenset[str]) -> DiscoveryResult:
    """Discovery by these devices of words that are not known yet."""
    with tempfile.TemporaryDirectory() as folder:
        return trie.discover(
            typed,
            known_words=known,
            alphabet=string.printable,
            config=config,
            key=KEY,
            directory=Path(folder) / "layers",
        )


def _draw(folder: Path, found: DiscoveryResult, weights: dict[str, float]) -> None:
    false = dict.fromkeys((row.layer for row in found.rows), 0)
    for word in found.words:
        false[word.layer] += word.word not in weights
    pictures = {
        "words": words_by_layer([row.finished for row in found.rows], list(false.values())),
        "domain": domain_and_noise(
            [row.domain for row in found.rows], [row.noise / row.messages for row in found.rows]
        ),
    }
    for name, svg in pictures.items():
        # Alone in a file the picture has no page to take its namespace and colour from.
        alone = (
            svg
            if "xmlns=" in svg[: svg.index(">")]
            else svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
        )
        (folder / f"discovery-{name}.svg").write_text(alone.replace("currentColor", "#606060"), encoding="utf-8")


def scale() -> None:
    """One layer of the paper's en-US size: 500,000 devices of 60 messages, domain 1e6, epsilon0 10; streamed."""
    asked, shard = question(PREFIXES_OF_THE_PAPER, 10.0, 60), 25_000
    votes_of_shard(asked, np.arange(6_000), typists(asked, 6_000, 0), KEY)  # compiles
    spent, shards = 0.0, []
    for first in range(0, 500_000, shard):
        typed = typists(asked, shard, first)
        began = time.process_time()
        answered = votes_of_shard(asked, np.arange(first, first + shard), typed, KEY)
        shards = [merge(asked, [*shards, answered])]
        spent += time.process_time() - began
    began = time.process_time()
    bounds = certify(asked.randomizer, asked.config, 500_000 * 60)
    certified = time.process_time() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"500,000 devices, 30,000,000 messages, domain {asked.broadcast.domain:,}, "
        f"k {asked.randomizer.size}: {spent:.1f} s"
    )
    print(f"15 such layers on 2 cores, projected: {spent * 15 / 2 / 60:.0f} minutes")
    print(f"largest resident size of the process, all imports in it: {most:.0f} MB")
    print(f"certificates in {certified:.1f} s: " + ", ".join(f"{name} {value:.4f}" for name, value in bounds.items()))


def main() -> None:
    """Print one table a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], "speed", "words", "scale", "passes"], default=[])
    parser.add_argument("--devices", type=int, default=360_000)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--million", type=int, default=1_000_000, help="devices of 'passes'")
    options = parser.parse_args()
    parts = options.parts or ["scale", "speed", "words"]  # 'scale' first: its largest size is its own
    for part in parts:
        print(f"\n{part}")
        {
            "speed": speed,
            "scale": scale,
            "words": lambda: words(options.devices, options.figures),
            "passes": lambda: passes(options.million),
        }[part]()


if __name__ == "__main__":
    main()
