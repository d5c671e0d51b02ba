"""A tighter shuffle certificate, made for Subset Selection: its privacy blanket.

Balle et al. 2019, *The Privacy Blanket of the Shuffle Model*. A message is, with probability gamma,
a uniform k-subset whatever its item; only those others are counted as cover for the item of one
device. Legend: S blocks of the number of covers that tell the two items apart, T and B blocks of
the covers that do not (all, and those that hold both items).
"""

import math
from functools import lru_cache

import numpy as np
from scipy import stats

from discovery.certificates.clones import LEAST_DELTA, NO_COVER, block_chances, clones, least_epsilon, window
from discovery.device.randomizer import SubsetSelection

CERTIFICATE = "privacy blanket of Subset Selection (Balle et al. 2019)"
_SINGLES, _QUIET, _BOTH = 300, 8, 4
_COARSE = 30
# So few messages have no blocks: every number of covers counts as itself, as blocks of a few differ by percents.
_EXACT = 64


@lru_cache(maxsize=256)  # plan, layers and verification ask for the same
def blanket(randomizer: SubsetSelection, messages: int, delta: float) -> float:
    """Central epsilon of ``messages`` shuffled messages of this randomiser; an upper bound.

    Guarantee: the shuffled messages of one layer are (result, delta)-DP for the item of one
    message under swap adjacency, whatever the other items are. Never above ``clones``, and not
    higher for more messages: a few are summed exactly, and some more than that are certified as if
    they were fewer where blocks say less, since messages beyond those, even known, change nothing.
    It assumes that a message cannot be linked to its sender.

    Raises:
      ValueError: a parameter outside its range.
    """
    certified = clones(randomizer.epsilon0, messages, delta)
    if randomizer.epsilon0 > NO_COVER or delta < LEAST_DELTA:
        return certified

    def least(messages: int, blocks: int, certified: float, precision: float) -> float:
        return least_epsilon(
            lambda epsilon: blanket_delta(randomizer, messages, epsilon, delta / 1000, blocks),
            delta,
            certified,
            precision,
        )

    if messages <= 4 * _EXACT:
        certified = least(min(messages, _EXACT), _SINGLES, certified, 1e-5)
    if messages <= _EXACT:
        return certified
    return least(messages, _SINGLES, least(messages, _COARSE, certified, 1e-3), 1e-5)


def blanket_delta(
    randomizer: SubsetSelection, messages: int, epsilon: float, tail: float, blocks: int = _SINGLES
) -> float:
    """Upper bound on delta at epsilon, ``tail`` included; more blocks make it tighter.

    With ``R = e^eps0``, ``E = e^eps`` and, among the covers, N1 (N2) that hold only the one (other)
    item, Nb both, N0 neither: ``delta <= E[F+] / n``, ``F = (R - E) N1 - (E R - 1) N2 - (E - 1) (R Nb + N0)``.
    """
    d, k = randomizer.domain, randomizer.size
    ratio, growth = math.exp(randomizer.epsilon0), math.exp(epsilon)
    gamma = d / (ratio * k + d - k)
    pairs = d * (d - 1)
    single = gamma * 2 * k * (d - k) / pairs
    both = gamma * k * (k - 1) / pairs
    neither = gamma * (d - k) * (d - k - 1) / pairs

    # F <= R n everywhere, so what lies outside the window adds at most R times its probability.
    starts = window(messages, single, tail / ratio, blocks)
    weights_S = block_chances(starts, messages, single)
    least_S, most_S = starts[:-1], starts[1:] - 1

    # The others, N0 + Nb and then Nb, shrink F: each block of them counts with its least member.
    # Given N1 + N2 they are binomial, and fewer the larger that is.
    rest_S = messages - most_S
    blocks_T, blocks_B = (messages, messages) if messages <= _EXACT else (_QUIET, _BOTH)
    quiet = min((both + neither) / (1 - single), 1.0)
    quiet_ST, weights_ST = _lower_blocks(rest_S, quiet, tail, blocks_T)
    double_STB, weights_STB = _lower_blocks(quiet_ST, both / (both + neither) if both else 0.0, tail, blocks_B)
    weight_STB = quiet_ST[..., None] + (ratio - 1) * double_STB

    # Given N1 + N2 = s: F = (R - E) s - A N2 - (E - 1) W with N2 ~ Bin(s, 1/2), a drift of (R - E - A / 2) s < 0
    # and noise. Noise of more fair coins never lowers E[F+] (Jensen): drift by the least s of a block and
    # noise by its most bound the block. R - E by expm1, as it is all that is left where E is nearly R.
    step = (ratio - 1) * (growth + 1)
    most_STB = np.broadcast_to(most_S[:, None, None], weight_STB.shape)
    margin_S = -ratio * math.expm1(epsilon - randomizer.epsilon0) * least_S + step / 2 * (most_S - least_S)
    excess_STB = _binomial_excess(most_STB, step, margin_S[:, None, None] - math.expm1(epsilon) * weight_STB)
    covered = np.einsum("s,st,stb,stb->", weights_S, weights_ST, weights_STB, excess_STB)
    return float(covered) / messages + tail


