"""Frequencies of discovered words among all typed words, from the shares that discovery states.

Shape legend: N discovered words.

Guarantee: both functions post-process what discovery released.
"""

import numpy as np

# Part of all typed words that a word takes, for each share of people who type it. It is the same for words of 0.1 to
# 30% of people: 0.003 of bloggers, 0.004 of learners' essays, 0.005 of texters, 0.006 of typed chat, 0.008 to 0.013 of
# public talk, 0.012 to 0.016 of programmers' questions: between rows of benchmarks/results/vocabulary.md, the part of
# text over the words and over their people. It is one over the words of a person, which no discovery hears.
TYPED_PER_HOLDER = 0.006


def of_messages(share_N: np.ndarray, messages_per_device: int) -> np.ndarray:
    """Frequency of each word, float64 ``[N]``, from its share of the messages of an LDP TrieHH.

    In the layer in which a word ends, devices are asked for the words still in the running, and a device tells up to
    ``messages_per_device`` of those that it holds. So the share of messages, times those of a device, is at most the
    share of devices that hold the word, and less where devices hold many.
    """
    holders_N = np.minimum(np.asarray(share_N, dtype=np.float64) * messages_per_device, 1.0)
    return TYPED_PER_HOLDER * holders_N


def of_contributions(share_N: np.ndarray, unknown: float) -> np.ndarray:
    """Frequency of each word, float64 ``[N]``, from its share of the total contribution to a central discovery.

    A device contributes all its words beyond the vocabulary, so the share is among those. It contributes a word once
    however often it types it; this is not corrected.

    Args:
      unknown: share of words beyond the vocabulary among all typed words, measured on public text.
    """
    return np.asarray(share_N, dtype=np.float64) * unknown
