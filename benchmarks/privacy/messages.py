"""Words that the packaged demo finds locally, by the messages of a device and their epsilon: as few as still find them.

    .venv/stages/bin/python -m benchmarks.privacy.messages [--seeds N] [--epsilons E ...] [--messages C ...]

The demo's own population, vocabulary and settings of discovery, each row over several public keys. 'epsilon' is what a
device loses to its messages; a few hundred devices a layer hide none of them. 'always' counts the words that every key
found. Epsilon of the whole launch is this and that of the noised releases. Takes under a minute of CPU.
"""

import argparse
import statistics
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.privacy.words import DEMO, People, key_of, real
from discovery import discover as trie
from discovery.config import TrieConfig
from discovery.coverage import coverage
from federated.config.population import ChitchatPopulation
from pipeline.config import load_launch


def found(people: People, config: TrieConfig, seed: int) -> set[str]:
    """Words of one discovery under a public key."""
    with tempfile.TemporaryDirectory() as folder:
        result = trie.discover(
            people.typed, known_words=people.known, alphabet=people.alphabet, config=config, key=key_of(seed),
            directory=Path(folder) / "layers",
        )  # fmt: skip
    return {word.word for word in result.words}


def main() -> None:
    """Print one row for each number of messages and each epsilon of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[6.0, 8.0])
    parser.add_argument("--messages", type=int, nargs="+", default=list(range(1, 11)))
    options = parser.parse_args()
    demo = load_launch(DEMO)
    assert isinstance(demo.private_text, ChitchatPopulation)
    assert isinstance(demo.discovery, TrieConfig)
    people = real(demo.private_text, demo.locale)
    held = set(people.typed.parted()[0].distinct)
    print(f"{len(people.typed):,} devices answer, {len(people.held_out):,} others measure coverage")
    names = ("epsilon0", "messages", "epsilon", "words", "false", "always", "coverage %")
    print(
        "".join(f"{name:>{width}}" for name, width in zip(names, (8, 10, 9, 15, 6, 8, 19), strict=True)), "most often"
    )
    for epsilon0 in options.epsilons:
        for messages in options.messages:
            config = demo.discovery.model_copy(update={"epsilon0": epsilon0, "messages_per_device": messages})
            runs = [found(people, config, seed) for seed in range(options.seeds)]
            often = Counter(word for run in runs for word in run)
            sizes, shares = [len(run) for run in runs], [100 * coverage(run, people.held_out, 0.95)[0] for run in runs]
            print(
                f"{epsilon0:>8g}{messages:>10}{epsilon0 * messages:>9g}"
                f"{statistics.mean(sizes):>7.1f} ({min(sizes):>2}-{max(sizes):>2})"
                f"{statistics.mean(len(run - held) for run in runs):>6.1f}"
                f"{sum(times == options.seeds for times in often.values()):>8}"
                f"{statistics.mean(shares):>7.1f} ({min(shares):>4.1f}-{max(shares):>4.1f})"
                f"  {' '.join(word for word, _ in often.most_common(5))}",
                flush=True,
            )


if __name__ == "__main__":
    main()
