"""A model from noisy counts: posterior ratios of words and pairs to their frequency in public text.

Shape legend: V vocabulary, K contexts, U cells, M cells of one kind, R values of a ratio.

Everything here is post-processing of the release. A cell's sum is ``expected * ratio`` plus noise of a known
standard deviation; public text says what is expected. The law of the ratios is not known, so it is estimated
from the cells themselves, without a shape (Kiefer and Wolfowitz 1956, by the EM algorithm), apart for cells
whose expected sums are alike beside the noise. The posterior mean of the ratio then shrinks each cell by what
the noise deserves: it is above 0 for any sum, a negative one too, and where there is nothing but noise it is
the mean of all such cells. Cells that say nothing one by one say much together: EM, which would leave their law where
it begins, gives the shape of their ratios, and their sum the mean.
"""

import numpy as np
from scipy.special import log_ndtr

from federated.counts.cells import Cells
from federated.counts.release import CLIP_NORM
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import BOS, EOS, PAD

# Logarithms of the ratios looked at, and the start of their law, which a tenth of an observation for each holds on to.
_LOG_RATIO_R = np.arange(-6.0, 9.01, 0.25)
_START_SPREAD, _START_COUNT = 1.5, 0.1
_STEPS = 25
# Bounds on (expected sum / noise) between strata.
_WORD_STRATA, _PAIR_STRATA = (0.3, 3.0, 30.0), (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
_MOST_FITTED, _AT_ONCE = 20_000, 50_000
# Words whose public share scales all others; how often discovered ones are typed is a guess.
_FREQUENT = 1e-4
# A context's pairs and the public history share the prediction; pairs have half where the context's own sum is so
# many standard deviations of a cell.
HALF_TRUSTED = 20.0
# Pairs below this probability are not stored, the public history divides what they have.
LEAST_PAIR = 1e-4


def counted_ngram(
    released_U: np.ndarray,
    cells: Cells,
    public: NGram,
    base_size: int,
    noise_multiplier: float,
    clip_norm: float = CLIP_NORM,
    half_trusted: float = HALF_TRUSTED,
) -> CountedNGram:
    """The public n-gram, corrected by a release of noisy counts.

    Guarantee: post-processing of ``released_U``; every other argument is public.

    Args:
      released_U: of ``released_counts``, with the same cells, noise and clip norm.
      public: fitted to public text in the vocabulary's ids.
      base_size: words from this id on were discovered; public text says little of them.
    """
    size = cells.vocabulary_size
    sum_U, std_U = released_U / cells.weight_U, noise_multiplier * clip_norm / cells.weight_U
    discovered = np.arange(size) >= base_size
    frequent = (cells.share_V > _FREQUENT) & ~discovered
    total = max(sum_U[:size][frequent].sum() / cells.share_V[frequent].sum(), 1.0)
    event_V = ~np.isin(np.arange(size), (PAD, BOS))
    expected_V = total * cells.share_V
    # Discovered words have strata of their own.
    stratum_V = np.searchsorted(_WORD_STRATA, expected_V / std_U[:size]) + 10 * discovered
    ratio_V = np.ones(size)
    ratio_V[event_V] = posterior_ratios(
        *(each[event_V] for each in (sum_U[:size], expected_V, std_U[:size], stratum_V))
    )
    mass_V = expected_V * ratio_V
    factor_V = ratio_V * (total / mass_V.sum())
    # A sentence has one start and one end, and every word but the end one successor.
    mass_K = mass_V[np.where(cells.context_K == BOS, EOS, cells.context_K)]
    next_KV = cells.next_KV * factor_V
    next_KV /= next_KV.sum(axis=1, keepdims=True)
    expected_KV, std_KV = mass_K[:, None] * next_KV, std_U[size:].reshape(next_KV.shape)
    stratum_KV = np.searchsorted(_PAIR_STRATA, expected_KV / std_KV)
    pairs = (sum_U[size:].reshape(next_KV.shape), expected_KV, std_KV, stratum_KV)
    ratios = posterior_ratios(*(each[:, event_V].ravel() for each in pairs))
    next_KV[:, event_V] *= ratios.reshape(len(mass_K), -1)
    next_KV /= next_KV.sum(axis=1, keepdims=True)
    typical = mass_K / np.median(std_KV)
    return _sparse(public, cells.prior_V * factor_V, cells, next_KV, typical / (typical + half_trusted))


def posterior_ratios(sum_M: np.ndarray, expected_M: np.ndarray, std_M: np.ndarray, stratum_M: np.ndarray) -> np.ndarray:
    """Posterior mean ratio of each cell, ``[M]``, above 0; the law of the ratios is estimated by stratum.

    Args:
      sum_M: noisy sums. expected_M: what they would be at ratio 1. std_M: of their noise.
    """
    mean_M = np.empty(len(sum_M))

    def likelihood(cells: np.ndarray) -> np.ndarray:
        """The likelihood of each ratio, ``[M, R]``, up to a factor for each cell."""
        mean_MR = expected_M[cells, None] * np.exp(_LOG_RATIO_R)
        log_MR = -0.5 * ((sum_M[cells, None] - mean_MR) / std_M[cells, None]) ** 2
        return np.exp(log_MR - log_MR.max(axis=1, keepdims=True))

    for stratum in np.unique(stratum_M):
        cells = np.flatnonzero(stratum_M == stratum)
        # Evenly spaced ones are enough to estimate a law from.
        law_R = _law(likelihood(cells[:: -(-len(cells) // _MOST_FITTED)]))
        for first in range(0, len(cells), _AT_ONCE):
            some = cells[first : first + _AT_ONCE]
            weight_MR = likelihood(some) * law_R
            mean_M[some] = (weight_MR @ np.exp(_LOG_RATIO_R)) / weight_MR.sum(axis=1)
        weight = expected_M[cells] / std_M[cells] ** 2
        precision = weight @ expected_M[cells]
        mean_M[cells] *= (
            _mean_ratio(weight @ sum_M[cells], precision) * precision / (weight * expected_M[cells] @ mean_M[cells])
        )
    return mean_M


def _mean_ratio(weighted_sum: float, precision: float) -> float:
    """Posterior mean of the ratio that cells have together, 1 where nothing is known of it: its prior is exponential.

    Args:
      weighted_sum: normal, of mean ``ratio precision`` and variance ``precision``.
    """
    precision = max(precision, 1e-6)  # below it the two terms would leave too few digits
    middle, spread = (weighted_sum - 1) / precision, precision**-0.5
    at = middle / spread
    return float(middle + spread * np.exp(-0.5 * at**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(at)))


def _law(likelihood_MR: np.ndarray) -> np.ndarray:
    start_R = np.exp(-0.5 * (_LOG_RATIO_R / _START_SPREAD) ** 2)
    start_R /= start_R.sum()
    law_R = start_R
    for _ in range(_STEPS):
        weight_MR = likelihood_MR * law_R
        weight_MR /= weight_MR.sum(axis=1, keepdims=True)
        law_R = weight_MR.sum(axis=0) + _START_COUNT * len(start_R) * start_R
        law_R /= law_R.sum()
    return law_R


def _sparse(
    public: NGram, factor_V: np.ndarray, cells: Cells, next_KV: np.ndarray, trust_K: np.ndarray
) -> CountedNGram:
    row, word = np.nonzero(next_KV >= LEAST_PAIR)
    key_G = row * cells.vocabulary_size + word
    return CountedNGram(public, factor_V, cells.row_V, key_G, next_KV[row, word], trust_K)
