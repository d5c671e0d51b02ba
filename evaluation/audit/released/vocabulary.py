"""The audit of a vocabulary: its words, their frequencies and forms follow from released words and public text.

Written from the rule and not from the code that builds it, so that a vocabulary cannot hold anything else of people.

Shape legend: N added words.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from evaluation.audit.verdict import Verdict

# Standard errors from a share to the upper end of its interval.
_UPPER = 1.96
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ReleasedWord:
    """A word that left a discovery: its share, the upper end of its interval, and its written form."""

    share: float
    high: float
    form: str


@dataclass(frozen=True)
class BuiltVocabulary:
    """A vocabulary as it was published: all words, and frequency and form of each added one."""

    words: Sequence[str]
    frequency_N: Sequence[float]
    form_N: Sequence[str]


def vocabulary_audit(
    built: BuiltVocabulary,
    public: Sequence[str],
    released: Mapping[str, ReleasedWord],
    dropped: Collection[str] | None,
    most: int,
    factor: float,
    ceiling: float,
) -> tuple[Verdict, ...]:
    """Verdicts ``words`` and ``frequencies``.

    Args:
      public: words of the public vocabulary.
      dropped: released words that blocklist and filters drop; None where a person decided.
      most: largest number of added words.
      factor, ceiling: frequency of a word for each unit of its share, which is no larger than ``ceiling`` then.
    """
    added = tuple(built.words[len(public) :])
    new = [word for word in released if word not in frozenset(public)]
    ranked = sorted(new, key=lambda word: (-released[word].share, word))
    allowed = [word for word in ranked if (word in added if dropped is None else word not in dropped)]
    words = tuple(built.words[: len(public)]) == tuple(public) and added == tuple(allowed[:most])
    shown = (
        words
        and list(built.form_N) == [released[word].form for word in added]
        and len(built.frequency_N) == len(added)
        and all(
            abs(stated - min(_shrunk(released[word]) * factor, ceiling)) <= _ROUNDING * stated
            for word, stated in zip(added, built.frequency_N, strict=True)
        )
    )
    return (
        _verdict(
            "words",
            "the vocabulary is the public words, then the released words that filters or a person kept, most frequent "
            "first",
            words,
            "the vocabulary holds other words than those that were released, or leaves out some of them",
        ),
        _verdict(
            "frequencies",
            "frequency and form of each added word follow from its release",
            shown,
            "frequencies or forms of added words are not those of their release",
        ),
    )


def _shrunk(word: ReleasedWord) -> float:
    """Share, shrunk by its squared standard error (Thompson 1968)."""
    error = (word.high - word.share) / _UPPER
    return word.share / (1 + (error / word.share) ** 2) if word.share else 0.0


def _verdict(name: str, tested: str, passed: bool, otherwise: str) -> Verdict:
    return Verdict(name, tested, "one word; one part in 10^9", passed, "" if passed else otherwise)
