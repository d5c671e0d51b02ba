"""Slices of held-out words by user and word, a model's reliance on frequent words, and its variety.

Shape legend: P words, D devices, W different right words, N words of a sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.comparison.scoring import Scores
from evaluation.config import RARE_AFTER, VARIETY_WORDS
from evaluation.inference import NUM_SPECIALS
from pretrain.text.vocabulary import UNK

HEADS = (10, 100, 1000)


def masks(
    id_P: np.ndarray, device_P: np.ndarray, devices: int, base_size: int, launch_size: int, rare_after: int = RARE_AFTER
) -> dict[str, np.ndarray]:
    """Boolean ``[P]`` by slice; empty slices are left out.

    Args:
      id_P: ids in the comparison's vocabulary. Ids below ``base_size`` are in order of public frequency;
        ids from there on are discovered words.
      launch_size: ids from here on are not words of the launch, but of an arm with a vocabulary of its own.
      rare_after: words of the public vocabulary beyond this many are rare.

    ``heavy_users`` are the devices above the upper quartile of words typed, ``light_users`` those
    at or below the median, among devices with words.
    """
    words_D = np.bincount(device_P, minlength=devices)
    speaking = words_D[words_D > 0]
    upper, middle = (np.quantile(speaking, share) if len(speaking) else 0 for share in (0.75, 0.5))
    chosen = {
        "all": np.ones(len(id_P), dtype=bool),
        "rare_words": (id_P >= NUM_SPECIALS + rare_after) & (id_P < base_size),
        "new_words": (id_P >= base_size) & (id_P < launch_size),
        "unknown_words": id_P == UNK,
        "heavy_users": words_D[device_P] > upper,
        "light_users": words_D[device_P] <= middle,
    }
    return {name: mask_P for name, mask_P in chosen.items() if mask_P.any()}


@dataclass(frozen=True)
class HeadShare:
    """Shares of the ``words`` most frequent words among typed words, first candidates, and right first candidates.

    ``typed`` is a share of in-vocabulary words; ``predicted`` and ``right`` are shares of first candidates.
    """

    arm: str
    words: int
    typed: float
    predicted: float
    right: float


def head_words(arm: str, scored: Scores, heads: Sequence[int] = HEADS) -> list[HeadShare]:
    """Cumulative histogram over frequency ranks, in the manner of McMahan et al. 2018, table 3.

    A model trained with noise may fall back on frequent words: then ``predicted`` grows beyond the
    non-private arm's although recall hardly moves.
    """
    known_P = scored.id_P != UNK
    right_P = known_P & (scored.rank_P < 1)

    def share(ids: np.ndarray, words: int) -> float:
        return float(np.mean(ids < NUM_SPECIALS + words)) if len(ids) else 0.0

    return [
        HeadShare(
            arm=arm,
            words=words,
            typed=share(scored.id_P[known_P], words),
            predicted=share(scored.first_P, words),
            right=share(scored.id_P[right_P], words),
        )
        for words in heads
    ]


def variety(scored: Scores) -> float:
    """Expected number of different words that an arm suggests first and people typed, in ``VARIETY_WORDS`` typed words.

    Rarefaction (Hurlbert 1971): of P words, n random ones leave out all c that the arm has right by one suggestion with
    probability ``C(P - c, n) / C(P, n)``. So its expectation depends neither on the amount of text nor on suggestions
    that are wrong, of which noise makes many different ones. With fewer than n words it is the number on all of them.
    """
    right_P = (scored.id_P != UNK) & (scored.rank_P < 1)
    _, times_W = np.unique(scored.id_P[right_P], return_counts=True)
    words = len(scored.id_P)
    left_N = words - np.arange(min(VARIETY_WORDS, words))
    absent_W = np.prod(np.maximum(left_N - times_W[:, None], 0) / left_N, axis=1)
    return float(np.sum(1 - absent_W))
