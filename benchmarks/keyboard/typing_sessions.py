"""Words a second of the typing simulator with a paper-size model over 10,000 words.

.venv/stages/bin/python -m benchmarks.keyboard.typing_sessions

CPU time of one thread. ``one at a time`` is the same code without other sentences in step. The text
is random (words by their public frequency), so that nothing here measures quality.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import wordfreq

from evaluation.arms.arm import NextWord, PublicNGram, neural
from evaluation.arms.held_out import HeldOut, held_out
from evaluation.arms.history import WithHistory
from evaluation.keyboard import script, sessions, typist
from pretrain.config import ModelConfig
from pretrain.model import build_model
from pretrain.ngrams.ngram import NGram
from pretrain.text import sentences
from pretrain.vocabulary import SPECIALS, Vocabulary
from pretrain.words import write_words
from tests.helpers.text.typed_text import stream

LOCALE, SIZE, DEVICES, REPEATS = "en-US", 10_000, 200, 3
# Phrases that need a second reading by the model cost time, so some must be asked for.
COMPOSE_THRESHOLD = float(np.log(0.3))


def population(folder: Path) -> tuple[Vocabulary, HeldOut]:
    """10,000 English words and devices that type them, one word in thirty in no vocabulary."""
    spelled = (line[0] for top in wordfreq.top_n_list("en", 16_000) for line in sentences(top, LOCALE)[:1])
    words = list(dict.fromkeys(spelled))[: SIZE - len(SPECIALS)]
    rng = np.random.default_rng(0)
    chance = 1 / np.arange(2, len(words) + 2)
    drawn = iter(rng.choice(len(words), p=chance / chance.sum(), size=200_000).tolist())
    unknown = iter((rng.random(200_000) < 1 / 30).tolist())

    def sentence() -> list[str]:
        return [words[next(drawn)] + ("zq" if next(unknown) else "") for _ in range(rng.integers(1, 20))]

    store = write_words(folder, [[sentence() for _ in range(10)] for _ in range(DEVICES)])
    return Vocabulary(SPECIALS + tuple(words)), held_out(store, np.arange(DEVICES), 12_000)


def rate(work: Callable[[], object], words: int) -> float:
    """Words per CPU second, the median of three."""
    spent = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return words / statistics.median(spent)


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, text = population(Path(folder))
    few = first_sentences(text, 60)
    model = build_model(ModelConfig(embedding_dim=96, hidden_dim=670, tied=True), len(vocabulary), 0)
    public = NGram.fit(stream(text, vocabulary), vocabulary, 3)
    entrants = {
        "n-gram": PublicNGram(public),
        "n-gram and history": WithHistory(PublicNGram(public), 0.2),
        "CIFG-LSTM 96, 670": neural(model),
        "CIFG-LSTM and history": WithHistory(neural(model), 0.2),
    }
    scripts = [script.prepare(some, vocabulary, LOCALE, typist.MEDIAN, 1) for some in (text, few)]
    print(f"{len(vocabulary)} words in the vocabulary, {len(text.word_P)} typed by {text.devices} devices")
    prepared = rate(lambda: script.prepare(text, vocabulary, LOCALE, typist.MEDIAN, 1), len(text.word_P))
    print(f"touches and their readings, once for all arms: {prepared:,.0f} words/s")
    print(f"{'arm':<24}{'one at a time/s':>16}{'in step/s':>12}{'ratio':>8}{'with touches/s':>16}")
    for name, arm in entrants.items():

        def run(some: int, batch: int, arm: NextWord = arm) -> sessions.Session:
            return sessions.simulate(
                scripts[some], (text, few)[some], arm, compose_threshold=COMPOSE_THRESHOLD, batch_sentences=batch
            )

        run(1, 1)  # compiles
        slow = rate(lambda: run(1, 1), len(few.word_P))
        fast = rate(lambda: run(0, 256), len(text.word_P))
        print(f"{name:<24}{slow:>16,.0f}{fast:>12,.0f}{fast / slow:>8.1f}{1 / (1 / fast + 1 / prepared):>16,.0f}")


def first_sentences(text: HeldOut, count: int) -> HeldOut:
    """The first sentences, for what is slow."""
    words = text.word_P[: int(text.lengths_S[:count].sum())]
    starts, lengths, device = (each[:count] for each in (text.starts_S, text.lengths_S, text.device_S))
    return replace(text, word_P=words, starts_S=starts, lengths_S=lengths, device_S=device)


if __name__ == "__main__":
    main()
