"""The projection of coverage against devices that really answer, and what it refuses."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from discovery import discover as trie
from discovery import projection, state
from discovery.device.answer import sample
from discovery.device.keystream import Keystream
from discovery.device.randomizer import SubsetSelection, of_size
from discovery.device.typed import TypedWords
from tests.helpers.text.tries import trie_config

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONFIG = trie_config(epsilon0=6.0, messages_per_device=3, max_prefixes=60)


def public_counts() -> dict[str, int]:
    """400 words of up to five letters by Zipf's law."""
    rng = np.random.default_rng(4)
    words: dict[str, None] = {}
    while len(words) < 400:
        words["".join(rng.choice(list(LETTERS[:12]), size=rng.integers(2, 6)))] = None
    return {word: 1_000_000 // rank for rank, word in enumerate(words, start=1)}


COUNTS = public_counts()
VOCABULARY = tuple(COUNTS)[:200]


def pretended(devices: int, words: int = 120) -> projection.PretendedTypists:
    return projection.typists("made up for this test, CC0", COUNTS, VOCABULARY, devices, words)


def honest(who: projection.PretendedTypists, seed: int) -> TypedWords:
    """Devices that type as the projection pretends: only words that they may speak of."""
    rng = np.random.default_rng(seed)
    rate = who.words_per_device * who.shares_V.sum()
    lengths = rng.poisson(rate, size=who.devices)
    numbers = rng.choice(len(who.words), size=lengths.sum(), p=who.shares_V / who.shares_V.sum())
    return TypedWords(who.words, np.concatenate([[0], np.cumsum(lengths)]), numbers.astype(np.int32))


def test_one_word_in_twenty_is_held_out_and_text_outside_of_the_vocabulary_competes():
    who = pretended(100)
    assert [word for word, wanted in zip(who.words, who.wanted_V, strict=True) if wanted] == list(VOCABULARY[19::20])
    assert set(who.words) == set(COUNTS) - who.known_words
    assert who.known_words == set(VOCABULARY) - set(VOCABULARY[19::20])
    expected = [COUNTS[word] / sum(COUNTS.values()) for word in who.words]
    assert who.shares_V.tolist() == pytest.approx(expected)


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("typed", [2.0, 15.0])
def test_chances_are_those_of_the_sampler_of_devices(typed):
    rates = typed * np.array([0.4, 0.2, 0.1, 0.1, 0.08, 0.06, 0.04, 0.02])
    rng, bits, devices = np.random.default_rng(1), Keystream(bytes(32), "random"), 20_000
    counts = rng.poisson(rates, size=(devices, len(rates)))
    sent = np.zeros(len(rates) + 1)
    for row in counts.tolist():
        held = {item: count for item, count in enumerate(row) if count}
        sent += np.bincount(sample(held, 3, "random", len(rates), bits), minlength=len(rates) + 1).clip(max=3)
    seen, said = sent[:-1] / devices, projection.spoken_chances(rates, CONFIG)
    # Rivals are taken for Poisson.
    assert np.abs(seen - said).max() < 0.06
    assert said.sum() <= 3 + 1e-9
    # Chances in proportion to how often a word is typed would be noticed.
    if typed > 10:
        assert np.abs(seen - 3 * rates / rates.sum()).max() > 0.2


@pytest.mark.slow
@pytest.mark.statistical
def test_a_projection_is_near_what_devices_that_really_answer_give(tmp_path: Path):
    config, who, runs = CONFIG.model_copy(update={"epsilon0": 4.0}), pretended(16_000), range(2)
    wanted = dict(zip(who.words, np.where(who.wanted_V, who.shares_V, 0.0), strict=True))

    def projected(epsilon0: float, runs: Sequence[int]) -> tuple[float, float]:
        points = [projection.project(who, LETTERS, config, [epsilon0], seed)[0] for seed in runs]
        return np.mean([point.coverage for point in points]), np.mean([point.words for point in points])

    seen = []
    for seed in runs:
        typed, folder = honest(who, seed), tmp_path / str(seed)
        found = trie.discover(
            typed,
            known_words=who.known_words,
            alphabet=LETTERS,
            config=config,
            key=bytes(31) + bytes([seed]),
            directory=folder,
        ).words
        seen.append((sum(wanted.get(word.word, 0.0) for word in found) / sum(wanted.values()), len(found)))
    covered, words = np.mean(seen, axis=0)
    near = projected(config.epsilon0, runs)
    assert near[0] == pytest.approx(covered, abs=0.1)
    assert near[1] == pytest.approx(words, rel=0.25)
    for other in (config.epsilon0 - 1.5, config.epsilon0 + 1.5):
        assert projected(other, runs[:1])[1] != pytest.approx(words, rel=0.25)


@pytest.mark.slow
def test_it_is_the_same_every_time_and_rises_with_epsilon():
    points = projection.project(pretended(4_000), LETTERS, CONFIG, (8.0, 2.0, 8.0, 4.0), 3)
    assert [point.epsilon0 for point in points] == [2.0, 4.0, 8.0]
    assert points == projection.project(pretended(4_000), LETTERS, CONFIG, (2.0, 4.0, 8.0), 3)
    assert [point.coverage for point in points] == sorted(point.coverage for point in points)
    assert points[0].coverage < points[-1].coverage
    assert max(point.false_words for point in points) <= 2


def test_nobody_to_ask_finds_nothing():
    (point,) = projection.project(pretended(3), LETTERS, CONFIG, [8.0], 0)
    assert (point.coverage, point.words) == (0.0, 0)


def test_a_text_of_unknown_origin_is_refused():
    with pytest.raises(ValueError, match="source"):
        projection.typists(" ", COUNTS, VOCABULARY, 100, 50)
    with pytest.raises(ValueError, match="words: none is held out"):
        projection.typists("made up", COUNTS, VOCABULARY[:19], 100, 50)


def test_what_only_the_projection_reads_does_not_make_another_discovery():
    typed, other = TypedWords.gather([["ab"]]), CONFIG.model_copy(update={"blocklist": "list.txt"})
    same = [state.fingerprint(typed, frozenset(), LETTERS, config, bytes(32)) for config in (CONFIG, other)]
    assert same[0] == same[1]
    assert same[0] != state.fingerprint(
        typed, frozenset(), LETTERS, CONFIG.model_copy(update={"epsilon0": 5.0}), bytes(32)
    )


ITEM_COUNTS = np.array([50, 20, 10, 5, 5, 5, 3, 2])
RANDOMIZER = of_size(1.0, 8, 3)


@pytest.mark.slow
@pytest.mark.statistical
def test_simulated_votes_have_the_law_of_honest_ones_item_by_item():
    public = projection.PublicHistogram("made up for this test, CC0", ITEM_COUNTS)
    others = ITEM_COUNTS.sum() - ITEM_COUNTS

    def accepted(votes: np.ndarray) -> bool:
        p, q = RANDOMIZER.inclusion, RANDOMIZER.background
        variance = ITEM_COUNTS * p * (1 - p) + others * q * (1 - q)
        errors = (votes.mean(axis=0) - ITEM_COUNTS * p - others * q) / np.sqrt(variance / len(votes))
        return bool(np.all(np.abs(errors) < 4.5) and np.all(np.abs(votes.var(axis=0) / variance - 1) < 0.15))

    def simulated(randomizer: SubsetSelection) -> np.ndarray:
        return np.stack([projection.votes_for_tuning_only(public, randomizer, seed) for seed in range(4000)])

    assert accepted(simulated(RANDOMIZER))
    assert not accepted(simulated(of_size(1.1, 8, 3)))
    assert not accepted(2 * simulated(RANDOMIZER) - simulated(RANDOMIZER).mean(axis=0))


@pytest.mark.parametrize(
    ("histogram", "named"),
    [
        (ITEM_COUNTS, "only a PublicHistogram"),
        (TypedWords.gather([["secret"]]), "only a PublicHistogram"),
        (projection.PublicHistogram("x", ITEM_COUNTS[:-1]), "7 items"),
    ],
    ids=["counts", "devices", "other domain"],
)
def test_private_data_are_refused(histogram, named):
    with pytest.raises(ValueError, match=named):
        projection.votes_for_tuning_only(histogram, RANDOMIZER, 0)


@pytest.mark.parametrize(
    ("source", "counts", "named"),
    [
        (" ", ITEM_COUNTS, "source"),
        ("x", TypedWords.gather([["secret"]]), "devices cannot"),
        ("x", ITEM_COUNTS * 0.5, "whole numbers"),
        ("x", -ITEM_COUNTS, "at least 0"),
        ("x", ITEM_COUNTS * 0, "between 1"),
    ],
)
def test_what_is_no_public_histogram_is_refused(source, counts, named):
    with pytest.raises(ValueError, match=named):
        projection.PublicHistogram(source, counts)


def test_coverage_is_a_share_of_tokens() -> None:
    assert projection.coverage(["haha", "lol", "lol"], [{"haha": 6, "xyzzy": 2}], 0.9) == (0.75, 0.0, 1.0)
    assert projection.coverage(["haha"], [{}], 0.9)[0] == projection.coverage(["haha"], [], 0.9)[0] == 0.0


def test_coverage_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    rates, sizes = rng.beta(2, 3, size=20_000), rng.integers(0, 60, size=20_000)
    covered = rng.binomial(sizes, rates)
    truth = covered.sum() / sizes.sum()
    hits = too_narrow = 0
    for sample_of in rng.integers(0, 20_000, size=(300, 80)):
        devices = [{"haha": int(covered[d]), "zzz": int(sizes[d] - covered[d])} for d in sample_of]
        share, low, high = projection.coverage(["haha"], devices, 0.95)
        hits += low <= truth <= high
        total = sum(sum(counts.values()) for counts in devices)
        assert share == sum(counts["haha"] for counts in devices) / total
        # Tokens of a device are alike: an interval that counts tokens is too narrow.
        too_narrow += abs(share - truth) <= 1.96 * np.sqrt(share * (1 - share) / total)
    assert 0.91 <= hits / 300 <= 0.98
    assert too_narrow / 300 < 0.75
    assert projection.coverage(["haha"], [{}, {}], 0.9) == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="confidence"):
        projection.coverage(["haha"], [{"haha": 1}], 1.0)
