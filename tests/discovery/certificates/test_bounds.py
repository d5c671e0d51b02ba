"""Certificates above what an attack reaches and above the exact loss; thresholds equal to their tails."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from discovery import trie
from discovery.certificates.anonymity import anonymous_holders, anonymous_votes, lemma_1, publication_chance
from discovery.certificates.attack import attack
from discovery.certificates.blanket import blanket, blanket_delta
from discovery.config import TrieConfig
from discovery.device.answer import END
from discovery.device.randomizer import SubsetSelection, of_size, subset_selection
from tests.helpers.text.tries import trie_config


def exact_delta(randomizer: SubsetSelection, messages: int, epsilon: float) -> float:
    """Worst hockey-stick divergence of shuffled messages over items x, y and every choice of the others."""
    subsets = list(itertools.combinations(range(randomizer.domain), randomizer.size))
    d, k, p = randomizer.domain, randomizer.size, randomizer.inclusion
    inside, outside = p / math.comb(d - 1, k - 1), (1 - p) / math.comb(d - 1, k)

    def law(values: tuple[int, ...]) -> Counter:
        total: Counter = Counter()
        for sent in itertools.product(subsets, repeat=len(values)):
            chance = math.prod(
                inside if value in subset else outside for value, subset in zip(values, sent, strict=True)
            )
            total[tuple(sorted(sent))] += chance
        return total

    worst = 0.0
    for others in itertools.combinations_with_replacement(range(d), messages - 1):
        one, other = law((0, *others)), law((1, *others))
        worst = max(worst, sum(max(one[sent] - math.exp(epsilon) * other[sent], 0.0) for sent in one))
    return worst


# d, k, epsilon0, messages, epsilon -> exact blanket (Balle et al. 2019, lemma 5.3), computed independently.
@pytest.mark.parametrize(
    ("domain", "size", "epsilon0", "messages", "epsilon", "exact_blanket"),
    [
        (3, 1, 1.0, 3, 0.2, 0.18987043492470426),
        (3, 1, 1.0, 3, 0.5, 0.10319650266732465),
        (3, 1, 1.0, 3, 0.8, 0.03466218544632334),
        (4, 2, 1.0, 4, 0.2, 0.13551558938083624),
        (4, 2, 1.0, 4, 0.8, 0.023443398093310534),
        (4, 2, 2.0, 4, 1.0, 0.24214260032987994),
    ],
)
def test_few_messages_against_every_outcome(domain, size, epsilon0, messages, epsilon, exact_blanket):
    randomizer = of_size(epsilon0, domain, size)
    bound = blanket_delta(randomizer, messages, epsilon, 1e-12)
    assert bound == pytest.approx(exact_blanket, rel=0.01)
    assert bound >= exact_blanket * (1 - 1e-9)
    if messages < 4:
        assert bound >= exact_delta(randomizer, messages, epsilon) - 1e-12


@pytest.mark.parametrize(("domain", "size", "epsilon0"), [(3, 1, 1.0), (4, 1, 2.0), (4, 2, 1.0)])
def test_the_attack_is_one(domain, size, epsilon0):
    """At its epsilon the exact delta is not below the one asked for, so no smaller epsilon is true."""
    randomizer = of_size(epsilon0, domain, size)
    for delta in (1e-3, 0.02, 0.05):
        reached = attack(randomizer, 3, delta)
        assert 0 < reached < epsilon0
        assert exact_delta(randomizer, 3, reached) >= delta * (1 - 1e-6)


def config(epsilon0: float, delta: float) -> TrieConfig:
    return trie_config(epsilon0=epsilon0, delta=delta, messages_per_device=1, layers=5, max_prefixes=100)


@pytest.mark.slow
def test_a_certificate_below_the_attack_is_refused(monkeypatch):
    randomizer = subset_selection(6.0, 1000)
    bounds = trie.certify(randomizer, config(8.0, 1e-8), 1_000_000)
    assert bounds["attack"] <= bounds["blanket"] <= bounds["clones"]
    # An unsound bound: noise that counts all messages as cover, not the half that is.
    monkeypatch.setattr(trie, "blanket", lambda randomizer, messages, delta: blanket(randomizer, 2 * messages, delta))
    with pytest.raises(ArithmeticError, match="attack"):
        trie.certify(randomizer, config(8.0, 1e-8), 1_000_000)


@pytest.mark.parametrize(("epsilon0", "messages"), [(60.0, 10**6), (8.0, 1), (8.0, 1150), (30.0, 1000)])
def test_no_help_from_few_messages(epsilon0, messages):
    prefixes = tuple(f"{number:03d}" for number in range(100))
    question = trie.question_of(4, prefixes, "abcdefghijklmnopqrstuvwxyz01" + END, frozenset(), config(epsilon0, 1e-6))
    assert question.randomizer == subset_selection(epsilon0, 2901)
    bounds = trie.certify(question.randomizer, question.config, messages)
    assert bounds["attack"] <= bounds["blanket"] <= bounds["clones"] <= epsilon0


@pytest.mark.parametrize("bound", [blanket, attack])
def test_bad_arguments_are_refused(bound):
    randomizer = subset_selection(1.0, 10)
    for messages, delta in ((0, 1e-6), (10, 0.0), (10, 1.0)):
        with pytest.raises(ValueError, match="expected above 0"):
            bound(randomizer, messages, delta)
    if bound is attack:
        with pytest.raises(ValueError, match="domain: 2"):
            bound(subset_selection(1.0, 2), 10, 1e-6)


def reached(randomizer: SubsetSelection, messages: int, held: int, votes: int) -> float:
    """P[Bin(held, p) + Bin(n - held, q) >= votes], summed."""
    p, q = randomizer.inclusion, randomizer.background

    def law(count: int, chance: float) -> np.ndarray:
        return np.array([math.comb(count, v) * chance**v * (1 - chance) ** (count - v) for v in range(count + 1)])

    return float(np.convolve(law(held, p), law(messages - held, q))[votes:].sum())


@pytest.mark.parametrize("holders", [1, 5, 20])
@pytest.mark.parametrize("chance", [0.2, 1e-3, 1e-6])
def test_anonymous_votes_is_the_least_number_within_the_chance(holders, chance):
    randomizer, messages = subset_selection(2.0, 30), 200
    votes = anonymous_votes(randomizer, messages, holders, chance)
    assert all(reached(randomizer, messages, held, votes) <= chance * (1 + 1e-9) for held in range(holders))
    assert reached(randomizer, messages, holders - 1, votes - 1) > chance


def test_anonymous_votes_of_the_paper_s_scale():
    # epsilon0 10, 500,000 devices of 60 messages, domain 1e6, 20 holders, chance 1e-6: computed independently.
    assert anonymous_votes(subset_selection(10.0, 1_000_001), 30_000_000, 20, 1e-6) == pytest.approx(1524, abs=2)


@pytest.mark.parametrize(("holders", "chance"), [(0, 0.1), (11, 0.1), (2, 0.0), (2, 1.0)])
def test_impossible_anonymity_is_refused(holders, chance):
    with pytest.raises(ValueError, match="holders, chance"):
        anonymous_votes(subset_selection(1.0, 10), 10, holders, chance)


def test_publication_chance_is_the_sum():
    randomizer, count = subset_selection(2.0, 30), 200
    for held, votes in ((0, 20), (1, 27), (7, 30), (200, 150)):
        assert publication_chance(randomizer, count, held, votes) == pytest.approx(
            reached(randomizer, count, held, votes), rel=1e-9
        )
    assert publication_chance(randomizer, count, 3, 0) == 1.0


@pytest.mark.parametrize("votes", [1, 12, 20, 30, 60, 200])
@pytest.mark.parametrize("chance", [0.2, 1e-3, 1e-6])
def test_anonymous_holders_is_the_largest_number_within_the_chance(votes, chance):
    randomizer, messages = subset_selection(2.0, 30), 200
    holders = anonymous_holders(randomizer, messages, votes, chance)
    assert all(reached(randomizer, messages, held, votes) <= chance * (1 + 1e-9) for held in range(holders))
    if holders < messages:  # it never says more than that all messages hold a word
        assert reached(randomizer, messages, holders, votes) > chance
    if holders:
        assert anonymous_votes(randomizer, messages, min(holders, messages), chance) <= votes


# epsilon0, messages, kept, domain, holders -> lemma 1, computed independently.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon0", "messages", "kept", "domain", "holders", "figure"),
    [
        (10, 30_000_000, 10_000, 1_000_001, 20, 0.21775993),
        (10, 30_000_000, 10_000, 1_000_001, 50, 0.355),
        (8, 2_000_000, 2_000, 200_001, 50, 0.23729681),
        (6, 10_000_000, 2_000, 200_001, 100, 0.06766513),
    ],
)
def test_lemma_1_as_in_the_paper(epsilon0, messages, kept, domain, holders, figure):
    randomizer = subset_selection(float(epsilon0), domain)
    assert lemma_1(randomizer, messages, kept, holders) == pytest.approx(figure, rel=2e-3)
    assert lemma_1(randomizer, messages, kept, holders) <= figure * 1.001
    assert lemma_1(randomizer, messages, kept, 1) >= kept / domain


@pytest.mark.parametrize(("domain", "size"), [(20, 1), (20, 2), (3, 1), (2, 1)])
def test_lemma_1_says_nothing_about_small_messages(domain, size):
    assert lemma_1(of_size(2.0, domain, size), 1000, 5, 10) == 1.0


@pytest.mark.slow
@pytest.mark.statistical
def test_lemma_1_holds_where_it_can_be_simulated():
    """A rare item is kept no more often than the lemma allows, and about as often as it must be."""
    randomizer, count, kept, holders = of_size(2.0, 60, 12), 400, 5, 3
    rng = np.random.default_rng(0)
    stayed, runs = 0, 300
    for _ in range(runs):
        votes = np.zeros(60)
        for number in range(count):
            value = 0 if number < holders else 1 + number % 8
            others = np.delete(np.arange(60), value)
            included = rng.random() < randomizer.inclusion
            votes[rng.choice(others, size=12 - included, replace=False)] += 1
            votes[value] += included
        stayed += votes[0] >= np.sort(votes)[-kept]
    assert stayed / runs <= lemma_1(randomizer, count, kept, holders) + 0.03
