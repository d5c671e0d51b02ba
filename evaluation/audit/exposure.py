"""Memorisation of a canary by a model: rank among random secrets, beam search, exposure.

Shape legend: B nodes in a batch, M sampled nodes, V vocabulary, W words (vocabulary without specials).

Random sampling (Ramaswamy et al. 2020, section IV): the loss of a secret is
``-log p(s1|p) - log p(s2|p,s1) - log p(s3|p,s1,s2)``; the rank of a canary among a set R of
secrets drawn uniformly from W^3 is 1 + the number of references whose loss is not larger.
(The paper counts from 0 in the text and from 1 in its tables.)

A rank among R random references is ``1 + |R| F`` on average, where F is the share of all other
secrets that score at least as well. F itself is found without ever scoring R sequences, because
one softmax at the node (r1, r2) holds all third words at once:

* a memorised canary has few better secrets: a walk over every node whose partial loss does not yet
  exceed the canary's counts them all, exactly (``_count_exactly``);
* otherwise nodes are drawn in proportion to their probability under the model, mixed with uniform
  draws so that no weight exceeds 1/0.3^2, and reweighted (``_estimate``): unbiased.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special
from torch import Tensor

from evaluation.audit.canaries import Canary
from evaluation.inference import NUM_SPECIALS, float64_copy, read, rows_of, step
from pretrain.model.keyboard_lm import KeyboardLM, State

UNIFORM_SHARE = 0.3
_NODE_ROWS = 256


@dataclass(frozen=True)
class Rank:
    """Rank of one canary.

    Attributes:
      rank: 1 + |R| F, not rounded.
      standard_error: of ``rank``, from the estimate of F; 0 if F was counted exactly.
      fraction: F, the share of all other secrets with a loss not larger than the canary's; an
        estimate is cut to [0, 1].
      loss: nats of the secret after its prefix.
      exact: F was counted, not estimated.
    """

    rank: float
    standard_error: float
    fraction: float
    loss: float
    exact: bool


def rank(
    model: KeyboardLM, canary: Canary, random_continuations: int, seed: int, *, nodes: int = 2000, budget: int = 2000
) -> Rank:
    """Expected rank among ``random_continuations`` uniform secrets.

    Args:
      nodes: M, sampled nodes of the estimate; its standard error falls with their square root.
      budget: largest number of nodes to open for an exact count.
    """
    model = float64_copy(model)
    words = model.vocabulary_size - NUM_SPECIALS
    first_W, state, threshold = _score_of_canary(model, canary)
    counted = _count_exactly(model, canary, first_W, state, threshold, budget)
    if counted is not None:
        # The canary itself is one of them.
        fraction, error = (counted - 1) / (words**3 - 1), 0.0
    else:
        terms_M = _estimate(model, canary, first_W, state, threshold, nodes, np.random.default_rng(seed))
        fraction = min(max(float(terms_M.mean()), 0.0), 1.0)
        error = float(terms_M.std(ddof=1) / math.sqrt(nodes))
    return Rank(
        1 + random_continuations * fraction, random_continuations * error, fraction, -threshold, counted is not None
    )


def exposure_bits(rank: float, random_continuations: int) -> float:
    """``log2 |R| - log2 rank`` (Carlini et al. 2019): 0 when last, ``log2 |R|`` when first."""
    return max(0.0, math.log2(random_continuations) - math.log2(rank))


def ceiling_bits(mu: float, n_u: int, alpha: float) -> float:
    """Exposure that a canary on ``n_u`` compliant devices exceeds with probability at most ``alpha``.

    ``-log2 Phi(Phi^-1(alpha) - n_u mu)``; for ``mu = 0`` it is ``log2(1 / alpha)``.

    Guarantee: if training is mu-GDP for one device (zero-out), it is ``n_u mu``-GDP for n_u of
    them, and with these devices zeroed out the rank of a uniform secret is uniform, so
    ``P(rank <= k) <= Phi(Phi^-1(k / |R|) + n_u mu)`` for every k. It says nothing about devices
    that join more often than the mechanism was accounted for.
    """
    if not (mu >= 0 and 0 < alpha < 1):
        raise ValueError(f"mu {mu} must not be negative and alpha {alpha} must lie in (0, 1)")
    return float(-special.log_ndtr(special.ndtri(alpha) - n_u * mu) / math.log(2))


def beam_search(model: KeyboardLM, prefix: tuple[int, ...], length: int, width: int) -> list[tuple[int, ...]]:
    """The ``width`` best continuations of ``length`` words that beam search finds, best first; no specials."""
    model = float64_copy(model)
    log_probs_BV, state = read(model, list(prefix))
    beams: list[tuple[int, ...]] = [()]
    score_B = log_probs_BV.new_zeros(1)
    for place in range(length):
        total_BW = score_B[:, None] + log_probs_BV[:, NUM_SPECIALS:]
        score_B, flat_B = total_BW.flatten().topk(min(width, total_BW.numel()))
        from_B, word_B = flat_B // total_BW.shape[1], flat_B % total_BW.shape[1] + NUM_SPECIALS
        beams = [(*beams[start], word) for start, word in zip(from_B.tolist(), word_B.tolist(), strict=True)]
        if place < length - 1:
            log_probs_BV, state = step(model, word_B, rows_of(state, from_B))
    return beams


def _score_of_canary(model: KeyboardLM, canary: Canary) -> tuple[Tensor, State, float]:
    """First-word log-probabilities ``[W]``, the state after the prefix, the canary's log-probability."""
    log_probs_1V, state = read(model, list(canary.prefix))
    first_W = log_probs_1V[0, NUM_SPECIALS:]
    secret_3 = _secret(canary, first_W.device)
    threshold, here = float(first_W[secret_3[0]]), state
    for place in range(2):
        next_1W, here = _step(model, secret_3[place, None], here)
        threshold += float(next_1W[0, secret_3[place + 1]])
    if not math.isfinite(threshold):
        raise ArithmeticError("the model gives a canary no finite loss, so it cannot be ranked")
    return first_W, state, threshold


