"""Sizes of a launch's vocabulary: from its public text, and from what its discovery can find. No device is read."""

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from discovery.outlook import Reach
from pretrain.config import C4Corpus, CorpusConfig, SampleCorpus
from pretrain.text.sources import open_stream
from pretrain.text.tokenise import sentences
from pretrain.text.vocabulary import SPECIALS

# A word that public text has less often is hardly learned: from about 8,000 words of the packaged text on, a larger
# vocabulary covers more of what people type and adds nothing to recall (``benchmarks/results/vocabulary.md``).
LEAST_TIMES = 12
_FEWEST, _MOST, _STEP = 1_000, 20_000, 100
_FEWEST_ROWS = 8  # of ``vocabulary.base_size``
# Words of public text that are read, in some seconds; one document in ten is held out of the counts.
READ_WORDS, _HELD_OUT_OF = 2_000_000, 10
# New words are at most this share of the base: each costs as much as a base word.
_MOST_NEW, _FEWEST_NEW = 0.25, 200
# Counts of packaged text, which ``init`` would take ten seconds to make.
PACKAGED = Path(__file__).with_name("packaged_words.json")
PACKAGED_TEXTS = (("sample", "en"), ("sample", "es"), ("sample", "fr"), ("sample-with-chat", "en"))


@dataclass(frozen=True)
class WordCounts:
    """Words of public text.

    Attributes:
      words: number of all words that were read.
      different: number of different ones.
      often: number of words that it has ``LEAST_TIMES`` times.
      covered: percentages of held-out documents that its 0, 100, 200, ... most frequent words cover.
    """

    words: int
    different: int
    often: int
    covered: Sequence[int]


@dataclass(frozen=True)
class VocabularySizes:
    """Proposal for ``vocabulary.base_size`` and ``vocabulary.max_new_words``, with its reason."""

    base: int
    new: int
    reason: str


def propose(public: CorpusConfig, locale: str, most: int, finds: Callable[[int], Reach]) -> VocabularySizes:
    """Propose both sizes.

    Args:
      most: largest base vocabulary of the model.
      finds: forecast of the discovery beyond a base vocabulary of so many words.

    Raises:
      ValueError: as ``open_stream``.
    """
    if isinstance(public, C4Corpus):
        base, why = most, "as many as this model takes; C4 has each of them many times"
    else:
        base, why = _base(public, locale, most)
    reach = finds(base)
    new = max(_FEWEST_NEW, min(round_up(reach.most), int(_MOST_NEW * base)))
    room = "max_new_words leaves room for all that discovery may add"
    return VocabularySizes(base, new, f"Vocabulary: {base:,} words, {why}; {room}: it {found(reach)}.")


def round_up(words: int) -> int:
    """Round up to hundreds."""
    return -(-words // _STEP) * _STEP


def found(reach: Reach) -> str:
    """Verb phrase: what a discovery finds, and how much that may be."""
    few, many = reach.shares
    if few >= 1:
        return "finds at most words that all devices hold"
    crowded = "" if many == few else f", or {_percent(many)} where each holds many unknown words"
    low, high = (float(f"{100 * part:.2g}") for part in (reach.least_coverage, reach.most_coverage))
    return (
        f"finds a word that {_percent(few)} of devices hold{crowded}: about {reach.least:,} to {reach.most:,} new "
        f"words, {low:g} to {high:g}% of what people type"
    )


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g}%"


def _base(public: CorpusConfig, locale: str, most: int) -> tuple[int, str]:
    """Base vocabulary, and why: the words that public text has often enough, and what they cover of the rest of it."""
    counted = (
        _packaged(public.source, locale) if isinstance(public, SampleCorpus) else _read(public, locale, READ_WORDS)
    )
    every = counted.different + len(SPECIALS)
    if every <= _FEWEST:
        return max(every, _FEWEST_ROWS), "all of public text"
    base = max(_FEWEST, min(most, counted.often // _STEP * _STEP))
    limit = "the most that this model takes" if base == most else f"those that public text has {LEAST_TIMES} times"
    return base, f"{limit}, which cover {counted.covered[min(base // _STEP, len(counted.covered) - 1)]}% of it"


def _packaged(source: str, locale: str) -> WordCounts:
    """Counts of packaged text, which is pinned: they are in a file beside this one (``python -m`` writes it)."""
    language = locale.partition("-")[0]
    return WordCounts(**json.loads(PACKAGED.read_text(encoding="utf-8"))[source][language])


def _read(public: CorpusConfig, locale: str, most: float) -> WordCounts:
    counts, held_out, total = Counter[str](), Counter[str](), 0
    for number, document in enumerate(open_stream(public, locale, "train")):
        words = [word for sentence in sentences(document.text, locale) for word in sentence]
        (counts if number % _HELD_OUT_OF else held_out).update(words)
        total += len(words)
        if total >= most:
            break
    # Text that goes on has a word as many times more often.
    longer = max(1.0, public.max_tokens / total) if total >= most else 1.0
    ordered = [word for word, _ in counts.most_common(_MOST)]
    seen = [0, *accumulate(held_out[word] for word in ordered)]
    full = max(held_out.total(), 1)
    covered = tuple(round(100 * seen[place] / full) for place in range(0, len(seen), _STEP))
    often = sum(times * longer >= LEAST_TIMES for times in counts.values())
    return WordCounts(total, len(counts | held_out), often, covered)


def count_packaged(source: str, language: str) -> WordCounts:
    """Count a packaged text in full."""
    every = SampleCorpus.model_validate({"source": source, "max_tokens": 10**9})
    return _read(every, language, math.inf)


if __name__ == "__main__":
    rows: dict[str, dict[str, object]] = {"sample": {}, "sample-with-chat": {}}
    for source, language in PACKAGED_TEXTS:
        rows[source][language] = vars(count_packaged(source, language))
    sys.stdout.write(json.dumps(rows) + "\n")
