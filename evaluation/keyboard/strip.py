"""Suggestion strip: the words that the keyboard shows and commits, from the language model's log-probabilities.

Shape legend: B sentences in step, V vocabulary, C candidates, W prefixes.

Every word is simulated twice from the same touches: with the strip, and with a dark strip. Keystroke savings
compare the two, so a strip that nobody looks at saves exactly nothing. The code is compiled, as it runs for
every word of every arm. Scores closer than 1e-9 nats are a tie, which the lower id wins, so that rounding
never decides.
"""

import numba
import numpy as np

from evaluation.counts import SHOWN
from evaluation.inference import NUM_SPECIALS
from evaluation.keyboard.script import Script
from pretrain.text.vocabulary import UNK

# Cost per letter of spelling an OOV word: about the entropy of letters in a word list.
SPELLING_NATS = 2.5
# Seconds from a wrong word to the first backspace. With the keys of a repair this gives about four seconds: between the
# three that a wrong correction adds to a sentence in Leino et al. 2024 and the 5.5 of Alharbi et al. 2020.
NOTICE_SECONDS = 1.5
_TIE = 1e-9
IN_STRIP, PICKED, COMPLETED, TYPED = 1, 2, 3, 4
# Columns of the result of ``step``.
COLUMNS = (
    *("how", "in_strip", "committed", "right", "noticed", "corrected", "backspaces", "keystrokes"),
    *("modified", "dark_keystrokes"),
)
_HOW, _IN_STRIP, _COMMITTED, _RIGHT, _NOTICED, _CORRECTED, _BACKSPACES, _KEYSTROKES, _MODIFIED, _DARK = range(10)


@numba.njit(nogil=True, cache=True)
def step(
    log_probs_BV: np.ndarray,
    words_B: np.ndarray,
    script: Script,
    weight: float,
    answer_BC: np.ndarray,
    seconds_B2: np.ndarray,
) -> None:
    """One word of each sentence: pick it from the strip, complete it, or type it to the end.

    Args:
      words_B: index of each sentence's word in the script.
      weight: of the language model relative to the touches (OTF); 0 reads touches alone.
      answer_BC: int64, filled: how (2 picked, 3 completed, 4 typed), True if the strip held the word, the
        committed id (``<unk>`` if no word of the vocabulary), right, noticed if wrong, changed by the
        correction, backspaces, keystrokes, changed while or after typing, keystrokes with a dark strip.
      seconds_B2: float64, filled: with the strip, and with a dark strip.
    """
    for row in range(len(words_B)):
        word, log_probs_V, answer = words_B[row], log_probs_BV[row], answer_BC[row]
        dark_seconds = _typed(log_probs_V, word, script, weight, answer)
        meant = script.id_P[word]
        answer[_HOW], answer[_DARK] = TYPED, answer[_KEYSTROKES]
        answer[_IN_STRIP] = meant != UNK and rank(log_probs_V, meant) < SHOWN
        seconds = script.inspect_seconds if script.look_P[word] else 0.0
        chosen, keys, backs, chosen_seconds = 0, 0, 0, 0.0
        if answer[_IN_STRIP] and script.look_P[word] and script.pick_P[word]:
            chosen = PICKED
        else:
            for look in range(script.looks_P1[word], script.looks_P1[word + 1]):
                seconds += script.inspect_seconds
                if meant != UNK and script.look_pick_E[look] and _completes(log_probs_V, meant, look, script, weight):
                    chosen, keys, backs = COMPLETED, script.look_key_E[look], script.look_back_E[look]
                    chosen_seconds = script.look_seconds_E[look]
                    break
        if chosen:
            answer[_HOW], answer[_COMMITTED], answer[_RIGHT], answer[_NOTICED] = chosen, meant, 1, 0
            answer[_CORRECTED], answer[_BACKSPACES], answer[_MODIFIED] = 0, backs, backs > 0
            answer[_KEYSTROKES] = keys + 2 * backs + 1
            seconds_B2[row, 0] = seconds + chosen_seconds + script.key_seconds_P[word]
        else:
            seconds_B2[row, 0] = seconds + dark_seconds
        seconds_B2[row, 1] = dark_seconds


@numba.njit(nogil=True, cache=True)
def _typed(log_probs_V: np.ndarray, word: int, script: Script, weight: float, answer: np.ndarray) -> float:
    """Type the word to the end, decode it, and repair a noticed error; fills the answer, returns seconds."""
    meant = script.id_P[word]
    committed = _reading(log_probs_V, word, script, weight)
    as_typed = committed < 0
    if as_typed:
        # An arm without this word still leaves it as typed.
        committed = script.literal_id_P[word] if script.literal_id_P[word] >= 0 else UNK
    right = script.as_meant_P[word] if as_typed else committed == meant
    noticed = not right and (script.notice_typed_P[word] if as_typed else script.notice_P[word])
    backs = script.taken_back_P[word]
    answer[_RIGHT], answer[_NOTICED], answer[_MODIFIED] = right, noticed, noticed or backs > 0
    answer[_CORRECTED] = not as_typed and committed != script.literal_id_P[word]
    keys = script.touches_P[word] + 2 * backs + 1
    seconds = script.seconds_P[word] + script.key_seconds_P[word]
    if noticed:
        # Back to the first wrong letter at twice the speed, then careful typing from there.
        start = script.letters_P1[word]
        length = script.letters_P1[word + 1] - start
        if as_typed:
            low, high = script.touches_P1[word], script.touches_P1[word + 1]
            shared = _shared(script.literal_T[low:high], script.letters_K[start : start + length])
        else:
            low, high = script.spelled_V1[committed], script.spelled_V1[committed + 1]
            shared = _shared(script.spelled_K[low:high], script.letters_K[start : start + length])
        wrong, again = high - low + 1 - shared, length + 1 - shared
        backs, keys = backs + wrong, keys + wrong + again
        seconds += NOTICE_SECONDS + (0.5 * wrong + again) * script.key_seconds_P[word]
        committed = meant
    answer[_COMMITTED], answer[_BACKSPACES], answer[_KEYSTROKES] = committed, backs, keys
    return seconds


@numba.njit(nogil=True, cache=True)
def _shared(one: np.ndarray, other: np.ndarray) -> int:
    """Length of the common prefix of two spellings."""
    for place in range(min(len(one), len(other))):
        if one[place] != other[place]:
            return place
    return min(len(one), len(other))


@numba.njit(nogil=True, cache=True)
def rank(log_probs_V: np.ndarray, word: int) -> int:
    """Words that come before one: likelier, or as likely with a lower id. Specials do not count."""
    mine = log_probs_V[word]
    before = 0
    if mine == -np.inf:
        # No arm suggests it; all such words tie.
        return len(log_probs_V)
    for other in range(NUM_SPECIALS, len(log_probs_V)):
        # One comparison for nearly every word: this loop takes most of the simulator's own time.
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
    """Id of the best reading of a typed word, -1 for the literal one if it is outside the arm's vocabulary."""
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
    """Return whether the strip at this look holds the word: among the best three below the likeliest prefixes."""
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
