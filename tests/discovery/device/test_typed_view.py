"""Digits and forms of words: they share votes up to the end of a word, and cost what they should."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from discovery import discover as trie
from discovery.device.answer import DIGIT, END, Broadcast, Question, letters_of, spelling, spelt, spoken_item
from discovery.device.randomizer import subset_selection
from discovery.trie import choose, question_of
from pretrain.writing.case import FORMS, SIGNS
from tests.helpers.text.tries import trie_config

CONFIG = trie_config(epsilon0=12.0, messages_per_device=3, max_prefixes=20)
LETTERS = letters_of("agr")
PREFIXES = ("a", "gr" + DIGIT, "gr" + DIGIT + END, "gr" + DIGIT + END + "8", "ra" + END)
CAPITAL, UPPER = SIGNS[1], SIGNS[2]


def question(layer: int, prefixes: tuple[str, ...]) -> Question:
    return question_of(layer, prefixes, LETTERS, frozenset({"the"}), CONFIG)


def test_a_path_is_the_word_its_end_its_digits_and_its_form() -> None:
    assert spelling("g2r8" + CAPITAL) == f"g{DIGIT}r{DIGIT}{END}28{CAPITAL}"
    assert spelling("ra") == "ra" + END + SIGNS[0]
    assert spelt(f"g{DIGIT}r{DIGIT}{END}28") == spelt(f"g{DIGIT}r{DIGIT}{END}28{CAPITAL}") == "g2r8"


def test_forms_and_digits_ask_for_a_handful_of_items_behind_the_end_alone() -> None:
    broadcast = Broadcast(4, PREFIXES, LETTERS)
    assert broadcast.domain == 2 * len(LETTERS) + 10 + 3 + 3 + 1
    candidates = [broadcast.candidate(item) for item in range(broadcast.none)]
    assert len(set(candidates)) == len(candidates)
    assert [broadcast.item(candidate) for candidate in candidates] == list(range(len(candidates)))
    ended = {candidates[item] for item in broadcast.ends.tolist()}
    assert ended == {"a" + END, f"gr{DIGIT}{END}", *(f"gr{DIGIT}{END}{digit}" for digit in "0123456789")}


@pytest.mark.parametrize(
    ("layer", "typed", "candidate"),
    [
        (4, "gr8", f"gr{DIGIT}{END}"),
        (4, "gr9" + UPPER, f"gr{DIGIT}{END}"),
        (5, "gr8", f"gr{DIGIT}{END}8"),
        (5, "gr9" + UPPER, f"gr{DIGIT}{END}9"),
        (6, "gr8" + CAPITAL, f"gr{DIGIT}{END}8{CAPITAL}"),
        (6, "gr9", None),
        (4, "ra" + UPPER, f"ra{END}{UPPER}"),
        (5, "ra" + UPPER, None),
        (4, "the" + CAPITAL, None),
        (2, "a" + CAPITAL, "a" + END),
    ],
)
def test_what_a_word_says_in_a_layer(layer: int, typed: str, candidate: str | None) -> None:
    broadcast = Broadcast(layer, PREFIXES, LETTERS)
    item = spoken_item(typed, frozenset({"the"}), broadcast, CONFIG)
    assert (None if item is None else broadcast.candidate(item)) == candidate


def test_one_changed_occurrence_moves_one_item_and_no_message_tells_more_than_epsilon0() -> None:
    """Every pair of neighbours over words that differ in digits and forms; then the law of a message, item by item."""
    words = ["gr8", "gr9" + CAPITAL, "ra", "ra" + UPPER, "ag" + CAPITAL, "the" + UPPER]
    for layer, prefixes in ((1, ("",)), (4, PREFIXES), (5, PREFIXES), (6, PREFIXES)):
        asked = question(layer, prefixes)
        said = {word: asked.item(word) for word in words}
        assert all(-1 <= item < asked.broadcast.none for item in said.values())
        for device in itertools.combinations_with_replacement(words, 3):
            for place, other in itertools.product(range(3), words):
                before, after = (
                    Counter(map(said.get, device)),
                    Counter(map(said.get, [*device[:place], other, *device[place + 1 :]])),
                )
                assert (before - after).total() <= 1
        law = asked.randomizer
        assert law.domain == asked.broadcast.domain
        assert law.inclusion / law.background <= np.exp(CONFIG.epsilon0) * (1 + 1e-9) or law.size > 1
        assert law == subset_selection(CONFIG.epsilon0, asked.broadcast.domain)


def votes(asked: Question, given: dict[str, int]) -> np.ndarray:
    votes_d = np.zeros(asked.broadcast.domain, dtype=np.int64)
    for candidate, count in given.items():
        item = asked.broadcast.item(candidate)
        assert item is not None
        votes_d[item] = count
    return votes_d


@pytest.mark.parametrize(
    ("given", "forms"),
    [
        ({SIGNS[0]: 30, CAPITAL: 29}, {}),
        ({SIGNS[0]: 30, CAPITAL: 30}, {}),
        ({SIGNS[0]: 20, CAPITAL: 30}, {"ra": "capital"}),
        ({CAPITAL: 9}, {}),
        ({CAPITAL: 15, UPPER: 16}, {"ra": "upper"}),
    ],
)
def test_a_form_stands_out_from_noise_and_from_the_word_s_other_forms(given: dict, forms: dict) -> None:
    asked = question(4, ("ra" + END,))
    chosen = choose(asked, votes(asked, {f"ra{END}{sign}": count for sign, count in given.items()}), 100, 10)
    assert (chosen.forms, chosen.words, chosen.prefixes) == (forms, (), ())


def test_a_word_with_a_digit_is_found_when_its_digit_is() -> None:
    ended, gr8 = f"gr{DIGIT}{END}", f"gr{DIGIT}{END}8"
    asked = question(4, (f"gr{DIGIT}", "rag"))
    chosen = choose(asked, votes(asked, {ended: 40, "rag" + END: 9, "raga": 3}), 100, 10)
    assert (chosen.words, chosen.prefixes) == ((), tuple(sorted([ended, "raga"])))
    asked = question(5, (ended,))
    chosen = choose(asked, votes(asked, {gr8: 40, ended + "9": 9}), 100, 10)
    assert ([word.word for word in chosen.words], chosen.prefixes) == (["gr8"], (gr8,))
    assert choose(question(6, (ended,)), votes(question(6, (ended,)), {gr8: 40}), 100, 10).prefixes == ()


def test_words_are_found_as_people_type_them(tmp_path: Path) -> None:
    people = [["byu" + UPPER, "gr8", "lol"] if row % 3 else ["byu", "utah" + CAPITAL, "lol"] for row in range(400)]
    found = trie.discover(
        people,
        known_words=frozenset({"the"}),
        alphabet="abghlortuy",
        config=CONFIG.model_copy(update={"layers": 6}),
        key=bytes(32),
        directory=tmp_path / "layers",
    )
    forms = {word.word: word.form for word in found.words}
    assert forms == {"byu": "upper", "gr8": "lower", "lol": "lower", "utah": "capital"}
    assert set(forms.values()) <= set(FORMS)
