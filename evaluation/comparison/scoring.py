"""Scores of an arm on every held-out word, given the true words before it: rank, loss and first candidate.

Shape legend: P words, S sentences, B sentences in step, V vocabulary, D devices.

Definitions (Ramaswamy et al. 2020 for recall, Xu et al. 2023 for in-vocabulary accuracy):
every typed word is a target, the end of a sentence is not; the context is the true sentence
so far; the candidates are all words of the vocabulary, never a special. A target outside the
vocabulary is a miss for recall and is left out of in-vocabulary accuracy and cross-entropy.
Scores are kept by word, so that slices and head-word histograms need no second pass. Smart Compose is
scored here as well: the phrase that the arm would offer before each word, its sureness, and its
correctness.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evaluation.arms.arm import NextWord
from evaluation.arms.held_out import HeldOut, Ratio
from evaluation.keyboard import strip
from evaluation.keyboard.sessions import PHRASE_WORDS, batches, earlier, for_all, sureness
from pretrain import progress
from pretrain.text.vocabulary import UNK

MISS = np.iinfo(np.int32).max
# A share of fewer phrases than this is too noisy.
_FEWEST = 20


@dataclass(frozen=True)
class Scores:
    """Scores of an arm at each held-out word, all ``[P]``. Private.

    Attributes:
      device_P: int64. id_P: int64, ``<unk>`` for a word outside the vocabulary.
      rank_P: int64, candidates before the word; ``MISS`` outside the vocabulary or without a chance.
      loss_P: float64, nats; 0 outside the vocabulary, infinite without a chance.
      first_P: int64, the first candidate.
      sure_P: float64, sureness of the phrase offered before the word; ``-inf`` without one
        (not requested, below the floor, or one word left).
      phrase_P: bool, that phrase equals the typed words.
      devices: number of devices.
    """

    device_P: np.ndarray
    id_P: np.ndarray
    rank_P: np.ndarray
    loss_P: np.ndarray
    first_P: np.ndarray
    sure_P: np.ndarray
    phrase_P: np.ndarray
    devices: int

    def ratios(self, chosen_P: np.ndarray | None = None) -> dict[str, Ratio]:
        """Numerator and denominator of each metric by device, over chosen words (all if None).

        A word with probability 0 counts as outside the arm's vocabulary. Cross-entropy is in nats.
        """
        keep_P = np.ones(len(self.id_P), dtype=bool) if chosen_P is None else chosen_P
        known_P = keep_P & (self.id_P != UNK) & np.isfinite(self.loss_P)

        def count(of_P: np.ndarray) -> np.ndarray:
            return np.bincount(self.device_P[of_P], minlength=self.devices)

        words_D, known_words_D = count(keep_P), count(known_P)
        top1_D, top3_D = (count(known_P & (self.rank_P < candidates)) for candidates in (1, strip.SHOWN))
        loss_D = np.bincount(self.device_P[known_P], weights=self.loss_P[known_P], minlength=self.devices)
        return {
            "top1_recall": (top1_D, words_D),
            "top3_recall": (top3_D, words_D),
            "invocab_accuracy": (top1_D, known_words_D),
            "cross_entropy": (loss_D, known_words_D),
        }


def score(
    arm: NextWord,
    text: HeldOut,
    id_P: np.ndarray,
    *,
    compose_floor: float | None = None,
    batch_sentences: int = 256,
    workers: int = 1,
    advance: Callable[[float], None] = progress.nothing,
) -> Scores:
    """Score every held-out word under an arm, reading each sentence once.

    Args:
      id_P: ids of the text's words in the comparison's vocabulary.
      compose_floor: also look for phrases at least this sure (nats); None does not.
      batch_sentences, workers: change memory and time, not the result.
      advance: progress callback, called with the number of newly scored words.

    Raises:
      ValueError: an id outside the arm's vocabulary.
      ArithmeticError: the arm's numbers are not finite.
    """
    if len(id_P) and int(id_P.max()) >= arm.vocabulary_size:
        raise ValueError(
            f"id_P: {int(id_P.max())} is outside the arm's vocabulary of {arm.vocabulary_size}; "
            "encode the text with the comparison's vocabulary and give it to every arm"
        )
    rank_P, first_P = np.full(len(id_P), MISS, dtype=np.int64), np.zeros(len(id_P), dtype=np.int64)
    loss_P, sure_P = np.zeros(len(id_P)), np.full(len(id_P), -np.inf)
    phrase_P = np.zeros(len(id_P), dtype=bool)

    def run(batch_B: np.ndarray) -> None:
        lengths_B, starts_B = text.lengths_S[batch_B], text.starts_S[batch_B]
        log_probs_BV, state = arm.start(earlier(id_P, text, batch_B))
        for place in range(int(lengths_B.max())):
            going = int(np.count_nonzero(lengths_B > place))
            if going < len(log_probs_BV):
                log_probs_BV, state = log_probs_BV[:going], arm.rows(state, np.arange(going))
            word_B = starts_B[:going] + place
            meant_B = id_P[word_B]
            rank_P[word_B], first_P[word_B] = strip.ranks(log_probs_BV, meant_B), strip.first(log_probs_BV)
            loss_P[word_B] = -log_probs_BV[np.arange(going), meant_B]
            if compose_floor is not None:
                ask = np.flatnonzero(lengths_B[:going] - place >= PHRASE_WORDS)
                sure_B, phrase_B2 = sureness(arm, log_probs_BV[ask], arm.rows(state, ask), compose_floor)
                asked = word_B[ask]
                sure_P[asked] = sure_B
                phrase_P[asked] = (phrase_B2[:, 0] == id_P[asked]) & (phrase_B2[:, 1] == id_P[asked + 1])
            if np.any(lengths_B > place + 1):
                log_probs_BV, state = arm.step(meant_B, state)
        advance(float(lengths_B.sum()))

    for_all(batches(text.lengths_S, batch_sentences), run, workers)
    unknown_P = id_P == UNK
    rank_P[unknown_P], loss_P[unknown_P] = MISS, 0.0
    return Scores(text.device_P, id_P, rank_P, loss_P, first_P, sure_P, phrase_P, text.devices)


def threshold_at_rate(scored: Scores, rate: float) -> float:
    """Sureness (nats) reached by a share ``rate`` of the words, or the nearest possible; ``inf`` if none is offered.

    Equally sure phrases are offered together, such as those at the start of every sentence, so the share can differ
    from ``rate``; of two equally near shares the smaller is used.

    Raises:
      ValueError: a rate outside 0 to 1.
    """
    if not 0 < rate < 1:
        raise ValueError(f"compose_rate: {rate} is no share of words; use something like 0.05")
    wanted = round(rate * len(scored.sure_P))
    sure, times = np.unique(scored.sure_P[np.isfinite(scored.sure_P)], return_counts=True)
    if not wanted or not len(sure):
        return math.inf
    # In descending sureness, so that the smaller of two equally near counts comes first.
    offered = np.cumsum(times[::-1])
    return float(sure[::-1][np.argmin(np.abs(offered - wanted))])


def right_share(scored: Scores, threshold: float) -> float:
    """Precision of phrases at or above a threshold; NaN if there are none."""
    shown_P = scored.sure_P >= threshold
    return float(np.mean(scored.phrase_P[shown_P])) if shown_P.any() else math.nan


def threshold_at_share(scored: Scores, share: float) -> float:
    """The lowest sureness (nats) at which phrases have at least this precision; ``inf`` if there is none.

    Thresholds that fewer than 20 phrases reach are not considered: their precision is too noisy.
    """
    offered = np.flatnonzero(np.isfinite(scored.sure_P))
    order = offered[np.argsort(-scored.sure_P[offered], kind="stable")]
    sure, right = scored.sure_P[order], np.cumsum(scored.phrase_P[order])
    shares = right / np.arange(1, len(order) + 1)
    # Of equally sure phrases all or none are shown.
    last_of_tie = np.append(sure[1:] < sure[:-1], True)[: len(order)]
    good = np.flatnonzero((shares >= share) & last_of_tie & (np.arange(1, len(order) + 1) >= _FEWEST))
    return float(sure[good[-1]]) if len(good) else math.inf
