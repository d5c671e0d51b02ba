"""How many votes keep words back that too few devices hold. Votes are noisy already, so it costs no privacy."""

import numpy as np
from scipy import stats

from discovery.device.randomizer import SubsetSelection

# At most so probable is a word published that fewer messages hold than are asked for.
ANONYMITY_CHANCE = 1e-6


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
        published = publication_chance(randomizer, messages, holders - 1, middle)
        low, high = (low, middle) if published <= chance else (middle, high)
    return high


def publication_chance(randomizer: SubsetSelection, messages: int, held: int, votes: int) -> float:
    """Probability that an item in ``held`` of the messages gets at least ``votes``."""
    from_holders = stats.binom.pmf(np.arange(held + 1), held, randomizer.inclusion)
    from_others = stats.binom.sf(votes - 1 - np.arange(held + 1), messages - held, randomizer.background)
    return min(float(np.dot(from_holders, from_others)), 1.0)
