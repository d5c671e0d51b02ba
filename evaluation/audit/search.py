"""Exact search for the likeliest continuations, which beam search may miss.

A log-probability never grows with another word, so a prefix below the ``count``-th best whole continuation
known so far is skipped. Prefixes are opened in order of their probability; when none is left above that
bound, the list is exact.
"""

import heapq
import math
from dataclasses import dataclass

import torch

from evaluation.audit.exposure import beam_search
from evaluation.inference import NUM_SPECIALS, float64_copy, read, step
from pretrain.model.keyboard_lm import KeyboardLM, State

_AT_ONCE = 64


@dataclass(frozen=True)
class Continuations:
    """Likeliest continuations of a prefix, best first.

    Attributes:
      words: ids, no specials.
      log_probs: nats.
      exact: nothing better exists; False if the budget ran out first.
      opened: number of opened nodes.
    """

    words: tuple[tuple[int, ...], ...]
    log_probs: tuple[float, ...]
    exact: bool
    opened: int


def best_first(
    model: KeyboardLM, prefix: tuple[int, ...], length: int, count: int, budget: int = 2000
) -> Continuations:
    """The ``count`` likeliest continuations of ``length`` words after ``<bos>`` and the prefix.

    Args:
      budget: largest number of nodes to open; each costs a softmax over the vocabulary.
    """
    model = float64_copy(model)
    log_probs_1V, (cell_1H, out_1E) = read(model, list(prefix))
    whole = {words: _log_prob(model, prefix, words) for words in beam_search(model, prefix, length, count)}
    opened = 0
    # (minus log-probability, words so far, the model's state before the last of them)
    floor = -math.inf
    heap = _grown(log_probs_1V[0], 0.0, (), (cell_1H[0], out_1E[0]), whole, length, count, floor)
    heapq.heapify(heap)
    while heap and -heap[0][0] >= _bound(whole, count) and opened < budget:
        ahead = [heapq.heappop(heap) for _ in range(min(_AT_ONCE, len(heap), budget - opened))]
        opened += len(ahead)
        last_B = torch.tensor([words[-1] for _, words, _ in ahead], device=cell_1H.device)
        cells, outs = zip(*(state for *_, state in ahead), strict=True)
        log_probs_BV, (cell_BH, out_BE) = step(model, last_B, (torch.stack(cells), torch.stack(outs)))
        for row, (cost, words, _) in enumerate(ahead):
            state = cell_BH[row], out_BE[row]
            heap += _grown(log_probs_BV[row], -cost, words, state, whole, length, count, floor)
        # Nodes behind as many better ones as the remaining budget are never reached; a sorted list is a heap.
        heap = heapq.nsmallest(budget - opened + 1, heap)
        if len(heap) > budget - opened:
            floor = -heap[-1][0]
    best = sorted(whole.items(), key=lambda entry: (-entry[1], entry[0]))[:count]
    exact = not heap or -heap[0][0] < _bound(whole, count)
    return Continuations(tuple(words for words, _ in best), tuple(score for _, score in best), exact, opened)


_Entry = tuple[float, tuple[int, ...], State]


def _grown(
    log_probs_V: torch.Tensor,
    so_far: float,
    words: tuple[int, ...],
    state: State,
    whole: dict[tuple[int, ...], float],
    length: int,
    count: int,
    floor: float,
) -> list[_Entry]:
    """Extend a prefix by one word, dropping continuations below ``floor``; whole ones go to ``whole``."""
    total_W = so_far + log_probs_V[NUM_SPECIALS:]
    inner = len(words) + 1 < length
    inside_K = torch.nonzero(total_W >= max(_bound(whole, count), floor if inner else -math.inf))[:, 0]
    if inner:
        longer = ((*words, word + NUM_SPECIALS) for word in inside_K.tolist())
        return [(-score, entry, state) for score, entry in zip(total_W[inside_K].tolist(), longer, strict=True)]
    if len(inside_K) > count:
        inside_K = total_W.topk(count).indices
    for score, word in zip(total_W[inside_K].tolist(), inside_K.tolist(), strict=True):
        # Keep the score of beam search: the same words in another batch may differ in the last bit.
        whole.setdefault((*words, word + NUM_SPECIALS), score)
    for worse in sorted(whole, key=whole.__getitem__, reverse=True)[count:]:
        del whole[worse]
    return []


def _bound(whole: dict[tuple[int, ...], float], count: int) -> float:
    return min(whole.values()) if len(whole) >= count else -math.inf


def _log_prob(model: KeyboardLM, prefix: tuple[int, ...], words: tuple[int, ...]) -> float:
    log_probs_1V, state = read(model, list(prefix))
    total = 0.0
    for place, word in enumerate(words):
        total += float(log_probs_1V[0, word])
        if place + 1 < len(words):
            log_probs_1V, state = step(model, torch.tensor([word], device=log_probs_1V.device), state)
    return total
