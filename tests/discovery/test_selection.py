"""Which candidates are words, how frequent they are, and what the published numbers tell about who was asked."""

import numpy as np
import pytest
from scipy import stats

from discovery.device.answer import END, Question
from discovery.device.votes import ShardVotes
from discovery.results import FoundWord
from discovery.selection import rounded_down, rounded_up, share_interval, word_votes
from discovery.trie import choose, close_layer, question_of
from pretrain.writing.case import SIGNS
from tests.helpers.text.tries import trie_config

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def question(prefixes: int = 26, epsilon0: float = 4.0, contributions: int = 1, **fields: object) -> Question:
    """The second layer of a trie of ``prefixes`` words of one letter."""
    config = trie_config(epsilon0=epsilon0, messages_per_device=contributions, layers=5, max_prefixes=10_000, **fields)
    starts = [first + second for first in LETTERS for second in LETTERS][:prefixes]
    return question_of(3, tuple(sorted(starts)), LETTERS + END, frozenset(), config)


def finished(asked: Question) -> list[int]:
    """Items of finished candidates."""
    items = [asked.broadcast.item(prefix + END) for prefix in asked.broadcast.prefixes]
    return [item for item in items if item is not None]


def honest_votes(asked: Question, counts_d: np.ndarray, seed: int) -> np.ndarray:
    """Votes of as many honest messages of each item, each item's from their true distribution."""
    rng, randomizer = np.random.default_rng(seed), asked.randomizer
    others_d = counts_d.sum() - counts_d
    return rng.binomial(counts_d, randomizer.inclusion) + rng.binomial(others_d, randomizer.background)


def benjamini_hochberg(chances: list[float], rate: float) -> set[int]:
    """Which are discoveries, as the paper says it: the largest k with the k-th chance at most k rate / m."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    most = max(
        (k for k in range(1, len(chances) + 1) if chances[order[k - 1]] <= k * rate / len(chances)),
        default=0,
    )
    return set(order[:most])


@pytest.mark.slow
@pytest.mark.parametrize("real", [0, 3, 200])
def test_words_are_the_discoveries_of_the_paper_s_rule(real: int) -> None:
    asked = question(prefixes=300)
    ends, messages = finished(asked), 60_000
    rng = np.random.default_rng(real)
    for seed in range(20):
        counts_d = np.zeros(asked.broadcast.domain, dtype=np.int64)
        counts_d[ends[:real]] = rng.integers(1, 200, size=real)
        counts_d[-1] = messages - counts_d.sum()
        votes_d = honest_votes(asked, counts_d, seed)
        chances = stats.binom.sf(votes_d[ends] - 1, messages, asked.randomizer.background)
        needed = word_votes(asked, votes_d, messages)
        assert set(np.flatnonzero(votes_d[ends] >= needed)) == benjamini_hochberg(chances.tolist(), 0.05)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("real", "holders"), [(0, 0), (30, 400), (200, 290)])
def test_no_more_false_words_than_asked_for(real: int, holders: int) -> None:
    asked = question(prefixes=300)
    ends, messages, shares = finished(asked), 60_000, []
    counts_d = np.zeros(asked.broadcast.domain, dtype=np.int64)
    counts_d[ends[:real]] = holders
    counts_d[-1] = messages - counts_d.sum()
    for seed in range(200):
        votes_d = honest_votes(asked, counts_d, seed)
        accepted = votes_d[ends] >= word_votes(asked, votes_d, messages)
        shares.append(np.sum(accepted[real:]) / max(np.sum(accepted), 1))
    assert np.mean(shares) <= 0.05 + 3 * np.std(shares) / np.sqrt(200)
    assert np.sum(accepted[:real]) >= 0.9 * real


def test_one_device_makes_no_word() -> None:
    """With few messages a single vote is already significant, but it is one device's."""
    asked = question(epsilon0=8.0, contributions=4)
    votes_d = np.zeros(asked.broadcast.domain, dtype=np.int64)
    votes_d[finished(asked)[:20]] = 1
    assert word_votes(asked, votes_d, 44) == 2
    votes_d[finished(asked)[:3]] = 2
    assert word_votes(asked, votes_d, 44) == 2


def test_the_empty_word_is_none() -> None:
    config = trie_config(messages_per_device=1, layers=5, max_prefixes=99)
    first = question_of(1, ("",), LETTERS + END, frozenset(), config)
    assert not choose(first, np.full(28, 50), 50, word_votes(first, np.full(28, 50), 50)).words


