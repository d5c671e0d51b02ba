"""How many votes make a word: thresholds against noise and against words that too few devices hold.

Both look at votes, which are noisy already, so they cost no privacy.
"""

import math

import numpy as np
from scipy import stats

from discovery.device.randomizer import SubsetSelection


def significant_votes(randomizer: SubsetSelection, messages: int, z: float) -> int:
    """Least votes that noise alone reaches with at most the upper tail probability of z deviations.

    By the exact binomial tail: with few messages ``n q`` is far below 1 and ``n q + z sqrt(n q)``
    would let two stray votes pass for a word.
    """
    tail = stats.norm.sf(z)
    votes = math.floor(messages * randomizer.background) + 1
    while stats.binom.sf(votes - 1, messages, randomizer.background) > tail:
        votes += 1
    return votes


def anonymous_votes(randomizer: SubsetSelection, messages: int, holders: int, chance: float) -> int:
    """Least votes that an item in fewer than ``holders`` messages reaches with at most ``chance``.

    Guarantee: a word that is published only with this many votes is (holders, chance)-anonymous
    (Sun & Sun 2024, definition 3), exactly: the votes for an item in m of n messages are
    ``Bin(m, p) + Bin(n - m, q)``. It says nothing that local privacy does not; it can be stated in
    people when every device sends an item at most once, which is so.

    Raises:
      ValueError: fewer than one holder or more than messages, or a chance outside (0, 1).
    """
    if not (1 <= holders <= messages and 0 < chance < 1):
        raise ValueError(
            f"holders, chance: got {holders}, {chance}; expected from 1 to the {messages} messages, and within (0, 1)"
        )
    low, high = 0, messages + 1  # so many votes do not exist
    while high - low > 1:
        middle = (low + high) // 2
        reached = publication_chance(randomizer, messages, holders - 1, middle)
        low, high = (low, middle) if reached <= chance else (middle, high)
    return high


def publication_chance(randomizer: SubsetSelection, messages: int, held: int, votes: int) -> float:
    """Probability that an item in ``held`` of the messages gets at least ``votes``."""
    own = stats.binom.pmf(np.arange(held + 1), held, randomizer.inclusion)
    others = stats.binom.sf(votes - 1 - np.arange(held + 1), messages - held, randomizer.background)
    return min(float(np.dot(own, others)), 1.0)


def lemma_1(randomizer: SubsetSelection, messages: int, kept: int, holders: int) -> float:
    """Bound on the probability that an item in ``holders`` messages is among the ``kept`` with most votes.

    Sun & Sun 2024, lemma 1, to compare with the paper: (holders, result)-approximate k-anonymity where no
    absolute threshold is set. It cannot be below kept / domain, as an item nobody holds is kept that
    often; state ``anonymous_votes`` instead where it counts. 1 where the lemma says nothing.

    The kept-th largest of the other items' votes is at least that of uniform (k - 2)-subsets; whether it
    falls below a number is bounded by Chernoff's inequality, which negatively associated counts obey.
    """
    others = randomizer.domain - 2
    chance = (randomizer.size - 2) / others if others else 0.0
    if chance <= 0:
        return 1.0
    # From the middle of the votes, where nearly all items reach, to where fewer than ``kept`` are expected to.
    low, high = math.floor(messages * chance), messages
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if others * stats.binom.sf(middle - 1, messages, chance) > kept else (low, middle)
    best = 1.0
    for votes in range(math.floor(messages * chance), low + 1):
        expected = others * float(stats.binom.sf(votes - 1, messages, chance))
        if expected > kept:
            below = math.exp(-((1 - kept / expected) ** 2) * expected / 2)
            best = min(best, publication_chance(randomizer, messages, holders, votes) + below)
    return best
