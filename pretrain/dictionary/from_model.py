"""A model's words and what follows them, as a keyboard's dictionary holds them.

Shape legend: B rows, V vocabulary, P leading words, whose followers are listed.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from pretrain.dictionary.content import Word, fits, frequency
from pretrain.model import KeyboardLM
from pretrain.ngrams.counted import CountedNGram
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
    return _listed(_typed(model), lambda leading: _after(model, leading), vocabulary)


def words_of_counts(model: CountedNGram, vocabulary: Vocabulary) -> dict[str, Word]:
    """The same of counts that ship alone: words as they are anywhere, and after each leading word.

    Guarantee: reads the released counts and the released vocabulary alone, so it is post-processing of them.

    Raises:
      ArithmeticError: the model's probabilities are no numbers.
    """

    def after(leading: list[int]) -> Tensor:
        return torch.from_numpy(model.dense(_after_word(leading, model.order - 1)))

    return _listed(_anywhere(model), after, vocabulary)


def _anywhere(model: CountedNGram) -> Tensor:
    """Next-word distribution ``[V]`` of counts where nothing stands before."""
    return torch.from_numpy(model.dense(np.full((1, model.order - 1), -1, dtype=np.int64))[0])


def _after_word(leading: list[int], places: int) -> np.ndarray:
    """``[P, places]``: each word last, and nothing before it."""
    last_PK = np.full((len(leading), places), -1, dtype=np.int64)
    last_PK[:, -1] = leading
    return last_PK


def _listed(weight_V: Tensor, after: Callable[[list[int]], Tensor], vocabulary: Vocabulary) -> dict[str, Word]:
    """Words with their frequencies, and the likeliest followers of those that lead.

    Args:
      weight_V: how often each word comes, up to a factor. after: the same after each of some words, ``[P, V]``.
    """
    left_out_V = torch.tensor(
        [number < len(SPECIALS) or not fits(word) for number, word in enumerate(vocabulary.words)]
    )
    unigram_V = _unigrams(weight_V, left_out_V)
    frequencies = {number: frequency(float(unigram_V[number])) for number in (~left_out_V).nonzero()[:, 0].tolist()}
    leading = sorted(frequencies, key=lambda number: (-float(unigram_V[number]), number))[:_LEADING_WORDS]
    words = {vocabulary.words[number]: Word(value) for number, value in frequencies.items()}
    for number, after_V in zip(leading, after(leading), strict=True):
        shares_V = _shares(after_V, left_out_V)
        best = shares_V.topk(min(_FOLLOWERS, len(leading))).indices.tolist()
        for follower in best:
            lifted = max(frequency(float(shares_V[follower])), frequencies[follower])
            words[vocabulary.words[number]].bigrams[vocabulary.words[follower]] = lifted
    return words


@torch.no_grad()
def word_scores(model: KeyboardLM | CountedNGram) -> np.ndarray:
    """Log-probability of each word without context, float32 ``[V]``, as a dictionary has it before rounding.

    ``<unk>`` has that of all words outside the vocabulary together, other special tokens none.

    Guarantee: as of ``words_of_model``, post-processing of what is released.

    Raises:
      ArithmeticError: the model's probabilities are no numbers.
    """
    words_V = torch.arange(model.vocabulary_size)
    weight_V = _anywhere(model) if isinstance(model, CountedNGram) else _typed(model)
    return _unigrams(weight_V, (words_V < len(SPECIALS)) & (words_V != UNK)).log().float().numpy()


def _typed(model: KeyboardLM) -> Tensor:
    """Sum of next-word distributions ``[V]`` over sentences that the model makes up."""
    weight_V = torch.zeros(model.vocabulary_size, dtype=torch.float64)
    for _, next_BV in _made_up(model):
        weight_V += next_BV.sum(0, dtype=torch.float64)
    return weight_V


def _unigrams(weight_V: Tensor, left_out_V: Tensor) -> Tensor:
    """Shares of each word among what is not left out."""
    unigram_V = _shares(weight_V, left_out_V)
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
