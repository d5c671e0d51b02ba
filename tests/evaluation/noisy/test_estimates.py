"""Ratios of noisy sums: the textbook's variance without noise, and intervals that cover with it."""

import math

import numpy as np
import pytest

from evaluation.arms.held_out import Ratio
from evaluation.comparison.verdicts import delta_error
from evaluation.noisy.estimates import estimate
from evaluation.noisy.questions import (
    CLIP_NORM,
    FINE,
    LEAST_DENOMINATOR,
    MOST_WORDS,
    WORDS,
    Layout,
    Question,
    difference,
    vectors,
)

QUESTIONS = (Question("top1"), Question(difference("top1", "start"), above=FINE))
LAYOUT = Layout(QUESTIONS)


def typed(devices: int, seed: int) -> dict[str, np.ndarray]:
    """What each device adds: heavy and light ones, each with rates of its own."""
    rng = np.random.default_rng(seed)
    words = np.minimum(np.exp(rng.normal(4.6, 1.3, devices)).astype(int), 400)
    start = rng.binomial(words, rng.beta(6, 54, devices))
    gain = rng.binomial(words - start, 0.045 * rng.gamma(8, 1 / 8, devices)) - rng.binomial(start, 0.2)
    return {WORDS: words.astype(float), "top1": start + gain, QUESTIONS[1].numerator: gain}


def clipped(added: dict[str, np.ndarray]) -> np.ndarray:
    rows = np.stack([values for _, values in vectors(LAYOUT, added)])
    return rows * np.minimum(1, CLIP_NORM / np.maximum(np.linalg.norm(rows, axis=1), 1e-9))[:, None]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.numerator)
def test_without_noise_it_is_the_delta_method_over_devices(question: Question) -> None:
    added = {name: np.minimum(values, MOST_WORDS) for name, values in typed(300, 1).items()}
    rows = np.stack([values for _, values in vectors(LAYOUT, added)])
    made = estimate(question, LAYOUT.read(rows.sum(axis=0), 0.0), 0.95)
    ratio: Ratio = (added[question.numerator], added[WORDS])
    nothing: Ratio = (np.zeros(300), added[WORDS])
    assert made.value == pytest.approx(ratio[0].sum() / ratio[1].sum())
    assert made.standard_error == pytest.approx(delta_error(ratio, nothing), rel=0.01)
    # t with about as many degrees of freedom as there are whole devices.
    assert (made.high - made.low) / (2 * made.standard_error) == pytest.approx(1.96, abs=0.03)


def test_known_noise_is_in_the_interval() -> None:
    total = clipped(typed(300, 1)).sum(axis=0)
    quiet, loud = (estimate(QUESTIONS[1], LAYOUT.read(total, z * CLIP_NORM), 0.95) for z in (0.0, 3.0))
    deviation = LAYOUT.read(total, 3 * CLIP_NORM).deviation
    words = LAYOUT.read(total, 0.0).value[WORDS]
    noise = math.hypot(deviation["top1 minus start"], quiet.value * deviation[WORDS]) / words
    assert loud.standard_error == pytest.approx(math.hypot(quiet.standard_error, noise))
    assert loud.value == quiet.value


def test_a_denominator_lost_in_noise_has_no_ratio() -> None:
    total = clipped(typed(300, 1)).sum(axis=0)
    words = LAYOUT.read(total, 0.0).value[WORDS]
    z = 0.5 * words / (LEAST_DENOMINATOR * CLIP_NORM)
    assert estimate(QUESTIONS[0], LAYOUT.read(total, 0.99 * z * CLIP_NORM), 0.95) is not None
    assert estimate(QUESTIONS[0], LAYOUT.read(total, 1.01 * z * CLIP_NORM), 0.95) is None
    assert estimate(QUESTIONS[0], LAYOUT.read(-total, CLIP_NORM), 0.95) is None


def test_a_variance_below_its_own_noise_refuses_nothing() -> None:
    """So little noise that the rest of it exceeds the variance of devices that are all alike."""
    words = np.full(100, 50.0)
    added = {WORDS: words, "top1": words / 10, QUESTIONS[1].numerator: np.zeros(100)}
    total = np.sum([values for _, values in vectors(LAYOUT, added)], axis=0)
    total[list(LAYOUT.products).index(("top1", "top1")) + len(LAYOUT.weights)] += 1e-7
    made = estimate(QUESTIONS[0], LAYOUT.read(total, 2.0**-24 * CLIP_NORM), 0.95)
    assert made.low < made.value < made.high


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("noise_multiplier", [1.0, 4.0])
def test_intervals_cover(noise_multiplier: float) -> None:
    """500 launches of 263 devices; 2,000 stand in benchmarks/results/2026-11-23-noisy-evaluation.md."""
    rng, people = np.random.default_rng(2), clipped(typed(20_000, 3))
    truth = LAYOUT.read(people.sum(axis=0), 0.0).value
    covered = dict.fromkeys(QUESTIONS, 0)
    for _ in range(500):
        total = people[rng.integers(len(people), size=263)].sum(axis=0)
        noisy = total + noise_multiplier * CLIP_NORM * rng.normal(size=len(LAYOUT))
        sums = LAYOUT.read(noisy, noise_multiplier * CLIP_NORM)
        for question in QUESTIONS:
            made = estimate(question, sums, 0.95)
            covered[question] += made.low <= truth[question.numerator] / truth[WORDS] <= made.high
    # 95% of 500, and three standard deviations of that.
    assert all(475 - 15 <= count <= 475 + 15 for count in covered.values()), covered
