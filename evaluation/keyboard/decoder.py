"""Decoding of touches to words: a search of the trie with exact bounds on the candidates that it prunes.

Shape legend: P words, T touches, A characters, N trie nodes, C candidates (of all words, one after
the other), E looks at the strip, W prefixes.

The fit of a word to touches is a log density: Gaussian around each letter's key, a penalty for a letter
that needs a long press and did not get one (or the reverse), and at most one slip: a letter left
out, a touch too many, two neighbours swapped. The literal reading takes the likeliest character of
every touch. Candidates are all words within ``margin`` nats of it. The language model comes later
and adds ``log p(word | context)``; nothing here depends on an arm.
"""

import math
from dataclasses import dataclass, replace

import numba
import numpy as np

from evaluation.keyboard.layouts import Keyboard
from evaluation.keyboard.lexicon import Lexicon
from evaluation.keyboard.touch import Touches

# The keyboard's touch model is wider than most people's touches.
_STD = 0.32
_LEFT_OUT = math.log(0.003)
_SWAPPED = math.log(0.003)
# An extra touch is uniform over the thirty keys.
_EXTRA = math.log(0.003 / 30)
_NOT_HELD = math.log(0.3)
_HELD_FOR_NOTHING = math.log(0.002)
MOST_CANDIDATES = 64
PREFIXES = 3
_NEVER = -1e300


@dataclass(frozen=True)
class Readings:
    """Possible readings of each word's touches: candidates ``[offsets_P1[p]:offsets_P1[p + 1]]``.

    Attributes:
      id_C: int64 vocabulary ids. score_C: float64 log densities.
      literal_T: int64, character of each touch in the literal reading.
      literal_P: float64, log density of the literal reading.
      literal_id_P: int64, vocabulary id of the literal reading, hence a candidate; -1 if it is no word.
      as_meant_P: bool, the literal reading is the intended word.
    """

    offsets_P1: np.ndarray
    id_C: np.ndarray
    score_C: np.ndarray
    literal_T: np.ndarray
    literal_P: np.ndarray
    literal_id_P: np.ndarray
    as_meant_P: np.ndarray


def fit(touches: Touches, keys: Keyboard) -> np.ndarray:
    """``[T, A]`` float64: log density of each touch if a character was meant."""
    distance_TA = (touches.x_T[:, None] - keys.x_A) ** 2 + (touches.y_T[:, None] - keys.y_A) ** 2
    chosen_TA = np.arange(len(keys.x_A)) == touches.held_T[:, None]
    held_TA = np.where(
        touches.held_T[:, None] >= 0,
        np.where(chosen_TA, 0.0, _HELD_FOR_NOTHING),
        np.where(keys.held_A, _NOT_HELD, 0.0),
    )
    return held_TA - distance_TA / (2 * _STD**2) - math.log(2 * math.pi * _STD**2)


def read(touches: Touches, meant_P: list[list[int]], keys: Keyboard, lexicon: Lexicon, margin: float) -> Readings:
    """Candidate words for each word's touches: within ``margin`` of the literal reading.

    Args:
      meant_P: character numbers of the intended words.
      margin: nats; at most 64 candidates are kept, the best ones.
    """
    count = len(meant_P)
    ids, scores, sizes = [np.empty(0, np.int64)], [np.empty(0)], np.zeros(count, dtype=np.int64)
    literal_P, literal_id_P = np.zeros(count), np.zeros(count, dtype=np.int64)
    literal_T, as_meant_P = np.zeros(len(touches.x_T), dtype=np.int64), np.zeros(count, dtype=bool)
    for start in range(0, count, 2000):
        words = np.arange(start, min(start + 2000, count))
        low = touches.offsets_P1[start]
        fit_TA = fit(_part(touches, slice(low, touches.offsets_P1[words[-1] + 1])), keys)
        best_T = fit_TA.argmax(axis=1)
        literal_T[low : low + len(best_T)] = best_T
        offsets = touches.offsets_P1[start : words[-1] + 2] - low
        part_ids, part_scores, sizes[words], literal_P[words], literal_id_P[words] = _read(
            fit_TA, offsets, lexicon.char_N, lexicon.depth_N, lexicon.end_N, lexicon.word_N, margin, MOST_CANDIDATES
        )
        ids.append(part_ids)
        scores.append(part_scores)
        for word in words:
            literal = best_T[offsets[word - start] : offsets[word - start + 1]]
            as_meant_P[word] = literal.tolist() == meant_P[word]
    offsets_P1 = np.concatenate([[0], np.cumsum(sizes)])
    candidates = offsets_P1, np.concatenate(ids), np.concatenate(scores)
    return Readings(*candidates, literal_T, literal_P, literal_id_P, as_meant_P)


