"""Touches and their readings: the search of the trie against trying every word in every way."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from evaluation.arms.held_out import HeldOut, held_out
from evaluation.keyboard import decoder, lexicon, touch, typist
from evaluation.keyboard import layouts as geometry
from evaluation.keyboard import script as keystrokes
from pretrain.text.words import write_words
from tests.helpers.text.typed_text import WORDS, text, vocabulary


def typed(
    directory: Path, calibration: typist.Calibration = typist.SLOPPY, seed: int = 1
) -> tuple[HeldOut, geometry.Keyboard, touch.Touches]:
    words = text(directory)
    keys = geometry.keyboard("en-US", "".join(words.spellings + WORDS))
    traits = typist.draw(calibration, words.devices, seed)
    return words, keys, touch.type_words(words, keys, calibration, traits, seed)


def every_way(own_TA: np.ndarray, letters: list[int]) -> float:
    """Best log density over no slip and every single slip: the oracle."""

    def straight(spelled: list[int], touches: list[int]) -> float:
        return sum(own_TA[t, letter] for t, letter in zip(touches, spelled, strict=True))

    length, ways = len(own_TA), []
    every = list(range(length))
    if len(letters) == length:
        ways.append(straight(letters, every))
        for i in range(length - 1):
            crossed = [*letters[:i], letters[i + 1], letters[i], *letters[i + 2 :]]
            ways.append(straight(crossed, every) + math.log(0.003))
    if len(letters) == length + 1:
        ways += [straight(letters[:i] + letters[i + 1 :], every) + math.log(0.003) for i in range(length + 1)]
    if len(letters) == length - 1:
        ways += [straight(letters, every[:i] + every[i + 1 :]) + math.log(0.003 / 30) for i in range(length)]
    return max(ways, default=-math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("margin", [9.0, 14.0, 30.0])
def test_the_search_finds_what_trying_everything_finds(tmp_path: Path, margin: float) -> None:
    words, keys, touches = typed(tmp_path)
    known = vocabulary()
    trie = lexicon.build(known, keys)
    spelled = [keys.spell(word) for word in words.spellings]
    readings = decoder.read(touches, [spelled[word] for word in words.word_P], keys, trie, margin)
    fit_TA = decoder.fit(touches, keys)
    slipped = 0
    for word in range(len(words.word_P)):
        own_TA = fit_TA[touches.offsets_P1[word] : touches.offsets_P1[word + 1]]
        literal = sum(own_TA.max(axis=1))
        assert readings.literal_P[word] == pytest.approx(literal, rel=1e-12)
        scores = {number: every_way(own_TA, keys.spell(w)) for number, w in enumerate(known.words) if number >= 4}
        wanted = {number: score for number, score in scores.items() if score >= literal - margin}
        part = slice(readings.offsets_P1[word], readings.offsets_P1[word + 1])
        found = dict(zip(readings.id_C[part].tolist(), readings.score_C[part].tolist(), strict=True))
        assert found.keys() == wanted.keys()
        assert found == pytest.approx(wanted, rel=1e-12)
        literal_word = "".join(keys.characters[c] for c in own_TA.argmax(axis=1))
        assert readings.literal_id_P[word] == known.index.get(literal_word, -1)
        assert readings.as_meant_P[word] == (literal_word == words.spellings[words.word_P[word]])
        slipped += len(own_TA) != len(words.spellings[words.word_P[word]])
    assert slipped > 0, "no slip was ever tried"


def test_prefixes_are_the_likeliest(tmp_path: Path) -> None:
    words, keys, touches = typed(tmp_path)
    trie = lexicon.build(vocabulary(), keys)
    fit_TA = decoder.fit(touches, keys)
    looks = [(w, k) for w in range(len(words.word_P)) for k in range(1, np.diff(touches.offsets_P1)[w])][:200]
    word_E, key_E = np.array(looks).T
    node_EW, score_EW = decoder.prefixes(touches, word_E, key_E, keys, trie)
    for look, (word, key) in enumerate(looks):
        own_TA = fit_TA[touches.offsets_P1[word] :][:key]
        known = {tuple(keys.spell(w)[:key]) for w in WORDS if len(w) >= key}
        best = sorted((sum(own_TA[t, c] for t, c in enumerate(letters)) for letters in known), reverse=True)[
            : decoder.PREFIXES
        ]
        np.testing.assert_allclose(score_EW[look, : len(best)], best, rtol=1e-12)
        assert np.all(trie.depth_N[node_EW[look, : len(best)]] == key)
        assert np.all(node_EW[look, len(best) :] == -1)


def test_the_trie_keeps_words_in_order_and_subtrees_whole() -> None:
    keys = geometry.keyboard("en-US", "".join(WORDS))
    trie, known = lexicon.build(vocabulary(), keys), vocabulary()
    spelled = [keys.spell(known.words[number]) for number in trie.id_W]
    assert spelled == sorted(spelled)
    np.testing.assert_array_equal(trie.id_W[trie.place_V[4:]], np.arange(4, len(known)))
    path: list[int] = []
    for node in range(1, len(trie.char_N)):
        path = [*path[: trie.depth_N[node] - 1], int(trie.char_N[node])]
        below = {place for place, letters in enumerate(spelled) if letters[: len(path)] == path}
        assert below == set(range(trie.first_N[node], trie.last_N[node]))
        inside = [n for n in range(node, trie.end_N[node]) if trie.word_N[n] >= 0]
        assert len(inside) == len(below)
        if trie.word_N[node] >= 0:
            assert keys.spell(known.words[trie.word_N[node]]) == path


def test_fingers_do_not_depend_on_other_devices_or_sentences(tmp_path: Path) -> None:
    words = text(tmp_path)
    first = np.flatnonzero(words.device_P == 0)
    alone = HeldOut(
        words.spellings,
        words.word_P[first],
        words.starts_S[words.device_S == 0],
        words.lengths_S[words.device_S == 0],
        words.device_S[words.device_S == 0],
        1,
    )
    all_of_them, one = (keystrokes.prepare(some, vocabulary(), "en-US", typist.MEDIAN, 5) for some in (words, alone))
    for name in ("id_P", "touches_P", "seconds_P", "literal_P", "look_P", "notice_P", "accept_P", "as_meant_P"):
        np.testing.assert_allclose(getattr(all_of_them, name)[first], getattr(one, name), rtol=1e-9, err_msg=name)


@pytest.mark.slow
@pytest.mark.statistical
def test_touches_miss_as_often_as_measured_and_slips_come_at_their_rate(tmp_path: Path) -> None:
    line = " ".join(itertools.islice(itertools.cycle(w for w in WORDS if w.isascii() and "'" not in w), 40)).split()
    words = held_out(write_words(tmp_path, [[line] * 10] * 300), np.arange(300))
    keys = geometry.keyboard("en-US", "".join(WORDS))
    patient = typist.MEDIAN.model_copy(update={"notice_key": 1e-12, "slip": 1e-12})
    few = held_out(write_words(tmp_path / "few", [[line] * 2] * 300), np.arange(300))
    meant = np.concatenate([keys.spell(few.spellings[word]) for word in few.word_P])
    # Several characters may share a key.
    own_A, missed = touch.nearest(keys, keys.x_A, keys.y_A), []
    for seed in range(1, 5):
        touches = touch.type_words(few, keys, patient, typist.draw(patient, 300, seed), seed)
        missed.append(np.mean(touch.nearest(keys, touches.x_T, touches.y_T) != own_A[meant]))
    # Who the 300 are moves it by half a point.
    assert 0.08 <= np.mean(missed) <= 0.09
    traits = typist.draw(patient, 300, 1)
    slipping = patient.model_copy(update={"slip": 0.01})
    touches = touch.type_words(words, keys, slipping, traits, 1)
    more = np.diff(touches.offsets_P1) - touches.letters_P
    # At most one slip a word; letters after a slip cannot slip again.
    letters = touches.letters_P
    first_or_none = (1 - 0.97**letters) / 0.03 * 0.01
    assert np.mean(more == 1) == pytest.approx(first_or_none.mean(), rel=0.05)
    assert np.mean(more == -1) == pytest.approx(first_or_none[letters > 1].sum() / len(letters), rel=0.06)


def test_a_cap_hears_everybody(tmp_path: Path) -> None:
    few = text(tmp_path / "few", max_words=60)
    assert 60 <= len(few.word_P) < 70
    assert set(few.device_S) >= set(range(12)) - {1}, "everybody's first sentence comes before a second"
    with pytest.raises(ValueError, match="no word to type"):
        keystrokes.prepare(text(tmp_path / "none", max_words=0), vocabulary(), "en-US", typist.MEDIAN, 1)
