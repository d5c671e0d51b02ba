"""A tighter shuffle certificate, made for Subset Selection: its privacy blanket.

Balle et al. 2019, *The Privacy Blanket of the Shuffle Model*. A message is, with probability gamma,
a uniform k-subset whatever its item; only those others are counted as cover for the item of one
device. Legend: S blocks of the number of covers that tell the two items apart, T and B blocks of
the covers that do not (all, and those that hold both items).
"""

import math

import numpy as np
from scipy import stats

from discovery.certificates.clones import NO_COVER, block_chances, clones, least_epsilon, window
from discovery.device.randomizer import SubsetSelection

CERTIFICATE = "privacy blanket of Subset Selection (Balle et al. 2019)"
_SINGLES, _QUIET, _BOTH = 300, 8, 4
_COARSE = 30


def blanket(randomizer: SubsetSelection, messages: int, delta: float) -> float:
    """Central epsilon of ``messages`` shuffled messages of this randomiser; an upper bound.

    Guarantee: the shuffled messages of one layer are (result, delta)-DP for the item of one
    message under swap adjacency, whatever the other items are. Never above ``clones``. It
    assumes that a message cannot be linked to its sender.

    Raises:
      ValueError: a parameter outside its range.
    """
    certified = clones(randomizer.epsilon0, messages, delta)
    if randomizer.epsilon0 > NO_COVER:
        return certified

    def least(blocks: int, certified: float, precision: float) -> float:
        return least_epsilon(
            lambda epsilon: blanket_delta(randomizer, messages, epsilon, delta / 1000, blocks),
            delta,
            certified,
            precision,
        )

    return least(_SINGLES, least(_COARSE, certified, 1e-3), 1e-5)


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
    quiet = min((both + neither) / (1 - single), 1.0)
    quiet_ST, weights_ST = _lower_blocks(rest_S, quiet, tail, _QUIET)
    double_STB, weights_STB = _lower_blocks(quiet_ST, both / (both + neither) if both else 0.0, tail, _BOTH)
    weight_STB = quiet_ST[..., None] + (ratio - 1) * double_STB

    # Given N1 + N2 = s: F = A N1 - c s - (E - 1) W with N1 ~ Bin(s, 1/2), that is m s + noise - (E - 1) W
    # with m = A / 2 - c < 0. Noise of more fair coins never lowers E[F+] (Jensen): drift by the least
    # s of a block and noise by its most bound the block.
    step = (ratio - 1) * (growth + 1)
    drift = (ratio + 1) * math.expm1(epsilon) / 2
    most_STB = np.broadcast_to(most_S[:, None, None], weight_STB.shape)
    offset_STB = step * most_STB / 2 + drift * least_S[:, None, None] + math.expm1(epsilon) * weight_STB
    excess_STB = _binomial_excess(most_STB, step, offset_STB)
    covered = np.einsum("s,st,stb,stb->", weights_S, weights_ST, weights_STB, excess_STB)
    return float(covered) / messages + tail


def _lower_blocks(count: np.ndarray, chance: float, tail: float, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of X ~ Bin(count, chance), for each count: the least member of each and its probability.

    Every value is a block of its own where they are few. Else the lowest block starts at 0 and is
    about as rare as ``tail``; the others cut at even steps of deviations.
    """
    if np.max(count) <= blocks:
        starts = np.broadcast_to(np.arange(blocks + 1.0), (*count.shape, blocks + 1))
    else:
        steps = np.linspace(-math.sqrt(2 * math.log(1 / tail)), 1.0, blocks)
        deviation = np.sqrt(count * chance * (1 - chance))
        starts = np.floor(count[..., None] * chance + deviation[..., None] * steps)
        starts = np.concatenate([np.zeros_like(starts[..., :1]), np.clip(starts, 0, count[..., None])], axis=-1)
    tail_chances = stats.binom.sf(starts - 1, count[..., None], chance)
    return starts, tail_chances - np.concatenate([tail_chances[..., 1:], np.zeros_like(tail_chances[..., :1])], axis=-1)


def _binomial_excess(count: np.ndarray, step: float, offset: np.ndarray) -> np.ndarray:
    """``E[(step N - offset)+]``, N ~ Bin(count, 1/2), offset at least 0.

    By ``N pmf(N; s) = s/2 pmf(N - 1; s - 1)`` it is ``(step s/2 - offset) P(N >= t) + step s/4 pmf(t - 1; s - 1)``.
    """
    least = np.floor(offset / step) + 1
    inside = least <= count
    count, least, offset = count[inside], least[inside], offset[inside]
    excess = np.zeros(inside.shape)
    above = (step * count / 2 - offset) * stats.binom.sf(least - 1, count, 0.5)
    excess[inside] = np.maximum(above + step * count / 4 * stats.binom.pmf(least - 1, count - 1, 0.5), 0.0)
    return excess