def _lower_blocks(count: np.ndarray, chance: float, tail: float, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of X ~ Bin(count, chance), for each count: the least member of each and its probability.

    Every value is a block of its own where they are few, 0 the only one where nothing else can be. Else
    the lowest block starts at 0 and is about as rare as ``tail``; the others cut at even steps of deviations.
    """
    if chance == 0.0:
        starts = np.zeros((*count.shape, 1))
    elif np.max(count) <= blocks:
        starts = np.broadcast_to(np.arange(blocks + 1.0), (*count.shape, blocks + 1))
    else:
        steps = np.linspace(-math.sqrt(2 * math.log(1 / tail)), 1.0, blocks)
        deviation = np.sqrt(count * chance * (1 - chance))
        starts = np.floor(count[..., None] * chance + deviation[..., None] * steps)
        starts = np.concatenate([np.zeros_like(starts[..., :1]), np.clip(starts, 0, count[..., None])], axis=-1)
    tail_chances = stats.binom.sf(starts - 1, count[..., None], chance)
    return starts, tail_chances - np.concatenate([tail_chances[..., 1:], np.zeros_like(tail_chances[..., :1])], axis=-1)


def _binomial_excess(count: np.ndarray, step: float, margin: np.ndarray) -> np.ndarray:
    """``E[(margin - step N)+]``, N ~ Bin(count, 1/2), each difference one of large numbers only where both matter.

    With m the largest N that counts it is ``margin P(N <= m) - step sum_{i <= m} i P(N = i)``, and by
    ``i pmf(i; s) = s/2 pmf(i - 1; s - 1)`` the sum is ``s/2 (P(N <= m) - pmf(m; s - 1) / 2)``.
    """
    inside = margin > 0
    count, margin = count[inside], margin[inside]
    most = np.minimum(np.ceil(margin / step) - 1, count)
    below, at = _fair(count, most)
    excess = np.zeros(inside.shape)
    excess[inside] = np.where(
        most == 0, margin * below, np.maximum((margin - step * count / 2) * below + step * count / 4 * at, 0.0)
    )
    return excess


def _fair(count: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``P(N <= most)`` for N ~ Bin(count, 1/2), and ``P(N' = most)`` for N' ~ Bin(count - 1, 1/2); counts above 0."""
    if len(count) and np.max(count) <= _EXACT:
        below_ST, at_ST = _fair_table()
        return below_ST[count, most.astype(np.int64)], at_ST[count, most.astype(np.int64)]
    return stats.binom.cdf(most, count, 0.5), stats.binom.pmf(most, count - 1, 0.5)


@lru_cache(maxsize=1)
def _fair_table() -> tuple[np.ndarray, np.ndarray]:
    """Values of ``_fair`` for every count up to ``_EXACT``, each asked for thousands of times."""
    count_S, most_T = np.arange(_EXACT + 1)[:, None], np.arange(_EXACT + 1)[None, :]
    return stats.binom.cdf(most_T, count_S, 0.5), stats.binom.pmf(most_T, np.maximum(count_S - 1, 0), 0.5)
