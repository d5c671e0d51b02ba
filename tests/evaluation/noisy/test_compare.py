"""A comparison under a budget: what is asked, what without noise it comes to, and that nothing else leaves."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from evaluation.arms.arm import PublicNGram
from evaluation.arms.held_out import held_out
from evaluation.comparison.compare import Entrants, Rules
from evaluation.noisy import compare as noisy
from evaluation.noisy.questions import CLIP_NORM, MOST_WORDS, WORDS, difference, fewest_devices, words_needed
from pretrain.ngrams.ngram import NGram
from pretrain.text.words import WordStore, write_words
from tests.helpers.text.typed_text import UNKNOWN, stream, vocabulary
from tests.helpers.text.typed_text import WORDS as POOL

BASE = 30
RULES = Rules(("NWP",), "en-US", "salt", 1, buckets=10, session_words=0)
Vectors = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> WordStore:
    rng, pool = np.random.default_rng(0), POOL + UNKNOWN

    def sentence() -> list[str]:
        places = [int(rng.integers(len(pool)))]
        for _ in range(5):
            places.append((places[-1] + 1) % len(pool) if rng.random() < 0.7 else int(rng.integers(len(pool))))
        return [pool[place] for place in places]

    owners = [[sentence() for _ in range(count)] for count in rng.integers(1, 14, size=90)]
    return write_words(tmp_path_factory.mktemp("store"), owners)


@pytest.fixture(scope="module")
def entrants(words: WordStore) -> Entrants:
    text = stream(held_out(words, np.arange(60, 90)), vocabulary())
    arms = {"start": 2, "private": 3, "champion": 1}
    models = {arm: PublicNGram(NGram.fit(text, vocabulary(), order)) for arm, order in arms.items()}
    pairs = (("private", "start"), ("private_history", "ngram_history"), ("private", "champion"))
    return Entrants(models, pairs, vocabulary(), BASE, len(vocabulary()))


def plainly(size: int, vectors: Vectors) -> np.ndarray:
    """Sums of clipped vectors, without noise."""
    rows = np.stack([values for _, values in vectors()])
    assert rows.shape[1] == size
    return (rows * np.minimum(1, CLIP_NORM / np.linalg.norm(rows, axis=1))[:, None]).sum(axis=0)


def data(words: WordStore) -> noisy.EvaluationData:
    return noisy.EvaluationData(words, np.arange(60), words)


def test_of_many_devices_the_first_words_are_scored(
    tmp_path: Path, entrants: Entrants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device counts as at most fifty words, so those of millions need not all be read."""
    short = [[POOL[first : first + 6] for first in range(9)] for _ in range(60)]
    longer = [[*texts, [POOL[0]] * 6] for texts in short]

    def total(owners: list[list[list[str]]]) -> np.ndarray:
        sums = []
        release = lambda size, rows: sums.append(plainly(size, rows)) or sums[0]  # noqa: E731
        words = write_words(tmp_path / str(len(list(tmp_path.iterdir()))), owners)
        noisy.compare(entrants, data(words), RULES, release, 1e-6)
        return sums[0]

    assert not np.array_equal(total(short), total(longer))
    monkeypatch.setattr(noisy, "SCORED_WORDS", 0)
    np.testing.assert_array_equal(total(short), total(longer))


def test_without_noise_it_says_what_the_devices_say(words: WordStore, entrants: Entrants) -> None:
    compared, covered = noisy.compare(entrants, data(words), RULES, plainly, 1e-6)
    parts = noisy.parts(entrants, held_out(words, np.arange(60)), RULES)
    weight = 1 / np.maximum(parts[WORDS], MOST_WORDS)
    total = np.sum(weight * parts[WORDS])
    table = compared.table
    assert table.differentially_private
    for metric in noisy.RECALLS:
        ours, gain = parts[metric], parts[difference(metric, "start")]
        # Some devices are scaled down as a whole, so not to the last digit.
        level = table.arm("private", metric).estimate
        assert level.value == pytest.approx(np.sum(weight * ours) / total, rel=0.05)
        told = table.difference("private", "start", metric)
        assert told.absolute.value == pytest.approx(np.sum(weight * gain) / total, rel=0.1, abs=0.005)
        start = table.arm("start", metric).estimate
        assert start.value == pytest.approx(level.value - told.absolute.value)
        assert told.relative.value == pytest.approx(told.absolute.value / start.value)
    assert covered.value == pytest.approx(
        np.sum(weight * parts[noisy.NEW]) / np.sum(weight * parts[noisy.UNKNOWN]), rel=0.05
    )
    assert [(row.candidate, row.baseline, row.passes) for row in compared.verdicts] == [
        ("private", "start", True),
        ("private", "champion", False),
    ] or all(row.candidate == "private" for row in compared.verdicts)