def _count_exactly(
    model: KeyboardLM, canary: Canary, first_W: Tensor, state: State, threshold: float, budget: int
) -> int | None:
    """Secrets with a log-probability of at least ``threshold``, the canary included; None above the budget.

    Log-probabilities are never positive, so a node below the threshold has nothing above it.
    """
    first_K = torch.nonzero(first_W >= threshold)[:, 0]
    if len(first_K) > budget:
        return None
    opened, count, own_counted = len(first_K), 0, False
    first, second, third = (word - NUM_SPECIALS for word in canary.secret)
    for first_B in first_K.split(_NODE_ROWS):
        second_BW, state_B = _step(model, first_B, rows_of(state, torch.zeros_like(first_B)))
        total_BW = first_W[first_B, None] + second_BW
        row_K, second_K = torch.nonzero(total_BW >= threshold, as_tuple=True)
        opened += len(row_K)
        if opened > budget:
            return None
        for row_B, word_B in zip(row_K.split(_NODE_ROWS), second_K.split(_NODE_ROWS), strict=True):
            third_BW, _ = _step(model, word_B, rows_of(state_B, row_B))
            hit_BW = total_BW[row_B, word_B, None] + third_BW >= threshold
            own_B = (first_B[row_B] == first) & (word_B == second)
            # Tolerance, so that rounding never ranks a canary below itself.
            own_counted |= bool(own_B.any())
            hit_BW[own_B, third] = True
            count += int(hit_BW.sum())
    return count + (not own_counted)


def _estimate(
    model: KeyboardLM,
    canary: Canary,
    first_W: Tensor,
    state: State,
    threshold: float,
    nodes: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Unbiased terms ``[M]`` whose mean is F: importance-sampled nodes, third words summed exactly."""
    words = len(first_W)
    secret_3 = _secret(canary, first_W.device)
    first_M, weight_M = draw_words(first_W[None], torch.zeros(nodes, dtype=torch.long, device=first_W.device), rng)
    # Draws of the same first word share a node; sorting also makes the result independent of chunking.
    first_M, order_M = first_M.sort(stable=True)
    weight_M = weight_M[order_M]
    second_M = torch.empty_like(first_M)
    hits = []
    for chunk in torch.arange(nodes, device=first_W.device).split(_NODE_ROWS):
        open_K, row_B = first_M[chunk].unique(return_inverse=True)
        second_KW, state_K = _step(model, open_K, rows_of(state, torch.zeros_like(open_K)))
        second_B, weight_B = draw_words(second_KW, row_B, rng)
        second_M[chunk] = second_B
        partial_B = first_W[first_M[chunk]] + second_KW[row_B, second_B]
        third_BW, _ = _step(model, second_B, rows_of(state_K, row_B))
        hit_BW = partial_B[:, None] + third_BW >= threshold
        own_B = (first_M[chunk] == secret_3[0]) & (second_B == secret_3[1])
        hit_BW[own_B, secret_3[2]] = False
        weight_M[chunk] *= weight_B
        hits.append(hit_BW.sum(dim=1))
    # Each weight is 1 / (W^2 q); the canary itself is no reference, so a full node holds W^2 / (W^3 - 1) a word.
    return (weight_M * torch.cat(hits) * (words**2 / (words**3 - 1))).cpu().numpy()


def draw_words(log_probs_KW: Tensor, row_M: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """One word for each entry of ``row_M`` from that row's mixture q, and the weights ``1 / (W q)``."""
    rows, words = log_probs_KW.shape
    prob_KW = torch.softmax(log_probs_KW, dim=1)
    cumulative_KW = prob_KW.cumsum(dim=1)
    # Row r's cumulative probabilities run from r to r + 1, so one sorted search serves all rows.
    ladder = (cumulative_KW / cumulative_KW[:, -1:] + torch.arange(rows, device=row_M.device)[:, None]).flatten()
    coin_M, place_M = (torch.as_tensor(rng.random(len(row_M)), device=row_M.device) for _ in range(2))
    likely_M = torch.searchsorted(ladder, row_M + place_M, right=True) - row_M * words
    word_M = torch.where(coin_M < UNIFORM_SHARE, (place_M * words).long(), likely_M).clamp_(0, words - 1)
    chance_M = UNIFORM_SHARE / words + (1 - UNIFORM_SHARE) * prob_KW[row_M, word_M]
    return word_M, 1 / (words * chance_M)


def _step(model: KeyboardLM, words_B: Tensor, state: State) -> tuple[Tensor, State]:
    """``inference.step`` in word numbers: ids without the specials, in and out."""
    log_probs_BV, state = step(model, words_B + NUM_SPECIALS, state)
    return log_probs_BV[:, NUM_SPECIALS:], state


def _secret(canary: Canary, device: torch.device) -> Tensor:
    return torch.tensor(canary.secret, device=device) - NUM_SPECIALS
