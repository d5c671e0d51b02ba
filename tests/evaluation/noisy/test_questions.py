"""A device's vector: its own words and differences, a bounded number, in cells that text does not choose."""

import numpy as np
import pytest

from evaluation.noisy import questions
from evaluation.noisy.questions import (
    CLIP_NORM,
    FINE,
    MOST_WORDS,
    RARE,
    SOME,
    WORDS,
    Layout,
    Question,
    difference,
    vectors,
)

LEVEL, PAIR, NEW = (
    Question("top1"),
    Question(difference("top1", "start"), above=FINE),
    Question("new_top3", "new", RARE, SOME),
)
LAYOUT = Layout((LEVEL, PAIR, NEW))


def parts(words: list[float], top1: list[float], gain: list[float], new: list[float]) -> dict[str, np.ndarray]:
    named = {WORDS: words, "top1": top1, difference("top1", "start"): gain, "new": new}
    return {name: np.array(values, dtype=float) for name, values in named.items()} | {"new_top3": np.array(new) / 2}


def test_sums_come_back_by_name() -> None:
    added = parts([10, 40], [2, 4], [1, -3], [1, 0])
    total = np.sum([values for _, values in vectors(LAYOUT, added)], axis=0)
    sums = LAYOUT.read(total, CLIP_NORM)
    assert sums.value[WORDS] == pytest.approx(1.0)
    assert sums.value["top1"] == pytest.approx(6 / MOST_WORDS)
    assert sums.value["top1 minus start"] == pytest.approx(-2 / MOST_WORDS)
    assert sums.value["top1 minus start", "top1 minus start"] == pytest.approx(10 / MOST_WORDS**2)
    assert sums.value["top1 minus start", WORDS] == pytest.approx((10 - 120) / MOST_WORDS**2)
    assert sums.value["new_top3", "new"] == pytest.approx(0.5 / MOST_WORDS**2)
    # Differences stand in cells of their own, with less noise than what they are differences of.
    assert sums.deviation["top1 minus start"] == pytest.approx(CLIP_NORM / 4)
    assert sums.deviation["top1"] > 2 * sums.deviation["top1 minus start"]
    assert set(sums.value) == set(sums.deviation)
    assert len(sums.value) == len(LAYOUT)


def test_a_device_counts_as_so_many_words_by_its_own_rates() -> None:
    one, heavy = (LAYOUT.read(next(vectors(LAYOUT, parts([n * 50], [n * 5], [n], [0])))[1], 0.0).value for n in (1, 9))
    assert heavy == pytest.approx(one)


def test_what_is_not_finite_has_no_finite_norm() -> None:
    for words, top1 in ((np.nan, 1.0), (10.0, np.inf), (np.inf, np.inf)):
        cells, values = next(vectors(LAYOUT, parts([words], [top1], [0], [0])))
        assert not np.isfinite(np.linalg.norm(values))
        assert len(cells) == len(values) == len(LAYOUT)


def test_cells_follow_from_the_questions_alone() -> None:
    silent, talking = parts([0, 0], [0, 0], [0, 0], [0, 0]), parts([9, 8], [2, 3], [1, 0], [1, 1])
    for added in (silent, talking):
        for cells, values in vectors(LAYOUT, added):
            assert cells.tolist() == list(range(len(LAYOUT)))
            assert values.shape == (len(LAYOUT),)
    assert len(Layout((LEVEL, LEVEL, PAIR))) == len(Layout((LEVEL, PAIR))) == 8


def test_nearly_no_honest_device_is_scaled_down() -> None:
    rng = np.random.default_rng(1)
    words = np.minimum(np.exp(rng.normal(4.6, 1.3, 2000)).astype(int), 400)
    old = rng.binomial(words, 0.1)
    gain = rng.binomial(words - old, 0.04) - rng.binomial(old, 0.2)
    arms = ("start", "ngram", "public_mixture", "network", "counts", "champion")
    asked = [Question(f"top{k}") for k in (1, 3)]
    asked += [Question(difference(name, arm), above=FINE) for arm in arms for name in ["top1", "top3"]]
    added = {WORDS: words, "top1": old + gain, "top3": 2 * (old + gain)}
    added |= {question.numerator: gain for question in asked[2:]}
    norms = [np.linalg.norm(values) for _, values in vectors(Layout(tuple(asked)), added)]
    assert np.mean(np.array(norms) > questions.CLIP_NORM) < 0.1
    assert np.median(norms) > 0.5 * questions.CLIP_NORM


def test_typing_and_recall_share_the_noise() -> None:
    typed = Layout((LEVEL, Question("prate", questions.TYPED, unit=questions.TYPED)))
    assert typed.clip_norm == questions.clip_norm(typed=True) == pytest.approx(2**0.5 * LAYOUT.clip_norm)
    assert LAYOUT.clip_norm == CLIP_NORM
    assert questions.fewest_devices(2.0, typed=True) > questions.fewest_devices(2.0)
    # A sum of typing counts the words typed again, not those scored.
    counted = {WORDS: [400.0], "top1": [40.0], questions.TYPED: [50.0], "prate": [5.0]}
    made = typed.read(next(vectors(typed, {name: np.array(each) for name, each in counted.items()}))[1], 0.0).value
    assert made[WORDS] == made[questions.TYPED] == pytest.approx(1.0)
    assert made["prate"] == pytest.approx(0.1)
