"""What the keyboard shows and commits for one word, given the language model's log-probabilities.

Shape legend: B sentences in step, V vocabulary, C candidates, W prefixes.

Compiled, because it runs for every word of every arm. Scores closer than 1e-9 nats are a tie and
the lower id wins, so that rounding never decides.
"""

import numba
import numpy as np

from evaluation.inference import NUM_SPECIALS
from evaluation.keyboard.script import Script
from pretrain.vocabulary import UNK

SHOWN = 3
# What spelling an unknown word costs a letter: about the entropy of letters in a word list.
SPELLING_NATS = 2.5
_TIE = 1e-9
# Columns of ``step``'s answer.
IN_STRIP, PICKED, COMPLETED, TYPED = 1, 2, 3, 4
COLUMNS = ("how", "in_strip", "committed", "right", "noticed", "keystrokes")


@numba.njit(nogil=True, cache=True)
def step(
    log_probs_BV: np.ndarray,
    words_B: np.ndarray,
    script: Script,
    weight: float,
    answer_B6: np.ndarray,
    seconds_B: np.ndarray,
) -> None:
    """One word of each sentence: pick it from the strip, complete it, or type it to the end.

    Args:
      words_B: number of each sentence's word in the script.
      weight: of the language model against the touches (OTF); 0 reads touches alone.
      answer_B6: int64, filled: how (2 picked, 3 completed, 4 typed), whether the strip held the
        word, the committed id (``<unk>`` if no word of the vocabulary), right, noticed if wrong, keystrokes.
      seconds_B: float64, filled.
    """
    for row in range(len(words_B)):
        word, log_probs_V = words_B[row], log_probs_BV[row]
        meant = script.id_P[word]
        in_strip = meant != UNK and rank(log_probs_V, meant) < SHOWN
        how, committed, right, keystrokes = TYPED, meant, True, 0
        seconds = script.inspect_seconds if script.look_P[word] else 0.0
        if in_strip and script.look_P[word] and script.pick_P[word]:
            how, keystrokes = PICKED, 1
            seconds += script.key_seconds_P[word]
        else:
            for look in range(script.looks_P1[word], script.looks_P1[word + 1]):
                seconds += script.inspect_seconds
                if meant != UNK and script.look_pick_E[look] and _completes(log_probs_V, meant, look, script, weight):
                    how, keystrokes = COMPLETED, script.look_key_E[look] + 1
                    seconds += script.look_seconds_E[look] + script.key_seconds_P[word]
                    break
            if how == TYPED:
                committed = _reading(log_probs_V, word, script, weight)
                literal = committed < 0
                if literal:
                    # An arm that lacks a word of the vocabulary still leaves it as it was typed.
                    committed = script.literal_id_P[word] if script.literal_id_P[word] >= 0 else UNK
                right = script.as_meant_P[word] if literal else committed == meant
                keystrokes = script.touches_P[word] + 2 * script.taken_back_P[word] + 1
                seconds += script.seconds_P[word] + script.key_seconds_P[word]
        noticed = not right and script.notice_P[word]
        if noticed:
            # Back over the word and its space at twice the speed, then again, this time with care.
            again = script.letters_P[word] + 1
            keystrokes += script.touches_P[word] + 1 + again
            seconds += (0.5 * (script.touches_P[word] + 1) + again) * script.key_seconds_P[word]
            seconds += script.inspect_seconds
            committed = meant
        answer_B6[row, 0], answer_B6[row, 1], answer_B6[row, 2] = how, in_strip, committed
        answer_B6[row, 3], answer_B6[row, 4], answer_B6[row, 5] = right, noticed, keystrokes
        seconds_B[row] = seconds


@numba.njit(nogil=True, cache=True)
def rank(log_probs_V: np.ndarray, word: int) -> int:
    """Words that come before one: likelier, or as likely with a lower id. Specials do not count."""
    mine = log_probs_V[word]
    before = 0
    if mine == -np.inf:
        # Nobody's candidate, and no better than another such.
        return len(log_probs_V)
    for other in range(NUM_SPECIALS, len(log_probs_V)):
        # One comparison for nearly every word: this loop is most of the simulator's own time.
        if log_probs_V[other] >= mine - _TIE and (log_probs_V[other] > mine + _TIE or other < word):
            before += 1
    return before


@numba.njit(nogil=True, cache=True)
def ranks(log_probs_BV: np.ndarray, words_B: np.ndarray) -> np.ndarray:
    """``rank`` of one word of each row: int64 ``[B]``."""
    rank_B = np.empty(len(words_B), np.int64)
    for row in range(len(words_B)):
        rank_B[row] = rank(log_probs_BV[row], words_B[row])
    return rank_B


@numba.njit(nogil=True, cache=True)
def first(log_probs_BV: np.ndarray) -> np.ndarray:
    """The likeliest word of each row, no special: int64 ``[B]``."""
    best_B = np.empty(len(log_probs_BV), np.int64)
    for row in range(len(log_probs_BV)):
        best = NUM_SPECIALS
        for word in range(NUM_SPECIALS + 1, log_probs_BV.shape[1]):
            if log_probs_BV[row, word] > log_probs_BV[row, best] + _TIE:
                best = word
        best_B[row] = best
    return best_B


@numba.njit(nogil=True, cache=True)
def _reading(log_probs_V: np.ndarray, word: int, script: Script, weight: float) -> int:
    """Id of the best reading of a typed word, -1 for the literal one where it is no word the arm knows."""
    best, best_score = -1, -np.inf
    literal_id = script.literal_id_P[word]
    if literal_id < 0 or log_probs_V[literal_id] == -np.inf:
        spelling = log_probs_V[UNK] - SPELLING_NATS * script.touches_P[word]
        best_score = script.literal_P[word] + weight * spelling
    for place in range(script.readings_P1[word], script.readings_P1[word + 1]):
        candidate = script.reading_id[place]
        if log_probs_V[candidate] == -np.inf:
            continue
        score = script.reading_score[place] + weight * log_probs_V[candidate]
        if score > best_score + _TIE or (score > best_score - _TIE and candidate < best):
            best, best_score = candidate, score
    return best


@numba.njit(nogil=True, cache=True)
def _completes(log_probs_V: np.ndarray, meant: int, look: int, script: Script, weight: float) -> bool:
    """Whether the strip at this look holds the word: among the best three below the likeliest prefixes."""
    place = script.place_V[meant]
    mine = -np.inf
    for prefix in range(script.first_EW.shape[1]):
        if script.first_EW[look, prefix] <= place < script.last_EW[look, prefix]:
            mine = script.fit_EW[look, prefix] + weight * log_probs_V[meant]
    if mine == -np.inf:
        return False
    before = 0
    for prefix in range(script.first_EW.shape[1]):
        fit = script.fit_EW[look, prefix]
        for other_place in range(script.first_EW[look, prefix], script.last_EW[look, prefix]):
            other = script.word_at[other_place]
            score = fit + weight * log_probs_V[other]
            if score > mine + _TIE or (score >= mine - _TIE and other < meant):
                before += 1
                if before >= SHOWN:
                    return False
    return True
