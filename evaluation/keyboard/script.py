"""Typing script of a simulated session: everything that does not depend on an arm's suggestions.

Shape legend: P words, D devices, E looks at the strip inside words, W prefixes, V vocabulary.

The script is prepared once and replayed under each arm that decides (``evaluation.keyboard.sessions``): touches, their
readings, glances and the outcome of each choice. Two arms thus differ only where their suggestions differ,
and an arm minus itself is exactly zero.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from evaluation.arms.held_out import HeldOut
from evaluation.keyboard import decoder, layouts, lexicon, touch, typist
from evaluation.keyboard.randomness import uniform
from pretrain.text.vocabulary import SPECIALS, Vocabulary

MARGIN_NATS = 14.0
# Least number of letters left for a look within a word.
LETTERS_TO_COME = 3


class Script(NamedTuple):
    """Arrays of a prepared session. Private. A tuple, so that compiled code reads it as it is.

    Attributes:
      id_P: int64, vocabulary id of the intended word.
      touches_P: int64. touches_P1, literal_T: offsets of each word's touches, and the literal reading of each.
      letters_P1, letters_K: characters of the intended word. spelled_V1, spelled_K: of each vocabulary word.
      seconds_P: float64, to touch the whole word, without the space.
      key_seconds_P: float64, of the device's usual touch.
      taken_back_P: int64, touches taken back while typing; each costs a backspace and a touch.
      readings_P1, reading_id, reading_score: candidates of each word, see ``decoder.Readings``.
      literal_P, literal_id_P, as_meant_P: the literal reading.
      look_P, pick_P, notice_P, notice_typed_P, accept_P: bool, outcome of each choice if it occurs.
      pick_chance_P: float64, probability that the device looks before a word and picks it if shown.
      looks_P1: int64, looks of each word; look e comes after ``look_key_E[e]`` touches, ``look_back_E[e]`` of
        them taken back, ``look_seconds_E[e]`` from the word's start; a word found is picked if ``look_pick_E[e]``.
      first_EW, last_EW, fit_EW: runs of ``word_at`` below the likeliest prefixes, and their log density.
      word_at: int64, vocabulary ids in alphabetical order. place_V: int64, its inverse.
      inspect_seconds: duration of a look.
    """

    id_P: np.ndarray
    touches_P: np.ndarray
    touches_P1: np.ndarray
    literal_T: np.ndarray
    letters_P1: np.ndarray
    letters_K: np.ndarray
    spelled_V1: np.ndarray
    spelled_K: np.ndarray
    seconds_P: np.ndarray
    key_seconds_P: np.ndarray
    taken_back_P: np.ndarray
    readings_P1: np.ndarray
    reading_id: np.ndarray
    reading_score: np.ndarray
    literal_P: np.ndarray
    literal_id_P: np.ndarray
    as_meant_P: np.ndarray
    look_P: np.ndarray
    pick_P: np.ndarray
    pick_chance_P: np.ndarray
    notice_P: np.ndarray
    notice_typed_P: np.ndarray
    accept_P: np.ndarray
    looks_P1: np.ndarray
    look_key_E: np.ndarray
    look_back_E: np.ndarray
    look_seconds_E: np.ndarray
    look_pick_E: np.ndarray
    first_EW: np.ndarray
    last_EW: np.ndarray
    fit_EW: np.ndarray
    word_at: np.ndarray
    place_V: np.ndarray
    inspect_seconds: float


def prepare(text: HeldOut, vocabulary: Vocabulary, locale: str, calibration: typist.Calibration, seed: int) -> Script:
    """Simulate each device typing its text once, without suggestions.

    Args:
      vocabulary: the largest of the comparison; its words are the keyboard's lexicon.
      seed: of the common random numbers.

    Raises:
      ValueError: no words to type, or no keyboard for the locale's script.
    """
    if not len(text.word_P):
        raise ValueError("text: no word to type; raise private_text.test_fraction or ab_test.session_words")
    keys = layouts.keyboard(locale, "".join({*"".join(text.spellings), *"".join(vocabulary.words[4:])}))
    traits = typist.draw(calibration, text.devices, seed)
    touches = touch.type_words(text, keys, calibration, traits, seed)
    words = lexicon.build(vocabulary, keys)
    spelled = [keys.spell(word) for word in text.spellings]
    spelt = [[] if number < len(SPECIALS) else keys.spell(word) for number, word in enumerate(vocabulary.words)]
    readings = decoder.read(touches, [spelled[word] for word in text.word_P], keys, words, MARGIN_NATS)
    device_P = text.device_P
    counters = (device_P, text.number_S[text.sentence_P], text.place_P)

    def falls(name: str) -> np.ndarray:
        return uniform(seed, name, *counters) < getattr(traits, name)[device_P]

    elapsed_T, backs_T = _within(touches.seconds_T, touches.offsets_P1), np.cumsum(touches.back_T)
    backs_P1 = np.concatenate([[0], backs_T])[touches.offsets_P1]
    word_T = touches.word_T
    key_T = np.arange(len(word_T)) - touches.offsets_P1[word_T] + 1
    counters_T = (*(counter[word_T] for counter in counters), key_T)
    # No looks for the last letters: picked words are longer than typed ones (Leino et al. 2024, table 5).
    looked_T = uniform(seed, "key_look", *counters_T) < traits.key_look[device_P[word_T]]
    look = np.flatnonzero(looked_T & (key_T + LETTERS_TO_COME <= np.diff(touches.offsets_P1)[word_T]))
    node_EW, fit_EW = decoder.prefixes(touches, word_T[look], key_T[look], keys, words)
    picked_T = uniform(seed, "key_pick", *counters_T) < traits.key_pick[device_P[word_T]]
    return Script(
        id_P=text.ids(vocabulary),
        touches_P=np.diff(touches.offsets_P1),
        touches_P1=touches.offsets_P1,
        literal_T=readings.literal_T,
        letters_P1=np.concatenate([[0], np.cumsum(touches.letters_P)]),
        letters_K=_joined(spelled[word] for word in text.word_P),
        spelled_V1=np.concatenate([[0], np.cumsum([len(letters) for letters in spelt])]),
        spelled_K=_joined(spelt),
        seconds_P=np.bincount(word_T, touches.seconds_T, len(text.word_P)),
        key_seconds_P=traits.key_seconds[device_P],
        taken_back_P=np.diff(backs_P1),
        readings_P1=readings.offsets_P1,
        reading_id=readings.id_C,
        reading_score=readings.score_C,
        literal_P=readings.literal_P,
        literal_id_P=readings.literal_id_P,
        as_meant_P=readings.as_meant_P,
        look_P=falls("look"),
        pick_P=falls("pick"),
        pick_chance_P=(traits.look * traits.pick)[device_P],
        notice_P=falls("notice"),
        notice_typed_P=falls("notice_typed"),
        accept_P=falls("compose_pick"),
        looks_P1=np.searchsorted(word_T[look], np.arange(len(text.word_P) + 1)),
        look_key_E=key_T[look],
        look_back_E=backs_T[look] - backs_P1[word_T[look]],
        look_seconds_E=elapsed_T[look],
        look_pick_E=picked_T[look],
        first_EW=np.where(node_EW >= 0, words.first_N[node_EW], 0),
        last_EW=np.where(node_EW >= 0, words.last_N[node_EW], 0),
        fit_EW=fit_EW,
        word_at=words.id_W,
        place_V=words.place_V,
        inspect_seconds=calibration.inspect_seconds,
    )


def _within(value_T: np.ndarray, offsets_P1: np.ndarray) -> np.ndarray:
    """Cumulative sum within each word; to the last digit a function of that word alone."""
    sum_T, sizes_P = value_T.copy(), np.diff(offsets_P1)
    for place in range(1, max(sizes_P, default=0)):
        at = offsets_P1[:-1][sizes_P > place] + place
        sum_T[at] += sum_T[at - 1]
    return sum_T


def _joined(words: Iterable[list[int]]) -> np.ndarray:
    return np.array([character for word in words for character in word], dtype=np.int64)
