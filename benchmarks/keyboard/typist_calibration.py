"""Simulated typists beside what studies measured, and keystrokes saved by models of known quality.

.venv/stages/bin/python -m benchmarks.keyboard.typist_calibration [USERS.parquet]

Everything comes out of packages: the models learn public English text, typed chat is typed again
(chitchat-dataset, or ``client_id, text`` of the Parquet file). ``random`` knows nothing: every word is as
likely as the next, in no order. Prints Markdown; two minutes on one core.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.arms.arm import NextWord, PublicNGram
from evaluation.arms.held_out import HeldOut, held_out
from evaluation.keyboard import layouts, published, script, sessions, touch, typist
from federated.config.population import ChitchatPopulation, FilePopulation, PopulationConfig
from federated.devices import store as population
from pretrain.ngrams.ngram import NGram
from pretrain.packaged import documents, packaged_texts
from pretrain.text import sentences
from pretrain.vocabulary import SPECIALS, Vocabulary, from_counts, join_streams
from pretrain.words import write_words

LOCALE, SEED = "en-US", 1
PUBLIC_WORDS, VOCABULARY, TYPED_WORDS = 1_000_000, 8000, 12_000
# The arm whose top-3 recall is nearest to the 18 to 19% of Ramaswamy et al. 2020.
GOOD = "public trigram"


@dataclass(frozen=True)
class Fixed:
    """An arm that says the same whatever was typed before."""

    log_probs_V: np.ndarray

    @property
    def vocabulary_size(self) -> int:
        """Words of its vocabulary."""
        return len(self.log_probs_V)

    def start(self, earlier_B: Sequence[np.ndarray]) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        return np.tile(self.log_probs_V, (len(earlier_B), 1)), None

    def step(self, words_B: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        return np.tile(self.log_probs_V, (len(words_B), 1)), None

    def rows(self, state: Any, rows_B: np.ndarray) -> Any:
        """See ``NextWord``."""
        return None


def main() -> None:
    """Train, type, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("users", type=Path, nargs="?")
    users = parser.parse_args().users
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, text, arms = prepare(users, Path(folder), PUBLIC_WORDS, TYPED_WORDS)
    print(f"{len(text.word_P):,} words of {len(np.unique(text.device_S))} devices, {len(vocabulary):,} words known.")
    print("\n".join(numbers_of_calibrations()))
    runs = {}
    for calibration in typist.CALIBRATIONS:
        typed = script.prepare(text, vocabulary, LOCALE, calibration, SEED)
        for arm, model in arms.items():
            run = sessions.simulate(typed, text, model)
            rates = {name: float(n.sum() / d.sum()) for name, (n, d) in run.ratios().items() if d.sum()}
            runs[calibration.name, arm] = published.measure(run, typed, text) | rates
    print("\n".join(against_studies(runs, missed_touches(text, vocabulary))))
    print("\n".join(by_arm(runs, list(arms))))
    print(f"\nCPU time of one thread: {time.process_time() - began:.0f} s.")


def prepare(
    users: Path | None, folder: Path, public_words: int, typed_words: int
) -> tuple[Vocabulary, HeldOut, dict[str, NextWord]]:
    """The vocabulary, what is typed, and the arms, worst first."""
    public = write_words(folder / "public", _public(public_words))
    vocabulary = from_counts(public.word_counts(), VOCABULARY)
    config: PopulationConfig = ChitchatPopulation(
        source="chitchat", name="typed", max_words_per_device=400, test_fraction=0.2
    )
    if users:
        shape = config.model_dump(exclude={"source"})
        config = FilePopulation(source="files", paths=(str(users),), **shape)
    population.build_store(config, LOCALE, SEED, folder / "store")
    store = population.open_store(folder / "store")
    stream = public.encode(vocabulary)
    both = join_streams([stream, store.encode(vocabulary, "train")])
    jitter_V = np.random.default_rng(SEED).uniform(0, 1e-6, len(vocabulary))
    arms: dict[str, NextWord] = {
        "random": Fixed(jitter_V - np.log(len(vocabulary))),
        "public unigram": PublicNGram(NGram.fit(stream, vocabulary, 1)),
        "public bigram": PublicNGram(NGram.fit(stream, vocabulary, 2)),
        GOOD: PublicNGram(NGram.fit(stream, vocabulary, 3)),
        "trigram with training devices": PublicNGram(NGram.fit(both, vocabulary, 3)),
    }
    return vocabulary, held_out(store.words, store.devices("test"), typed_words), arms


