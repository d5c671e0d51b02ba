"""How often an arm is right about held-out words, as the benchmarks' tables show it."""

from dataclasses import dataclass

import numpy as np

from evaluation.arms.arm import NextWord
from evaluation.arms.held_out import HeldOut
from evaluation.comparison.scoring import score
from pretrain.vocabulary import Vocabulary


@dataclass(frozen=True)
class Recalls:
    """Recalls in percent of all words typed; words outside the vocabulary are misses.

    Attributes:
      first, rest: top-1 of the first word of a sentence, and of the words after it.
      distinct: different words that stand first somewhere.
    """

    top1: float
    top3: float
    first: float
    rest: float
    distinct: int


def recalls(arm: NextWord, text: HeldOut, vocabulary: Vocabulary) -> Recalls:
    """Judge an arm on everything that held-out people typed."""
    scored = score(arm, text, text.ids(vocabulary), workers=1)
    begins_P, right_P = text.place_P == 0, scored.rank_P < 1
    return Recalls(
        top1=_percent(right_P),
        top3=_percent(scored.rank_P < 3),
        first=_percent(right_P[begins_P]),
        rest=_percent(right_P[~begins_P]),
        distinct=len(set(scored.first_P.tolist())),
    )


def _percent(true_P: np.ndarray) -> float:
    return 100 * float(np.mean(true_P)) if len(true_P) else 0.0
