"""Memory and time of the public n-gram as text grows.

    .venv/stages/bin/python -m benchmarks.speed.ngrams --work FOLDER [--millions 5 10 20 40] [--order 3] [--result FILE]

Text is made up: words follow one another by a Zipf law, half of them by habit, so that long contexts repeat; it has
more distinct trigrams than text of people, which is the worse case. Every size is measured in a process of its own;
``peak`` is its largest resident memory, the text and mapped files included.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.speed.memory_use import own_bytes, peak_bytes
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import EOS, SPECIALS, UNK, TokenStream, Vocabulary

VOCABULARY = 22_000
_PIECE, _SENTENCE, _HABIT = 1 << 22, 13, 0.6


def text(words: int, path: Path) -> np.ndarray:
    """int32 tokens, mapped from a file that is made if it is not there."""
    if not path.exists():
        partial = path.with_suffix(".partial")
        usual = VOCABULARY - UNK
        chance = 1 / np.arange(2, usual + 2)
        cumulative = np.cumsum(chance / chance.sum())
        with partial.open("wb") as file:
            for number, first in enumerate(range(0, words, _PIECE)):
                rng = np.random.default_rng((number, 0x6E6772616D))
                drawn = np.minimum(np.searchsorted(cumulative, rng.random(min(_PIECE, words - first))), usual - 1)
                for _ in range(2):  # What follows by habit follows what came by habit before it, too.
                    habit = rng.random(len(drawn)) < _HABIT
                    after = (np.roll(drawn, 1) * 7 + 1 + rng.integers(6, size=len(drawn)) ** 2) % usual
                    drawn = np.where(habit, np.minimum(after, drawn), drawn)
                tokens = drawn.astype("<i4") + UNK
                tokens[rng.random(len(tokens)) < 1 / _SENTENCE] = EOS
                tokens[-1] = EOS
                tokens.tofile(file)
        partial.replace(path)
    return np.memmap(path, dtype="<i4", mode="r")


def measured(words: int, order: int, work: Path) -> dict[str, float]:
    """Fit one, in this process."""
    tokens_N = np.array(text(words, work / f"{words}.bin"))  # in memory, as the stage has it
    vocabulary = Vocabulary(SPECIALS + tuple(f"w{number}" for number in range(VOCABULARY - len(SPECIALS))))
    began = time.process_time()
    fitted = NGram.fit(TokenStream(tokens_N, np.array([0, len(tokens_N)])), vocabulary, order, work)
    return {
        "tokens": len(tokens_N),
        "grams": [len(level.key_G) for level in fitted.levels],
        "cpu_seconds": time.process_time() - began,
        "peak_bytes": peak_bytes(),
        "own_bytes": own_bytes(),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--millions", type=int, nargs="+", default=[5, 10, 20, 40])
    parser.add_argument("--order", type=int, default=3)
    parser.add_argument("--result", type=Path)
    parser.add_argument("--one", action="store_true", help="of one process: print its numbers as JSON")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    if asked.one:
        print(json.dumps(measured(asked.millions[0] * 1_000_000, asked.order, asked.work)))
        return
    lines = ["| million tokens | peak, MiB | own, MiB | CPU s | distinct, by length |", "|---|---|---|---|---|"]
    for millions in asked.millions:
        text(millions * 1_000_000, asked.work / f"{millions * 1_000_000}.bin")
        command = [sys.executable, "-m", "benchmarks.speed.ngrams", "--work", str(asked.work), "--one"]
        command += ["--millions", str(millions), "--order", str(asked.order)]
        numbers = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        lines.append(
            f"| {millions} | {numbers['peak_bytes'] / 2**20:,.0f} | {numbers['own_bytes'] / 2**20:,.0f} | "
            f"{numbers['cpu_seconds']:,.1f} | {', '.join(f'{size:,}' for size in numbers['grams'])} |"
        )
        print(lines[-1], flush=True)
    if asked.result:
        with asked.result.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n\n")


if __name__ == "__main__":
    main()
