"""Word and next-word frequencies of a launch's models, in the form that a keyboard's dictionary holds.

Shape legend: B rows, V vocabulary, K last tokens that counts look at, P leading words, whose followers are listed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pretrain.dictionary.content import Word, fits, frequency
from pretrain.model import keyboard_lm as networks
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.ngrams.counted import CountedNGram, mixed
from pretrain.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

_SEED = 1
_ROWS, _STEPS = 256, 64
# Keyboards predict a next word from such a list alone, and the most frequent words are most often the last typed.
_LEADING_WORDS, _FOLLOWERS = 2000, 10
# Neither is ever a next word; training says nothing about them.
_NEVER = [PAD, BOS]


class _State(NamedTuple):
    """State of sentences side by side: last tokens for the counts, ``[B, K]``, and the network's own state."""

    last_BK: Tensor
    network: networks.State | None


@dataclass(frozen=True)
class Arm:
    """Models of a launch: a network, counts, or both, mixed as the comparison and the predictor mix them.

    Raises:
      ValueError: neither, or of vocabularies of two sizes.
    """

    network: KeyboardLM | None
    counts: CountedNGram | None

    def __post_init__(self) -> None:
        sizes = {part.vocabulary_size for part in (self.network, self.counts) if part is not None}
        if len(sizes) != 1:
            raise ValueError(f"arm: its parts have {sorted(sizes)} words; give a network, counts, or both of as many")

    @property
    def vocabulary_size(self) -> int:
        """Words of its vocabulary."""
        part = self.counts if self.network is None else self.network
        assert part is not None, "an arm has a part"
        return part.vocabulary_size

    def start(self, rows: int) -> _State:
        """State of a number of sentences, before ``<bos>``."""
        places = 1 if self.counts is None else self.counts.order - 1
        return _State(
            torch.full((rows, places), -1), None if self.network is None else self.network.initial_state(rows)
        )

    @torch.no_grad()
    def step(self, token_B: Tensor, state: _State, among_all: bool = True) -> tuple[Tensor, _State]:
        """Probabilities ``[B, V]`` of the next word after one more token each, and the new state.

        Args:
          among_all: False leaves out words that never come next.
        """
        last_BK = torch.cat([state.last_BK[:, 1:], token_B[:, None]], dim=1)
        of_network, network = None, None
        if self.network is not None:
            logits_B1V, network = self.network(token_B[:, None], state.network)
            if self.counts is None and not among_all:
                logits_B1V[:, :, _NEVER] = -torch.inf
            of_network = logits_B1V[:, 0].softmax(-1)
        if self.counts is None:
            assert of_network is not None, "an arm has a part"
            return of_network, _State(last_BK, network)
        of_counts = self.counts.dense(last_BK.numpy())
        next_BV = torch.from_numpy(of_counts if of_network is None else mixed(of_network.double().numpy(), of_counts))
        if not among_all:
            next_BV[:, _NEVER] = 0.0
            next_BV /= next_BV.sum(-1, keepdim=True)
        return next_BV, _State(last_BK, network)


@torch.no_grad()
def words_of(arm: Arm, vocabulary: Vocabulary) -> dict[str, Word]:
    """Every word with its frequency, and the likeliest followers of the most frequent ones.

    Special tokens, and words that no dictionary can hold, are left out; probabilities are shares among the others.
    A word's probability is the mean of the arm's next-word distribution over contexts of sentences that the
    arm itself makes up: what it would type, were it typing. A follower's is the mean over the contexts that end
    in the word before it: one at a sentence's start, the others wherever those sentences hold the word. No follower
    gets less than its frequency anywhere, since the binary format can only lift.

    Guarantee: reads the released weights, the released counts, the released vocabulary and a constant seed; no text
    and no noise. So it is post-processing of them: what the disclosure states for the model, the counts and the
    discovered words holds for the dictionary too, and writing it spends nothing.

    Raises:
      ArithmeticError: the arm's probabilities are no numbers.
    """
    left_out_V = torch.tensor(
        [number < len(SPECIALS) or not fits(word) for number, word in enumerate(vocabulary.words)]
    )
    unigram_V = _unigrams(arm, left_out_V)
    frequencies = {number: frequency(float(unigram_V[number])) for number in (~left_out_V).nonzero()[:, 0].tolist()}
    leading = sorted(frequencies, key=lambda number: (-float(unigram_V[number]), number))[:_LEADING_WORDS]
    words = {vocabulary.words[number]: Word(value) for number, value in frequencies.items()}
    for number, after_V in zip(leading, _after(arm, leading), strict=True):
        shares_V = _shares(after_V, left_out_V)
        best = shares_V.topk(min(_FOLLOWERS, len(leading))).indices.tolist()
        for follower in best:
            lifted = max(frequency(float(shares_V[follower])), frequencies[follower])
            words[vocabulary.words[number]].bigrams[vocabulary.words[follower]] = lifted
    return words


