"""Selection of words among the finished candidates of a layer, with estimates of their frequencies.

Everything here is post-processing of noisy votes and public numbers. The server knows the exact number of
messages; published figures are computed from that number rounded once to whole tens of devices, so that they
do not reveal the number itself.

Legend: d domain, M finished candidates of a layer.
"""

import math

import numpy as np
import scipy  # its parts are imported when they are used: statistics are half a second

from discovery.certificates.anonymity import ANONYMITY_CHANCE, anonymous_votes
from discovery.config import FALSE_DISCOVERY_RATE
from discovery.device.answer import Question
from discovery.device.randomizer import SubsetSelection, estimate_deviation

OUTSIDE = 0.025  # on either side of a 95% interval
_TENS = 10
# Largest probability of publishing a word in a single message, for any number of messages.
_ONE_HOLDER_CHANCE = 0.05


def rounded_down(devices: int) -> int:
    """Whole tens of devices, rounded down, at least one: for certificates and intervals."""
    return max(devices // _TENS * _TENS, 1)


def rounded_up(devices: int) -> int:
    """The next whole ten above: for thresholds against noise.

    Guarantee: beside the number rounded down it reveals nothing, while rounding to the nearest ten above would tell a
    whole ten from every other number.
    """
    return (devices // _TENS + 1) * _TENS


def word_votes(question: Question, votes_d: np.ndarray, messages: int) -> int:
    """Least votes that make a finished candidate a word.

    Against noise: of the words of a layer, on average at most ``FALSE_DISCOVERY_RATE`` are typed by nobody (Benjamini
    and Hochberg 1995, over all finished candidates of the layer, by the exact tail of ``Bin(n, q)``, which votes for an
    item that nobody holds follow). With few messages, one vote would suffice; so that no single device makes a word, a
    word in a single message passes with probability at most 5%.
    Against words of too few people: the votes that ``anonymity`` requires, if it is set.

    Args:
      messages: at least the number of received messages; a larger number is stricter.
    """
    config, randomizer = question.config, question.randomizer
    if question.broadcast.layer == 1:
        return messages + 1  # only the empty word ends here
    # Without endings, the layer asks only for forms of found words, which must be significant like words.
    finished_M = votes_d[question.broadcast.ends] if len(question.broadcast.ends) else votes_d[:-1]
    chances_M = np.sort(scipy.stats.binom.sf(finished_M - 1, messages, randomizer.background))
    allowed_M = FALSE_DISCOVERY_RATE * np.arange(1, len(chances_M) + 1) / len(chances_M)
    below = np.flatnonzero(chances_M <= allowed_M)
    accepted = below[-1] if len(below) else 0
    needed = significant_votes(randomizer, messages, float(allowed_M[accepted]))
    if messages > 1:
        needed = max(needed, anonymous_votes(randomizer, messages, 2, _ONE_HOLDER_CHANCE))
    if config.anonymity is None:
        return needed
    if config.anonymity > messages:
        return messages + 1
    return max(needed, anonymous_votes(randomizer, messages, config.anonymity, ANONYMITY_CHANCE))


def significant_votes(randomizer: SubsetSelection, messages: int, chance: float) -> int:
    """Least votes that an item without holders gets with at most this probability, by the exact binomial tail.

    With few messages ``n q`` is far below 1, and a normal tail would let two stray votes pass for a word.
    """
    votes = math.floor(messages * randomizer.background) + 1
    while True:
        # A hundred at a time: one value of the tail costs nearly as much.
        tails = scipy.stats.binom.sf(np.arange(votes - 1, votes + 99), messages, randomizer.background)
        if np.any(tails <= chance):
            return votes + int(np.argmax(tails <= chance))
        votes += 100


def share_interval(
    randomizer: SubsetSelection, votes: float, needed: float, devices: int, messages_per_device: int
) -> tuple[float, float]:
    """95% interval of the share of messages that would hold a word if every device of the population were asked.

    The interval covers the noise of the messages and the sampling of devices; a device sends a word in at most
    one of its messages. Selection by votes inflates the votes of rare words: the lower end is the share at which
    a word selected for at least ``needed`` votes has at least this many in 2.5% of cases (a conditional interval;
    Lee et al. 2016, *Exact Post-Selection Inference*, section 5). The upper end needs no correction, as
    selection never lowers votes.

    Args:
      votes, needed: scaled to the rounded number of devices.
    """
    messages = devices * messages_per_device
    gain = randomizer.inclusion - randomizer.background

    def moments(share: float) -> tuple[float, float]:
        held, holders = share * messages, min(share * messages_per_device, 1.0)
        noise = gain * estimate_deviation(randomizer, np.array(held), messages)
        return messages * randomizer.background + gain * held, math.hypot(
            noise, gain * math.sqrt(devices * holders * (1 - holders))
        )

    def chosen(share: float) -> float:
        mean, deviation = moments(share)
        # As ``stats.norm``, in a tenth of its time: the search calls it dozens of times for every word.
        as_many, enough = scipy.special.log_ndtr((mean + 0.5 - np.array([votes, needed])) / deviation)
        return float(as_many - enough - math.log(OUTSIDE))

    def plain(share: float) -> float:
        mean, deviation = moments(share)
        return float(scipy.special.log_ndtr((votes + 0.5 - mean) / deviation) - math.log(OUTSIDE))

    low = 0.0 if chosen(0.0) >= 0 else 1.0 if chosen(1.0) <= 0 else scipy.optimize.brentq(chosen, 0.0, 1.0, xtol=1e-12)
    high = 1.0 if plain(1.0) >= 0 else 0.0 if plain(0.0) <= 0 else scipy.optimize.brentq(plain, 0.0, 1.0, xtol=1e-12)
    return low, high
