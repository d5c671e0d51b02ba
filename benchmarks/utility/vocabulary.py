"""Sizes of the base vocabulary, and words beyond it that so many people type.

OMP_NUM_THREADS=1 python -m benchmarks.utility.vocabulary FOLDER [--results FILE] [--work FOLDER]

FOLDER holds ``users/*.parquet`` as for ``benchmarks.utility.crossing``. One table has, by number of words, the coverage
of held-out public text and of held-out people, how often public text has the rarest word, and the top-1 recall of a
3-gram of the public text; a word outside the vocabulary is a miss. The other has the words that a discovery could add:
how many lie outside the base vocabulary and are typed by a share of the people, and what part of all that is typed; and
how many such words a person has typed who typed one of the thirty most frequent, as a central discovery weighs them.
``discovery.outlook`` forecasts from the second, and ``tacit init`` proposes sizes by both.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.utility import populations
from benchmarks.utility.populations import FOLDS, SEED, Population
from benchmarks.utility.recall import Arm, hits, words_typed
from pretrain.files import write_text
from pretrain.ngrams.ngram import NGram
from pretrain.text.corpus import Corpus
from pretrain.text.vocabulary import UNK, Vocabulary, from_counts, join_streams
from pretrain.text.words import WordStore

SIZES = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
RECALL_SIZES = SIZES[1:]
BASES = (4_000, 8_000, 20_000)
SHARES = (0.3, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001)
NAMES = ("sms-fr", "chat", "rooms", "blogs", "essays-es", "talk")
# People of whom a word is counted; held-out people whose recall is measured; people that make a share.
MOST_PEOPLE, RECALL_PEOPLE, FEWEST = 20_000, 150, 3
# Frequent words whose holders are looked at, and the first words of a person's text.
_FREQUENT, _FIRST_WORDS = 30, 400
_SEQUENCE_WORDS = 20


def main() -> None:
    """Measure every population, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/vocabulary.md"))
    parser.add_argument("--work", type=Path, default=Path("build/crossing"), help="private; made once")
    parser.add_argument("--populations", nargs="+", choices=sorted(populations.POPULATIONS), default=NAMES)
    chosen = parser.parse_args()
    lines = ["# Sizes of a vocabulary", ""]
    lines += ["Command: `python -m benchmarks.utility.vocabulary FOLDER`. Public text is the packaged text.", ""]
    for name in chosen.populations:
        population = populations.POPULATIONS[name]
        locale = "en-US" if population.locale == "en" else population.locale
        corpus = populations.public_text(locale, chosen.work)
        people = populations.text_of(population, chosen.folder, chosen.work)
        lines += measured(population, corpus, people)
        write_text(chosen.results, "\n".join(lines).rstrip() + "\n")


def measured(population: Population, corpus: Corpus, people: WordStore) -> list[str]:
    """Section of one population."""
    order_D = np.random.default_rng(SEED).permutation(len(people))
    held_D, rest_D = np.split(order_D, [population.held_out or len(people) // FOLDS])
    counts = corpus.counts()
    lines = [f"## {population.about.capitalize()}, {population.locale}", ""]
    lines += [f"{len(people):,} people; {sum(counts.values()):,} words of public text, {len(counts):,} different.", ""]
    lines += ["| words | rarest, times | public text | people | 3-gram, top-1 |", "|---|---|---|---|---|"]
    for size in SIZES:
        vocabulary = from_counts(counts, size)
        least = counts[vocabulary.words[-1]]
        recall = f"{_recall(corpus, people, held_D[:RECALL_PEOPLE], vocabulary):.2f}" if size in RECALL_SIZES else ""
        public, typed = public_coverage(corpus, vocabulary), coverage(people, held_D, vocabulary)
        lines.append(f"| {size:,} | {least:,} | {100 * public:.1f}% | {100 * typed:.1f}% | {recall} |")
    some_D = rest_D[:MOST_PEOPLE]
    lines += ["", f"Words beyond the vocabulary, and their part of all that {len(some_D):,} people type:", ""]
    shares = [share for share in SHARES if share * len(some_D) >= FEWEST]
    lines += [f"| typed by | {' | '.join(f'beyond {size:,}' for size in BASES)} |", f"|---|{'---|' * len(BASES)}"]
    held_by, uses, total = holders(people, some_D)
    vocabularies = [set(from_counts(counts, size).words) for size in BASES]
    for share in shares:
        cells = []
        for known in vocabularies:
            found = [word for word, by in held_by.items() if by >= share * len(some_D) and word not in known]
            cells.append(f"{len(found):,}: {100 * sum(uses[word] for word in found) / total:.1f}%")
        lines.append(f"| {100 * share:g}% | {' | '.join(cells)} |")
    crowds = " | ".join(f"{crowd(people, some_D, known):.0f}" for known in vocabularies)
    lines.append(f"| such words of a person | {crowds} |")
    return [*lines, ""]


def public_coverage(corpus: Corpus, vocabulary: Vocabulary) -> float:
    """Share of the words of held-out public text that a vocabulary has."""
    counts: Counter[str] = Counter()
    for store in corpus.validation:
        counts.update(store.word_counts())
    return sum(count for word, count in counts.items() if word in vocabulary.index) / counts.total()


def coverage(people: WordStore, chosen_D: np.ndarray, vocabulary: Vocabulary) -> float:
    """Share of the words of these people that a vocabulary has."""
    tokens_N = people.encode(vocabulary, chosen_D).tokens_N
    return float((tokens_N > UNK).sum() / (tokens_N >= UNK).sum())


def holders(people: WordStore, chosen_D: np.ndarray) -> tuple[Counter[str], Counter[str], int]:
    """Number of these people who type each word, how often they do, and the number of all their words."""
    held_by, uses = np.zeros((2, len(people.lexicon) + 1), dtype=np.int64)
    for person in chosen_D:
        words, times = np.unique(people.owner(person), return_counts=True)
        held_by[words] += 1
        uses[words] += times
    named = [Counter(dict(zip(people.lexicon, each[1:].tolist(), strict=True))) for each in (held_by, uses)]
    return named[0], named[1], int(uses[1:].sum())


def crowd(people: WordStore, chosen_D: np.ndarray, known: set[str]) -> float:
    """Distinct words outside a vocabulary on a device that holds a frequent one: ``1 / E[1 / sqrt(number)]^2``."""
    outside_V = np.array([False, *(word not in known for word in people.lexicon)])
    held_V, weight_V = np.zeros((2, len(outside_V)))
    for person in chosen_D:
        words = np.unique(people.owner(person)[:_FIRST_WORDS])
        if (words := words[outside_V[words]]).size:
            held_V[words] += 1
            weight_V[words] += words.size**-0.5
    frequent = np.argsort(-held_V)[:_FREQUENT]
    return float((held_V[frequent].sum() / weight_V[frequent].sum()) ** 2)


def _recall(corpus: Corpus, people: WordStore, chosen_D: np.ndarray, vocabulary: Vocabulary) -> float:
    """Top-1 recall in percent of a 3-gram of the public text."""
    public = join_streams([store.encode(vocabulary) for store in corpus.train])
    typed = people.encode(vocabulary, chosen_D)
    (right_D,) = hits(typed, [Arm(None, NGram.fit(public, vocabulary, 3))], _SEQUENCE_WORDS)
    return 100 * float(right_D.sum() / words_typed(typed).sum())


if __name__ == "__main__":
    main()