@torch.no_grad()
def word_scores(arm: Arm) -> np.ndarray:
    """Log-probability of each word without context, float32 ``[V]``, as a dictionary has it before rounding.

    ``<unk>`` has that of all words outside the vocabulary together, other special tokens none.

    Guarantee: that of ``words_of``: post-processing of released values.

    Raises:
      ArithmeticError: the arm's probabilities are no numbers.
    """
    words_V = torch.arange(arm.vocabulary_size)
    return _unigrams(arm, (words_V < len(SPECIALS)) & (words_V != UNK)).log().float().numpy()


def _unigrams(arm: Arm, left_out_V: Tensor) -> Tensor:
    """Share of each word, ``[V]``, among included words, in sentences sampled from the arm."""
    weight_V = torch.zeros(arm.vocabulary_size, dtype=torch.float64)
    for _, next_BV in _made_up(arm):
        weight_V += next_BV.sum(0, dtype=torch.float64)
    unigram_V = _shares(weight_V, left_out_V)
    if not bool(unigram_V.isfinite().all()):
        raise ArithmeticError("dictionary: the model's probabilities are not finite; train the model again")
    return unigram_V


def _after(arm: Arm, leading: list[int]) -> Tensor:
    """``[P, V]``: summed next-word distributions over the contexts that end in each leading word."""
    after_PV = torch.empty(len(leading), arm.vocabulary_size)
    for rows in torch.arange(len(leading)).split(_ROWS):
        _, begun = arm.step(torch.full((len(rows),), BOS), arm.start(len(rows)))
        after_PV[rows] = arm.step(torch.tensor(leading)[rows], begun)[0].float()
    place_V = torch.full((arm.vocabulary_size,), -1)
    place_V[leading] = torch.arange(len(leading))
    for token_B, next_BV in _made_up(arm):
        place_B = place_V[token_B]
        after_PV.index_add_(0, place_B[place_B >= 0], next_BV[place_B >= 0].float())
    return after_PV


def _made_up(arm: Arm) -> Iterator[tuple[Tensor, Tensor]]:
    """Sentences sampled from the arm, ``_ROWS`` side by side: last words ``[B]``, next-word shares ``[B, V]``."""
    random = torch.Generator().manual_seed(_SEED)
    token_B, state = torch.full((_ROWS,), BOS), arm.start(_ROWS)
    for _ in range(_STEPS):
        next_BV, state = arm.step(token_B, state, among_all=False)
        yield token_B, next_BV
        # By inversion: ``multinomial`` would draw a number for every word of the vocabulary.
        total_BV = next_BV.cumsum(-1)
        if not bool(total_BV[:, -1].isfinite().all()):
            return
        drawn_B1 = torch.rand(_ROWS, 1, generator=random) * total_BV[:, -1:]
        token_B = torch.searchsorted(total_BV, drawn_B1, right=True)[:, 0].clamp(max=arm.vocabulary_size - 1)
        ended_B1 = (token_B == EOS)[:, None]
        token_B = token_B.masked_fill(ended_B1[:, 0], BOS)
        network = state.network
        if network is not None:
            network = network[0].masked_fill(ended_B1, 0.0), network[1].masked_fill(ended_B1, 0.0)
        state = _State(state.last_BK.masked_fill(ended_B1, -1), network)


def _shares(weights_V: Tensor, left_out_V: Tensor) -> Tensor:
    """Probabilities among the words that are not left out."""
    kept_V = weights_V.masked_fill(left_out_V, 0.0)
    return kept_V / kept_V.sum()
