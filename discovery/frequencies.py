"""How often people type a discovered word, from the share that its discovery states.

Shape legend: N discovered words.

Guarantee of both: post-processing of what discovery released.
"""

import numpy as np

# A word beyond the vocabulary that a share p of people type is this times p of all that they type: 0.005 to 0.018 in
# four populations, where 3 to 30% of people type it (benchmarks/results/vocabulary.md).
_OF_ALL_TYPED = 0.01


def of_messages(share_N: np.ndarray, messages_per_device: int) -> np.ndarray:
    """Share of each word among all typed words, float64 ``[N]``, from its share of the messages of an LDP TrieHH.

    In the layer in which a word ends, devices are asked for the words still in the running, and one that holds such a
    word tells it. So the share of messages, times those of a device, is the share of devices that hold the word. How
    much a device types they do not say: the ratio to all that is typed is that of other people.
    """
    holders_N = np.minimum(np.asarray(share_N, dtype=np.float64) * messages_per_device, 1.0)
    return _OF_ALL_TYPED * holders_N


def of_contributions(share_N: np.ndarray, unknown: float) -> np.ndarray:
    """The same from shares of the total contribution to a central discovery.

    It hears all words of a device beyond the vocabulary, so its shares are among those. That a device tells a word once
    however often it types it is left as it is.

    Args:
      unknown: share of words beyond the vocabulary among all typed words; public text tells it of the same vocabulary.
    """
    return np.asarray(share_N, dtype=np.float64) * unknown