def prefixes(
    touches: Touches, word_E: np.ndarray, key_E: np.ndarray, keys: Keyboard, lexicon: Lexicon
) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest readings of the first ``key_E`` touches of words ``word_E``, without slips.

    Returns:
      ``node_EW`` int64, -1 if there are fewer; ``score_EW`` float64, best first.
    """
    node_EW = np.full((len(word_E), PREFIXES), -1, dtype=np.int64)
    score_EW = np.full((len(word_E), PREFIXES), _NEVER)
    for start in range(0, len(word_E), 2000):
        part = slice(start, start + 2000)
        sizes = key_E[part]
        touch_T = np.concatenate(
            [
                np.arange(first, first + size)
                for first, size in zip(touches.offsets_P1[word_E[part]], sizes, strict=True)
            ]
        )
        fit_TA = fit(_part(touches, touch_T), keys)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        _prefixes(fit_TA, offsets, lexicon.char_N, lexicon.depth_N, lexicon.end_N, node_EW[part], score_EW[part])
    return node_EW, score_EW


def _part(touches: Touches, chosen: slice | np.ndarray) -> Touches:
    columns = {name: getattr(touches, name)[chosen] for name in ("x_T", "y_T", "held_T", "seconds_T")}
    return replace(touches, **columns)


@numba.njit(nogil=True, cache=True)
def _read(
    fit_TA: np.ndarray,
    offsets: np.ndarray,
    char_N: np.ndarray,
    depth_N: np.ndarray,
    end_N: np.ndarray,
    word_N: np.ndarray,
    margin: float,
    most: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    words = len(offsets) - 1
    ids, scores = np.empty(words * most, np.int64), np.empty(words * most)
    sizes, literals = np.zeros(words, np.int64), np.zeros(words)
    literal_ids = np.full(words, -1, np.int64)
    deepest = depth_N.max() + 1
    plain, extra = np.empty(deepest + 1), np.empty(deepest + 1)
    missing, swapped = np.empty(deepest + 1), np.empty(deepest + 1)
    path = np.empty(deepest + 1, np.int64)
    filled = 0
    for word in range(words):
        own_TA = fit_TA[offsets[word] : offsets[word + 1]]
        length = len(own_TA)
        # Upper bound on the log density of the remaining touches, including a slip.
        rest = np.zeros(length + 1)
        literal = 0.0
        for touch in range(length):
            literal += own_TA[touch].max()
        for touch in range(length - 1, -1, -1):
            rest[touch] = rest[touch + 1] + max(own_TA[touch].max(), _EXTRA)
        literals[word] = literal
        plain[0], missing[0], swapped[0] = 0.0, _NEVER, _NEVER
        extra[0] = _EXTRA if length else _NEVER
        node = 1
        while node < len(char_N):
            depth, char = depth_N[node], char_N[node]
            path[depth] = char
            a, b, c, d = _NEVER, _NEVER, _NEVER, _NEVER
            if depth <= length:
                a = plain[depth - 1] + own_TA[depth - 1, char]
                d = swapped[depth - 1] + own_TA[depth - 1, char]
                if depth >= 2:
                    crossed = own_TA[depth - 1, path[depth - 1]] + own_TA[depth - 2, char]
                    d = max(d, plain[depth - 2] + crossed + _SWAPPED)
            if depth + 1 <= length:
                b = max(extra[depth - 1] + own_TA[depth, char], a + _EXTRA)
            if depth <= length + 1:
                c = plain[depth - 1] + _LEFT_OUT
                if depth >= 2:
                    c = max(c, missing[depth - 1] + own_TA[depth - 2, char])
            bound = _NEVER
            if depth <= length:
                bound = max(a, d) + rest[depth]
            if depth + 1 <= length:
                bound = max(bound, b + rest[depth + 1])
            if depth <= length + 1:
                bound = max(bound, c + rest[depth - 1])
            # A swap that starts at this letter is priced at the next one.
            if depth < length:
                bound = max(bound, plain[depth - 1] + rest[depth - 1] + _SWAPPED)
            if bound < literal - margin:
                node = end_N[node]
                continue
            plain[depth], extra[depth], missing[depth], swapped[depth] = a, b, c, d
            if word_N[node] >= 0:
                score = _NEVER
                if depth == length:
                    score = max(a, d)
                    if a == literal:
                        literal_ids[word] = word_N[node]
                elif depth == length - 1:
                    score = b
                elif depth == length + 1:
                    score = c
                if score >= literal - margin:
                    if sizes[word] < most:
                        ids[filled], scores[filled] = word_N[node], score
                        filled, sizes[word] = filled + 1, sizes[word] + 1
                    else:
                        worst = filled - most + np.argmin(scores[filled - most : filled])
                        if score > scores[worst]:
                            ids[worst], scores[worst] = word_N[node], score
            node += 1
    return ids[:filled].copy(), scores[:filled].copy(), sizes, literals, literal_ids


@numba.njit(nogil=True, cache=True)
def _prefixes(
    fit_TA: np.ndarray,
    offsets: np.ndarray,
    char_N: np.ndarray,
    depth_N: np.ndarray,
    end_N: np.ndarray,
    node_EW: np.ndarray,
    score_EW: np.ndarray,
) -> None:
    deepest = depth_N.max() + 1
    plain = np.zeros(deepest + 1)
    for look in range(len(offsets) - 1):
        own_TA = fit_TA[offsets[look] : offsets[look + 1]]
        length = len(own_TA)
        rest = np.zeros(length + 1)
        for touch in range(length - 1, -1, -1):
            rest[touch] = rest[touch + 1] + own_TA[touch].max()
        node = 1
        while node < len(char_N):
            depth = depth_N[node]
            score = plain[depth - 1] + own_TA[depth - 1, char_N[node]]
            if depth == length or score + rest[depth] <= score_EW[look, -1]:
                if depth == length and score > score_EW[look, -1]:
                    place = node_EW.shape[1] - 1
                    while place > 0 and score > score_EW[look, place - 1]:
                        score_EW[look, place], node_EW[look, place] = (
                            score_EW[look, place - 1],
                            node_EW[look, place - 1],
                        )
                        place -= 1
                    score_EW[look, place], node_EW[look, place] = score, node
                node = end_N[node]
                continue
            plain[depth] = score
            node += 1
