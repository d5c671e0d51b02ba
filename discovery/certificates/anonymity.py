"""Vote thresholds that withhold words of too few devices. Votes are already noisy, so thresholds cost no privacy."""

import math

import numpy as np
import scipy  # see discovery.selection

from discovery.device.randomizer import SubsetSelection

# Largest probability of publishing a word in fewer messages than required.
ANONYMITY_CHANCE = 1e-6


def anonymous_votes(randomizer: SubsetSelection, messages: int, holders: int, chance: float) -> int:
    """Least votes that an item in fewer than ``holders`` messages reaches with at most ``chance``.

    Guarantee: a word that is published only with this many votes is (holders, chance)-anonymous
    (Sun & Sun 2024, definition 3), exactly: the votes for an item in m of n messages are
    ``Bin(m, p) + Bin(n - m, q)``. It adds nothing to local privacy. It can be stated in people because
    every device sends an item at most once.

    Raises:
      ValueError: fewer than one holder or more than messages, or a chance outside (0, 1).
    """
    if not (1 <= holders <= messages and 0 < chance < 1):
        raise ValueError(
            f"holders, chance: got {holders}, {chance}; expected from 1 to the {messages} messages, and within (0, 1)"
        )
    low, high = 0, messages + 1  # one more than the largest possible number of votes
    while high - low > 1:
        middle = (low + high) // 2
        published = publication_chance(randomizer, messages, holders - 1, middle)
        low, high = (low, middle) if published <= chance else (middle, high)
    return high


def publication_chance(randomizer: SubsetSelection, messages: int, held: int, votes: int) -> float:
    """Probability that an item in ``held`` of the messages gets at least ``votes``."""
    from_holders = scipy.stats.binom.pmf(np.arange(held + 1), held, randomizer.inclusion)
    from_others = scipy.stats.binom.sf(votes - 1 - np.arange(held + 1), messages - held, randomizer.background)
    return min(float(np.dot(from_holders, from_others)), 1.0)


def anonymous_holders(randomizer: SubsetSelection, messages: int, votes: int, chance: float) -> int:
    """The largest k for which a word in fewer than k messages is published with at most this chance.

    This is the inverse of ``anonymous_votes``, for a threshold set for any reason. The result is 0 if even a word
    without holders is published more often; k is at most the number of messages.

    Guarantee: a word that needs at least ``votes`` votes is (k, chance)-anonymous.
    """
    low, high = 0, messages + 1  # fewer than 0 hold no word; more than all is nobody
    while high - low > 1:
        middle = (low + high) // 2
        safe = publication_chance(randomizer, messages, middle - 1, votes) <= chance
        low, high = (middle, high) if safe else (low, middle)
    return low


def lemma_1(randomizer: SubsetSelection, messages: int, most: int, holders: int) -> float:
    """Bound on the probability that an item in ``holders`` messages is among the ``most`` with most votes.

    Sun & Sun 2024, lemma 1, to compare with the paper: (holders, result)-approximate k-anonymity where no
    absolute threshold is set. It is at least most / domain, as an item without holders is kept that
    often; state ``anonymous_votes`` instead where it matters. The result is 1 if the lemma gives no bound.

    The ``most``-th largest of the other items' votes is at least that of uniform (k - 2)-subsets; whether it
    falls below a number is bounded by Chernoff's inequality, which negatively associated counts obey.
    """
    others = randomizer.domain - 2
    chance = (randomizer.size - 2) / others if others else 0.0
    if chance <= 0:
        return 1.0
    # From the middle of the votes, where nearly all items reach, to where fewer than ``most`` are expected to.
    low, high = math.floor(messages * chance), messages
    while high - low > 1:
        middle = (low + high) // 2
        too_few = others * scipy.stats.binom.sf(middle - 1, messages, chance) > most
        low, high = (middle, high) if too_few else (low, middle)
    best = 1.0
    for votes in range(math.floor(messages * chance), low + 1):
        expected = others * float(scipy.stats.binom.sf(votes - 1, messages, chance))
        if expected > most:
            below = math.exp(-((1 - most / expected) ** 2) * expected / 2)
            best = min(best, publication_chance(randomizer, messages, holders, votes) + below)
    return best