def test_a_paired_sum_is_one_of_differences(words: WordStore, entrants: Entrants) -> None:
    parts = noisy.parts(entrants, held_out(words, np.arange(60)), RULES)
    same = Entrants(
        {"private": entrants.arms["private"], "start": entrants.arms["private"]},
        (("private", "start"),),
        entrants.vocabulary,
        BASE,
        len(vocabulary()),
    )
    assert not noisy.parts(same, held_out(words, np.arange(60)), RULES)[difference("top1_recall", "start")].any()
    assert (parts[difference("top1_recall", "start")] < 0).any()
    assert (parts[difference("top1_recall", "champion")] > 0).any()


def test_nothing_else_of_the_devices_leaves(words: WordStore, entrants: Entrants) -> None:
    """Whatever the devices typed: with the same noisy sums the comparison is the same, to the last digit."""
    released = np.abs(np.random.default_rng(5).normal(60, 2, len(noisy.layout(entrants, RULES))))
    told = [
        noisy.compare(entrants, noisy.EvaluationData(words, devices, words), RULES, lambda size, vectors: released, 0.1)
        for devices in (np.arange(60), np.arange(30, 90))
    ]
    assert told[0][0].to_json() == told[1][0].to_json()
    assert told[0][1] == told[1][1]
    assert not told[0][0].head_words
    assert {row.part for row in told[0][0].slices} == {"new_words"}


def test_cells_follow_from_the_arms_alone(words: WordStore, entrants: Entrants) -> None:
    assert noisy.baselines(entrants) == ["start", "champion"]
    sizes = []

    def note(size: int, vectors: Vectors) -> np.ndarray:
        sizes.append(size)
        return plainly(size, vectors)

    for devices in (np.arange(60), np.arange(30, 90)):
        noisy.compare(entrants, noisy.EvaluationData(words, devices, words), RULES, note, 0.1)
    assert sizes == [len(noisy.layout(entrants, RULES))] * 2


def test_what_drowns_although_there_are_devices_enough_is_inconclusive_and_refused_by_nobody(
    words: WordStore, entrants: Entrants
) -> None:
    """Enough devices for this noise, if each typed 50 words; they typed a word or two, which nobody knows before."""
    noise_multiplier = 3.0
    assert fewest_devices(noise_multiplier) <= 60

    def of_few_words(size: int, vectors: Vectors) -> np.ndarray:
        assert size == len(noisy.layout(entrants, RULES))
        return plainly(size, vectors) / 20

    compared, coverage = noisy.compare(entrants, data(words), RULES, of_few_words, noise_multiplier)
    assert compared.table.drowned
    assert coverage is None
    for row in compared.table.arms:
        assert (row.estimate.low, row.estimate.high) == (0, 1)
        assert 0 <= row.estimate.value <= 1
        assert row.denominator >= 0
    for row in compared.table.differences:
        assert (row.absolute.low, row.absolute.high, row.relative) == (-1, 1, None)
    assert not any(verdict.passes for verdict in compared.verdicts)
    assert not any(check.clearly_worse for verdict in compared.verdicts for check in verdict.checks)
    assert not compared.slices
    assert not noisy.compare(entrants, data(words), RULES, plainly, 0.1)[0].table.drowned


def test_words_are_needed_as_the_fewest_devices_say() -> None:
    for noise_multiplier in (0.5, 1.0, 3.0):
        fewest = fewest_devices(noise_multiplier)
        assert words_needed(noise_multiplier, fewest) <= MOST_WORDS < words_needed(noise_multiplier, fewest - 1)
        assert fewest_devices(noise_multiplier, 5) == pytest.approx(10 * fewest, abs=10)