def test_where_nothing_can_end_there_are_forms_to_tell_from_noise() -> None:
    """A later layer that asks of nothing but the forms of finished words."""
    config = trie_config(epsilon0=4.0, messages_per_device=1, layers=4, max_prefixes=10)
    asked = question_of(4, ("ab" + END, "ba" + END), LETTERS + END, frozenset(), config)
    assert not len(asked.broadcast.ends)
    noise_d = np.random.default_rng(0).binomial(100, asked.randomizer.background, asked.broadcast.domain)
    capital = asked.broadcast.item(f"ab{END}{SIGNS[1]}")
    votes_d = noise_d.copy()
    votes_d[capital] = 60
    for given_d, forms in ((noise_d, {}), (votes_d, {"ab": "capital"})):
        chosen = choose(asked, given_d, 100, word_votes(asked, given_d, 100))
        assert (chosen.words, chosen.forms) == ((), forms)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("epsilon0", "contributions"), [(4.0, 1), (8.0, 10), (20.0, 10)])
def test_intervals_of_chosen_words_hold_the_population_s_share(epsilon0: float, contributions: int) -> None:
    """Devices drawn anew each time, each holding a word in at most one message; only words that were chosen count."""
    asked = question(epsilon0=epsilon0, contributions=contributions)
    ends, devices = finished(asked), 4_000
    rng = np.random.default_rng(1)
    holder_chances = np.geomspace(0.002, 0.1 if contributions == 1 else 0.4, len(ends))
    inside = total = 0
    for seed in range(50):
        counts_d = np.zeros(asked.broadcast.domain, dtype=np.int64)
        counts_d[ends] = rng.binomial(devices, holder_chances)
        counts_d[-1] = devices * contributions - counts_d.sum()
        votes_d = honest_votes(asked, counts_d, seed)
        needed = word_votes(asked, votes_d, devices * contributions)
        words = choose(asked, votes_d, devices * contributions, needed).words
        for word in words:
            truth = holder_chances[asked.broadcast.prefixes.index(word.word)] / contributions
            assert word.low <= word.share <= word.high
            inside += word.low <= truth <= word.high
            total += 1
    assert total > 500
    assert 0.94 <= inside / total <= 0.99


def test_a_word_that_just_passed_may_be_as_rare_as_any() -> None:
    randomizer = question().randomizer
    assert share_interval(randomizer, 100, 100, 2_000, 1)[0] == 0.0
    low, high = share_interval(randomizer, 400, 100, 2_000, 1)
    assert 0 < low < (400 / 2_000 - randomizer.background) / (randomizer.inclusion - randomizer.background) < high


@pytest.mark.parametrize("devices", [1, 3, 9, 12])
def test_few_devices_have_wide_intervals_not_errors(devices: int) -> None:
    asked = question(epsilon0=8.0, contributions=4)
    votes_d = np.zeros(asked.broadcast.domain, dtype=np.int64)
    votes_d[finished(asked)[:4]] = devices
    words = close_layer(asked, ShardVotes(asked.stream, devices, votes_d)).words
    assert len(words) == (4 if devices > 1 else 0)
    assert all(0 <= word.low <= word.share <= word.high <= 1 for word in words)


@pytest.mark.parametrize("devices", [100, 109])
def test_published_numbers_are_those_of_whole_tens(devices: int) -> None:
    """Two layers that differ in devices alone, not in tens: what is published of them is the same."""
    asked = question(contributions=3)

    def published(count: int) -> dict:
        votes_d = np.full(asked.broadcast.domain, 3)
        return close_layer(asked, ShardVotes(asked.stream, count, votes_d)).row.model_dump(
            exclude={"asked", "messages"}
        )

    assert published(devices) == published(105) != published(111)
    assert (rounded_down(devices), rounded_up(devices)) == (100, 110)
    assert (rounded_down(9), rounded_up(9), rounded_down(100), rounded_up(100)) == (1, 10, 100, 110)


def test_a_word_that_stands_out_keeps_its_share_and_one_at_the_threshold_does_not() -> None:
    sure, unsure = (FoundWord(word="a", layer=2, share=0.04, low=0.0, high=0.04 + 1.96 * e) for e in (1e-4, 0.04))
    assert sure.shrunk == pytest.approx(0.04, rel=1e-4)
    assert unsure.shrunk == pytest.approx(0.02)
    # Most of what is estimated of rare words is noise: shrinking is closer to the truth on average.
    rng = np.random.default_rng(1)
    true = 0.01 * rng.pareto(2.0, 4000)
    seen = true + 0.01 * rng.standard_normal(4000)
    chosen = seen > 0.01
    shrunk = np.array(
        [FoundWord(word="a", layer=2, share=each, low=0.0, high=each + 0.0196).shrunk for each in seen[chosen]]
    )
    assert shrunk.min() > 0
    assert np.mean((shrunk - true[chosen]) ** 2) < 0.8 * np.mean((seen[chosen] - true[chosen]) ** 2)
