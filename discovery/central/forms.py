"""Case forms of centrally discovered words: a second noisy release, about the released words alone.

Shape legend: V released words, F forms, D devices of a shard, N occurrences.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from discovery.central.contributions import Shard
from discovery.central.weighted_gaussian import GRID, add_up, drawn, make, unit_of
from pretrain.writing.case import FORMS

STREAM = "central discovery, forms"
# In deviations of one sum's noise: the noise of a difference exceeds it with probability 5%.
_MARGIN = 1.645 * 2**0.5


def noisy_forms(words: Sequence[str], shards: Iterable[Shard], noise_multiplier: float, key: bytes) -> np.ndarray:
    """Noisy sums by form of each word in alphabetical order, int64 ``[V, F]`` in units of 1 / ``GRID``.

    A device that types t of the words, each in the form that it uses most (of equals the first of ``FORMS``), gives
    1 / sqrt(t) to one form of each. Few of a device's words were released, so each has a larger weight than in
    the first release.

    Guarantee: the words are public by now, and hence the set of sums, three per word. One device moves them by a
    vector of L2 norm at most 1, for any text, so this is zCDP with ``rho = 1 / (2 noise_multiplier^2)``; unit
    one device, zero-out adjacency. It adds to the cost of the words, without a failure probability.

    Args:
      words: already released; sorted here, so that their order reveals nothing.
      shards: of the population, typed words with the signs of their forms.
      key: 32 secret bytes.

    Raises:
      ArithmeticError: noise beyond the grid; a property of the noise alone.
    """
    words = sorted(words)
    names = [(word, form) for word in words for form in range(len(FORMS))]
    return make(
        shards,
        drawn(key, STREAM, noise_multiplier),
        lambda shard: (names, forms_weights(shard, words).ravel()),
        lambda _, noisy: noisy.reshape(-1, len(FORMS)),
        names,
    )


def decided(words: Sequence[str], noisy_VF: np.ndarray, noise_multiplier: float) -> Mapping[str, str]:
    """Words that are mostly typed with a capital or in capitals, each with its form; the others are lower-case.

    The largest noisy sum decides, if it exceeds the first form's by more than noise alone does with probability 5%.
    """
    above_VF = noisy_VF.copy()
    above_VF[:, 0] += round(_MARGIN * noise_multiplier * GRID)
    best_V = np.argmax(above_VF, axis=1).tolist()
    return {word: FORMS[best] for word, best in zip(sorted(words), best_V, strict=True) if best}


def forms_weights(shard: Shard, words: Sequence[str]) -> np.ndarray:
    """Sums over a shard's devices in units of 1 / ``GRID``, int64 ``[V, F]``; private.

    Guarantee: one device adds a vector of L2 norm at most 1, on one form of each word at most.
    """
    typed, form_N = shard.typed.parted()
    place_of = {word: place for place, word in enumerate(words)}
    place_N = np.array([place_of.get(word, -1) for word in typed.distinct], dtype=np.int64)[typed.numbers]
    said_N = place_N >= 0
    device_N = np.repeat(np.arange(len(typed)), np.diff(typed.starts))[said_N]
    pair_N = device_N * max(len(words), 1) + place_N[said_N]
    pair_P, row_N = np.unique(pair_N, return_inverse=True)
    uses_PF = np.zeros((len(pair_P), len(FORMS)), dtype=np.int64)
    np.add.at(uses_PF, (row_N, form_N[said_N].astype(np.int64)), 1)
    device_P, word_P = np.divmod(pair_P, max(len(words), 1))
    degree_D = np.bincount(device_P, minlength=len(typed))
    unit_P = unit_of(int(degree_D.max(initial=0)))[degree_D[device_P]]
    cells = add_up(word_P * len(FORMS) + np.argmax(uses_PF, axis=1), unit_P, len(words) * len(FORMS))
    return cells.reshape(len(words), len(FORMS))