def missed_touches(text: HeldOut, vocabulary: Vocabulary) -> dict[str, float]:
    """Share of touches nearest to another key, by calibration, before anything is taken back."""
    keys = layouts.keyboard(LOCALE, "".join({*"".join(text.spellings), *"".join(vocabulary.words[len(SPECIALS) :])}))
    own_A = touch.nearest(keys, keys.x_A, keys.y_A)
    meant = np.concatenate([keys.spell(text.spellings[word]) for word in text.word_P])
    shares = {}
    for calibration in typist.CALIBRATIONS:
        patient = calibration.model_copy(update={"notice_key": 1e-12, "slip": 1e-12})
        traits = typist.draw(patient, text.devices, SEED)
        touches = touch.type_words(text, keys, patient, traits, SEED)
        shares[calibration.name] = float(np.mean(touch.nearest(keys, touches.x_T, touches.y_T) != own_A[meant]))
    return shares


def numbers_of_calibrations() -> Iterator[str]:
    """The table of the calibrations' own numbers."""
    yield "\n## What a typist is given\n"
    yield "| | " + " | ".join(calibration.name for calibration in typist.CALIBRATIONS) + " | source |"
    yield "|---" * (len(typist.CALIBRATIONS) + 2) + "|"
    for field, source in published.FIELDS.items():
        values = [f"{getattr(calibration, field):g}" for calibration in typist.CALIBRATIONS]
        yield f"| {field} | {' | '.join(values)} | {source} |"


def against_studies(runs: Mapping[tuple[str, str], Mapping[str, float]], missed: Mapping[str, float]) -> Iterator[str]:
    """The table of what follows, each beside its range."""
    names = [calibration.name for calibration in typist.CALIBRATIONS]
    yield f"\n## What follows, with the {GOOD}\n"
    yield "| | " + " | ".join(names) + " | averages of studies | person to person |"
    yield "|---" * (len(names) + 3) + "|"
    for each in published.RANGES:
        values = {name: runs[name, GOOD][each.name] for name in names}
        cells = [f"{value:.4g} {'in' if each.holds(value, name) else 'OUT'}" for name, value in values.items()]
        ranges = f"{each.low:g} to {each.high:g} | {each.person_low:g} to {each.person_high:g}"
        yield f"| {each.name} | {' | '.join(cells)} | {ranges} |"
    yield f"| touches on another key | {' | '.join(f'{missed[name]:.4f}' for name in names)} | 0.08 to 0.09 | |"


def by_arm(runs: Mapping[tuple[str, str], Mapping[str, float]], arms: Sequence[str]) -> Iterator[str]:
    """Tables of the arms, worst first."""
    shown = ("strip_accuracy", "prate", "keystroke_savings", "words_modified", "errors_left", "words_per_minute")
    for calibration in typist.CALIBRATIONS:
        yield f"\n## Arms, {calibration.name}\n"
        yield "| arm | " + " | ".join(shown) + " | speed_change |"
        yield "|---" * (len(shown) + 2) + "|"
        for arm in arms:
            run = runs[calibration.name, arm]
            cells = [f"{run[name]:.1f}" if run[name] > 1 else f"{100 * run[name]:.2f}%" for name in shown]
            yield f"| {arm} | {' | '.join(cells)} | {100 * run['speed_change']:+.1f}% |"


def _public(words: int) -> Iterator[list[list[str]]]:
    left = words
    for _, document in documents(packaged_texts(LOCALE)):
        cut = sentences(document, LOCALE)
        left -= sum(map(len, cut))
        yield cut
        if left <= 0:
            return


if __name__ == "__main__":
    main()
