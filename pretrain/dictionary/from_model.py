"""A model's words and what follows them, as a keyboard's dictionary holds them.

Shape legend: B rows, V vocabulary, P leading words, whose followers are listed.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pretrain.dictionary.content import Word, fits, frequency
from pretrain.model import KeyboardLM
from pretrain.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

_SEED = 1
_ROWS, _STEPS = 256, 64
# Keyboards predict a next word from such a list alone, and the most frequent words are most often the last typed.
_LEADING_WORDS, _FOLLOWERS = 2000, 10


@torch.no_grad()
def words_of_model(model: KeyboardLM, vocabulary: Vocabulary) -> dict[str, Word]:
    """Every word with its frequency, and the likeliest followers of the most frequent ones.

    Special tokens, and words that no dictionary can hold, are left out; probabilities are shares among the others.
    A word's probability is the mean of the model's next-word distribution over contexts of sentences that the
    model itself makes up: what it would type, were it typing. A follower's is the mean over the contexts that end
    in the word before it: one at a sentence's start, the others wherever those sentences hold the word. No follower
    gets less than its frequency anywhere, since the binary format can only lift.

    Guarantee: reads the released weights, the released vocabulary and a constant seed; no text, no count, no noise.
    So it is post-processing of them: what the disclosure states for the model and for the discovered words
    holds for the dictionary too, and writing it spends nothing.

    Raises:
      ArithmeticError: the model's probabilities are no numbers.
    """
    left_out_V = torch.tensor(
        [number < len(SPECIALS) or not fits(word) for number, word in enumerate(vocabulary.words)]
    )
    unigram_V = _unigrams(model, left_out_V)
    frequencies = {number: frequency(float(unigram_V[number])) for number in (~left_out_V).nonzero()[:, 0].tolist()}
    leading = sorted(frequencies, key=lambda number: (-float(unigram_V[number]), number))[:_LEADING_WORDS]
    words = {vocabulary.words[number]: Word(value) for number, value in frequencies.items()}
    for number, after_V in zip(leading, _after(model, leading), strict=True):
        shares_V = _shares(after_V, left_out_V)
        best = shares_V.topk(min(_FOLLOWERS, len(leading))).indices.tolist()
        for follower in best:
            lifted = max(frequency(float(shares_V[follower])), frequencies[follower])
            words[vocabulary.words[number]].bigrams[vocabulary.words[follower]] = lifted
    return words


@torch.no_grad()
def word_scores(model: KeyboardLM) -> np.ndarray:
    """Log-probability of each word without context, float32 ``[V]``, as ``words_of_model`` has it before rounding.

    ``<unk>`` has that of all words outside the vocabulary together, other special tokens none.

    Guarantee: as of ``words_of_model``, post-processing of the released weights.

    Raises:
      ArithmeticError: the model's probabilities are no numbers.
    """
    words_V = torch.arange(model.vocabulary_size)
    return _unigrams(model, (words_V < len(SPECIALS)) & (words_V != UNK)).log().float().numpy()


def _unigrams(model: KeyboardLM, left_out_V: Tensor) -> Tensor:
    """Mean next-word distribution over sentences that the model makes up, among what is not left out."""
    unigram_V = torch.zeros(model.vocabulary_size, dtype=torch.float64)
    for _, next_BV in _made_up(model):
        unigram_V += next_BV.sum(0, dtype=torch.float64)
    unigram_V = _shares(unigram_V, left_out_V)
    if not bool(unigram_V.isfinite().all()):
        raise ArithmeticError("dictionary: the model's probabilities are not finite; train the model again")
    return unigram_V


def _after(model: KeyboardLM, leading: list[int]) -> Tensor:
    """``[P, V]``: summed next-word distributions over the contexts that end in each leading word."""
    after_PV = torch.empty(len(leading), model.vocabulary_size)
    for rows in torch.arange(len(leading)).split(_ROWS):
        starts_B2 = torch.tensor([[BOS, leading[row]] for row in rows])
        after_PV[rows] = model(starts_B2)[0][:, -1].softmax(-1)
    place_V = torch.full((model.vocabulary_size,), -1)
    place_V[leading] = torch.arange(len(leading))
    for token_B, next_BV in _made_up(model):
        place_B = place_V[token_B]
        after_PV.index_add_(0, place_B[place_B >= 0], next_BV[place_B >= 0])
    return after_PV


def _made_up(model: KeyboardLM) -> Iterator[tuple[Tensor, Tensor]]:
    """Sentences that the model makes up, ``_ROWS`` side by side: last words ``[B]`` and what comes next ``[B, V]``."""
    random = torch.Generator().manual_seed(_SEED)
    token_B, state = torch.full((_ROWS,), BOS), model.initial_state(_ROWS)
    for _ in range(_STEPS):
        logits_B1V, state = model(token_B[:, None], state)
        logits_BV = logits_B1V[:, 0]
        # Neither is ever a next word; training says nothing about them.
        logits_BV[:, [PAD, BOS]] = -torch.inf
        next_BV = logits_BV.softmax(-1)
        yield token_B, next_BV
        # By inversion: ``multinomial`` would draw a number for every word of the vocabulary.
        total_BV = next_BV.cumsum(-1)
        if not bool(total_BV[:, -1].isfinite().all()):
            return
        drawn_B1 = torch.rand(_ROWS, 1, generator=random) * total_BV[:, -1:]
        token_B = torch.searchsorted(total_BV, drawn_B1, right=True)[:, 0].clamp(max=model.vocabulary_size - 1)
        ended_B = token_B == EOS
        token_B = token_B.masked_fill(ended_B, BOS)
        state = tuple(part.masked_fill(ended_B[:, None], 0.0) for part in state)


def _shares(weights_V: Tensor, left_out_V: Tensor) -> Tensor:
    """Probabilities among the words that are not left out."""
    kept_V = weights_V.masked_fill(left_out_V, 0.0)
    return kept_V / kept_V.sum()
