"""Sizes of a launch's vocabulary: from its public text, and from what its discovery can find. No device is read."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from discovery.outlook import Reach
from pretrain.config import C4Corpus, CorpusConfig, SampleCorpus
from pretrain.sources import open_stream
from pretrain.text import sentences

# A word that public text has less often is hardly learned: from about 8,000 words of the packaged text on, a larger
# vocabulary covers more of what people type and adds nothing to recall (``benchmarks/results/vocabulary.md``).
LEAST_TIMES = 12
_FEWEST, _STEP = 1_000, 100
# Words of public text that are read, in some seconds; one document in ten is held out of the counts.
READ_WORDS, _HELD_OUT_OF = 2_000_000, 10
# New words are at most this share of the base: each costs as much as a base word.
_MOST_NEW, _FEWEST_NEW = 0.25, 200


# Words of public text with their times: those of nine documents in ten, those held out, and the number of all.
Counted = tuple[Counter[str], Counter[str], int]


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
    counted = counted_sample(public.source, locale) if isinstance(public, SampleCorpus) else _counted(public, locale)
    counts, held_out, total = counted
    # Text that goes on has a word as many times more often.
    longer = max(1.0, public.max_tokens / total) if total >= READ_WORDS else 1.0
    often = sum(times * longer >= LEAST_TIMES for times in counts.values())
    base = max(_FEWEST, min(most, often // _STEP * _STEP))
    known = {word for word, _ in counts.most_common(base)}
    covered = sum(times for word, times in held_out.items() if word in known) / max(held_out.total(), 1)
    limit = "the most that this model takes" if base == most else f"those that public text has {LEAST_TIMES} times"
    return base, f"{limit}, which cover {100 * covered:.0f}% of it"


def _counted(public: CorpusConfig, locale: str) -> Counted:
    counts, held_out, total = Counter[str](), Counter[str](), 0
    for number, document in enumerate(open_stream(public, locale, "train")):
        words = [word for sentence in sentences(document.text, locale) for word in sentence]
        (counts if number % _HELD_OUT_OF else held_out).update(words)
        total += len(words)
        if total >= READ_WORDS:
            break
    return counts, held_out, total


@cache
def counted_sample(source: Literal["sample", "sample-with-chat"], locale: str) -> Counted:
    """``_counted`` of packaged text, once for each process: it is pinned, and files may change."""
    return _counted(SampleCorpus(source=source, max_tokens=READ_WORDS), locale)
