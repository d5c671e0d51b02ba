"""Touches of every word: positions, slips, corrections, and times.

Shape legend: P words, K letters, T touches (of all words, one after the other), A characters, D devices.

Touches do not depend on an arm: they are a function of (seed, device, sentence, word, letter), so all
arms see the same touches.
"""

from dataclasses import dataclass

import numpy as np

from evaluation.arms.held_out import HeldOut
from evaluation.keyboard.layouts import Keyboard
from evaluation.keyboard.randomness import normal, uniform
from evaluation.keyboard.typist import Calibration, Traits

_SECONDS_SPREAD = 0.35  # standard deviation of the logarithm, between touches
_CHUNK = 50_000


@dataclass(frozen=True)
class Touches:
    """Touches by word: those of word p are ``[offsets_P1[p]:offsets_P1[p + 1]]``.

    Attributes:
      x_T, y_T: float64, key widths.
      held_T: int64, the character that a long press chose, -1 for a tap.
      seconds_T: float64, since the previous touch.
      back_T: bool, deleted and repeated, which costs two more keystrokes.
      letters_P: int64, letters of the intended word.
    """

    offsets_P1: np.ndarray
    x_T: np.ndarray
    y_T: np.ndarray
    held_T: np.ndarray
    seconds_T: np.ndarray
    back_T: np.ndarray
    letters_P: np.ndarray

    @property
    def word_T(self) -> np.ndarray:
        """Word of each touch."""
        return np.repeat(np.arange(len(self.letters_P)), np.diff(self.offsets_P1))


def type_words(text: HeldOut, keys: Keyboard, calibration: Calibration, traits_D: Traits, seed: int) -> Touches:
    """Touches of every word of the text.

    Every letter aims at its key with the device's own offset and spread. At most one slip a word: a
    letter left out, touched twice, or swapped with the next. A touch nearest to another key is deleted with
    probability ``notice_key``; the second touch is on the key.
    """
    spelled = [np.array(keys.spell(word), dtype=np.int64) for word in text.spellings]
    letters_P = np.array([len(word) for word in spelled], dtype=np.int64)[text.word_P]
    char_K = np.concatenate([np.empty(0, np.int64), *(spelled[word] for word in text.word_P)])
    word_K = np.repeat(np.arange(len(letters_P)), letters_P)
    place_K = np.arange(len(char_K)) - np.repeat(np.cumsum(letters_P) - letters_P, letters_P)
    touch_T, copy_T = _slips(text, calibration, letters_P, word_K, place_K, seed)
    word_T, char_T = word_K[touch_T], char_K[touch_T]
    counters = (*_counters(text, word_T), place_K[touch_T], copy_T)
    device_T = counters[0]

    std_T = traits_D.touch_std[device_T]
    x_T = keys.x_A[char_T] + traits_D.offset_x[device_T] + std_T * normal(seed, "x", *counters)
    y_T = keys.y_A[char_T] + traits_D.offset_y[device_T] + std_T * normal(seed, "y", *counters)
    # A word without its accent may be another word or none; the decoder may restore it.
    lazy_T = uniform(seed, "hold", *counters) >= traits_D.hold[device_T]
    held_T = keys.held_A[char_T] & ~(lazy_T & np.array([c.isalpha() for c in keys.characters])[char_T])
    seconds_T = traits_D.key_seconds[device_T] * np.exp(_SECONDS_SPREAD * normal(seed, "seconds", *counters))
    missed_T = nearest(keys, x_T, y_T) != nearest(keys, keys.x_A, keys.y_A)[char_T]
    back_T = missed_T & (uniform(seed, "take back", *counters) < traits_D.notice_key[device_T])
    seconds_T = np.where(held_T, 2.0, 1.0) * np.where(back_T, 3.0, 1.0) * seconds_T
    return Touches(
        offsets_P1=np.concatenate([[0], np.cumsum(np.bincount(word_T, minlength=len(letters_P)))]),
        x_T=np.where(back_T, keys.x_A[char_T], x_T),
        y_T=np.where(back_T, keys.y_A[char_T], y_T),
        held_T=np.where(held_T, char_T, -1),
        seconds_T=seconds_T,
        back_T=back_T,
        letters_P=letters_P,
    )


def nearest(keys: Keyboard, x_T: np.ndarray, y_T: np.ndarray) -> np.ndarray:
    """Number of the character (the first of those that share a key) whose key is nearest to each touch."""
    nearest_T = [np.empty(0, np.int64)]
    for start in range(0, len(x_T), _CHUNK):
        part = slice(start, start + _CHUNK)
        nearest_T.append(np.argmin((x_T[part, None] - keys.x_A) ** 2 + (y_T[part, None] - keys.y_A) ** 2, axis=1))
    return np.concatenate(nearest_T)


def _slips(
    text: HeldOut,
    calibration: Calibration,
    letters_P: np.ndarray,
    word_K: np.ndarray,
    place_K: np.ndarray,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Letter ``[T]`` that each touch aims at, and 1 for the second touch of a doubled letter."""
    draw_K = uniform(seed, "slip", *_counters(text, word_K), place_K)
    kind_K = np.where(draw_K < 3 * calibration.slip, (draw_K / calibration.slip).astype(np.int64), -1)
    last_K = place_K == letters_P[word_K] - 1
    kind_K[(kind_K == 2) & last_K] = -1
    kind_K[(kind_K == 0) & (letters_P[word_K] == 1)] = -1
    slipped = np.flatnonzero(kind_K >= 0)
    _, first = np.unique(word_K[slipped], return_index=True)
    chosen = slipped[first]
    left_out, doubled, swapped = (chosen[kind_K[chosen] == kind] for kind in range(3))
    order_K = np.arange(len(word_K))
    order_K[swapped], order_K[swapped + 1] = swapped + 1, swapped
    times_K = np.ones(len(word_K), dtype=np.int64)
    times_K[left_out], times_K[doubled] = 0, 2
    touch_T = np.repeat(order_K, times_K)
    again_T = np.concatenate([[False], touch_T[1:] == touch_T[:-1]])[: len(touch_T)]
    return touch_T, again_T.astype(np.int64)


def _counters(text: HeldOut, word: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Device, sentence index on the device, and position in the sentence of each word."""
    sentence = text.sentence_P[word]
    return text.device_S[sentence], text.number_S[sentence], text.place_P[word]
