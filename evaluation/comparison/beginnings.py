"""Everyday beginnings: the first suggestions of arms after them, against words that are expected next.

The beginnings and the words are a fixed list (``beginnings.yaml``), so the table reads no text of a device: it is
post-processing of the arms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import yaml

from evaluation.arms.arm import NextWord
from evaluation.counts import SHOWN
from evaluation.inference import NUM_SPECIALS
from pretrain.text.vocabulary import UNK, Vocabulary

# Shown in place of a discovered word, which only the vocabulary's own files name.
NEW_WORD = "(new word)"


@dataclass(frozen=True)
class Beginning:
    """First suggestions after a beginning, by arm, and which of them are expected.

    Attributes:
      suggested: words by arm, likeliest first.
      expected: of these, the number that is expected next, by arm.
    """

    text: str
    suggested: dict[str, tuple[str, ...]]
    expected: dict[str, int]


def listed(locale: str) -> dict[str, frozenset[str]]:
    """Beginnings of a locale's language with the words that are expected next; {} for a language without a list."""
    return lists().get(locale.partition("-")[0], {})


@cache
def lists() -> dict[str, dict[str, frozenset[str]]]:
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return {
        language: {beginning: frozenset(words.split()) for beginning, words in each.items()}
        for language, each in yaml.safe_load(text).items()
    }


def judge(arms: Mapping[str, NextWord], vocabulary: Vocabulary, base_size: int, locale: str) -> tuple[Beginning, ...]:
    """Suggestions of each arm after every beginning of the locale's language.

    Args:
      vocabulary: of the arms; its words from ``base_size`` on were discovered and are not named.
    """
    rows = []
    for text, wanted in listed(locale).items():
        suggested, expected = {}, {}
        for name, arm in arms.items():
            ids = suggestions(arm, vocabulary, text)
            words = [vocabulary.words[number] for number in ids]
            expected[name] = sum(word in wanted for word in words)
            shown = zip(ids, words, strict=True)
            suggested[name] = tuple(word if number < base_size else NEW_WORD for number, word in shown)
        rows.append(Beginning(text, suggested, expected))
    return tuple(rows)


def suggestions(arm: NextWord, vocabulary: Vocabulary, text: str) -> list[int]:
    """Ids of the arm's likeliest next words at the start of a sentence, likeliest first; specials are no words."""
    log_probs_1V, state = arm.start([np.empty(0, dtype=np.int64)])
    for word in text.split():
        log_probs_1V, state = arm.step(np.array([vocabulary.index.get(word, UNK)]), state)
    order = np.argsort(-log_probs_1V[0, NUM_SPECIALS:], kind="stable")[:SHOWN] + NUM_SPECIALS
    return [int(number) for number in order]
