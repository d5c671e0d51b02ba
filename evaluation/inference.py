"""Inference of a ``KeyboardLM`` in this package: float64, without gradients.

Shape legend: B rows, V vocabulary.

Ranks compare numbers that may lie close together. In float32 the last bits depend on how
many rows share a matrix product, so a rank could change with the batch size; in float64 the
disagreement is near 1e-15, far below any meaningful difference.
"""

import copy

import torch
from torch import Tensor

from pretrain.model.keyboard_lm import KeyboardLM, State
from pretrain.text.vocabulary import BOS, SPECIALS

NUM_SPECIALS = len(SPECIALS)


def float64_copy(model: KeyboardLM) -> KeyboardLM:
    """A float64 copy in evaluation mode; the model itself if it already is one."""
    if model.embedding.dtype == torch.float64:
        return model
    return copy.deepcopy(model).double().eval()


@torch.no_grad()
def step(model: KeyboardLM, words_B: Tensor, state: State) -> tuple[Tensor, State]:
    """Feed one word per row: log-probabilities ``[B, V]`` of the next word, in nats, and the new state.

    The distribution is the model's own, over the whole vocabulary, specials included.
    """
    logits_B1V, state = model(words_B[:, None], state)
    return torch.log_softmax(logits_B1V[:, 0], dim=-1), state


def read(model: KeyboardLM, context: list[int]) -> tuple[Tensor, State]:
    """Log-probabilities ``[1, V]`` after ``<bos>`` and the words of one context, and the state there."""
    state = model.initial_state(1)
    for word in [BOS, *context]:
        log_probs_1V, state = step(model, torch.tensor([word], device=model.embedding.device), state)
    return log_probs_1V, state


def rows_of(state: State, rows: Tensor) -> State:
    """The chosen rows of a state."""
    cell_BH, out_BE = state
    return cell_BH[rows], out_BE[rows]
