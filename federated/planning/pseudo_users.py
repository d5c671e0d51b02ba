"""Public text cut into pieces that play devices.

Shape legend: N tokens, S sentences, D pseudo-users.
"""

from typing import Literal

import numpy as np

from pretrain.vocabulary import EOS, TokenStream

# Spread of log word budgets: with 1 the top tenth of users holds about 40% of all words.
_SPREAD = 1.0
_LEAST_WORDS, _MOST_MEDIANS = 5, 20


def pseudo_users(
    text: TokenStream,
    count: int,
    words_per_user: Literal["heavy-tailed", "fixed"],
    median_words: int,
    seed: int,
    most_words: int | None = None,
) -> TokenStream:
    """Partition documents, in an order drawn from ``seed``, into owners of whole sentences.

    A pseudo-user is a run of consecutive sentences, so it has topics of its own, as people do. Its
    last sentence is the one that reaches its budget. No sentence has two owners.

    Args:
      text: owners are documents.
      count: most pseudo-users; fewer if the text ends before.
      words_per_user: budgets from a log-normal law with this median, or all the same.
      most_words: cap on a budget, as a launch caps its devices.

    Returns:
      At most ``count`` owners, every one with a sentence or more.
    """
    rng = np.random.default_rng([seed, len(text)])
    shuffled = text.select(rng.permutation(len(text)))
    ends_S = np.flatnonzero(shuffled.tokens_N == EOS) + 1
    if not len(ends_S):
        return TokenStream(np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64))
    words_S = ends_S - np.arange(1, len(ends_S) + 1)  # words up to each sentence's end
    budgets_D = np.full(count, median_words)
    if words_per_user == "heavy-tailed":
        drawn_D = median_words * np.exp(_SPREAD * rng.standard_normal(count))
        budgets_D = np.clip(drawn_D, _LEAST_WORDS, _MOST_MEDIANS * median_words).astype(np.int64)
    if most_words is not None:
        budgets_D = np.minimum(budgets_D, most_words)
    offsets = [0]
    sentence, before = 0, 0
    for budget in budgets_D:
        last = int(np.searchsorted(words_S, before + budget))
        if last >= len(ends_S):
            break
        offsets.append(int(ends_S[last]))
        sentence, before = last + 1, int(words_S[last])
    if sentence == 0:
        # Less text than one budget: one user has it all.
        offsets.append(int(ends_S[-1]))
    return TokenStream(shuffled.tokens_N[: offsets[-1]], np.array(offsets, dtype=np.int64))
