"""Arms of a comparison: each gives log-probabilities of the next word, for many sentences in step.

Shape legend: B sentences in step, V vocabulary, E embedding.

Every arm uses the ids of one vocabulary, the largest of the comparison; an arm with fewer words gives
the others probability 0. Probabilities are float64, so the number of sentences in step changes them by
far less than any difference that matters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from evaluation.inference import float64_copy, rows_of
from pretrain.model.keyboard_lm import KeyboardLM, placed
from pretrain.ngrams.counted import CountedNGram, mixed
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import BOS, SPECIALS, UNK, TokenStream, Vocabulary


class NextWord(Protocol):
    """An arm. ``State`` is opaque to callers."""

    @property
    def vocabulary_size(self) -> int:
        """Words of the comparison's vocabulary."""

    def start(self, earlier_B: Sequence[np.ndarray]) -> tuple[np.ndarray, Any]:
        """Log-probabilities ``[B, V]`` (nats) of first words, and the state after ``<bos>``.

        Args:
          earlier_B: ids of the device's earlier text for each sentence, for arms with memory.
        """

    def step(self, words_B: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """Log-probabilities ``[B, V]`` after one more word each, and the new state."""

    def rows(self, state: Any, rows_B: np.ndarray) -> Any:
        """The chosen sentences of a state."""


@dataclass(frozen=True)
class Neural:
    """A ``KeyboardLM``; make it with ``neural``."""

    model: KeyboardLM
    vocabulary_size: int

    def start(self, earlier_B: Sequence[np.ndarray]) -> tuple[np.ndarray, Any]:
        """See ``NextWord``; every sentence begins alike, so one stands for all."""
        log_probs_1V, state = self.step(np.array([BOS]), self.model.initial_state(1))
        all_B = np.zeros(len(earlier_B), dtype=np.int64)
        return log_probs_1V[all_B], self.rows(state, all_B)

    @torch.no_grad()
    def step(self, words_B: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """See ``NextWord``; ArithmeticError if the model's logits are not finite."""
        known_B = np.where(words_B < self.model.vocabulary_size, words_B, UNK)
        known_B1 = torch.as_tensor(known_B[:, None], device=self.model.embedding.device)
        features_B1E, state = self.model.features(known_B1, state)
        logits_BV = torch.addmm(self.model.output_bias, features_B1E[:, 0], self.model.output_VE.T)
        total_B1 = torch.logsumexp(logits_BV, dim=1, keepdim=True)
        if not bool(torch.isfinite(total_B1).all()):
            raise ArithmeticError("the model's logits are not finite, so nothing can be predicted")
        return _padded(logits_BV.sub_(total_B1).cpu().numpy(), self.vocabulary_size), state

    def rows(self, state: Any, rows_B: np.ndarray) -> Any:
        """See ``NextWord``."""
        return rows_of(state, torch.as_tensor(rows_B, device=self.model.embedding.device))


def neural(model: KeyboardLM, vocabulary_size: int | None = None, device: str = "cpu") -> Neural:
    """A model as an arm, in its own vocabulary or in a larger one that begins with it.

    Args:
      vocabulary_size: of the comparison, if the model's own is smaller; its ids must come first there.
      device: ``runtime.device`` for its predictions.

    Raises:
      ValueError: the model's vocabulary is larger than the comparison's.
      OSError: a GPU is requested but missing.
    """
    size = model.vocabulary_size if vocabulary_size is None else vocabulary_size
    if size < model.vocabulary_size:
        raise ValueError(
            f"vocabulary_size: {size} is below the model's {model.vocabulary_size}; compare in the largest vocabulary"
        )
    return Neural(float64_copy(placed(model, device)), size)


@dataclass(frozen=True)
class PublicNGram:
    """An n-gram model, with or without adaptation by private counts; the state holds the last ``order - 1`` tokens.

    Before the sentence it holds -1.
    """

    ngram: NGram | CountedNGram

    @property
    def vocabulary_size(self) -> int:
        """Words of its vocabulary."""
        return self.ngram.vocabulary_size

    def start(self, earlier_B: Sequence[np.ndarray]) -> tuple[np.ndarray, Any]:
        """See ``NextWord``; every sentence begins alike, so one stands for all."""
        nothing = np.full((1, max(self.ngram.order - 1, 1)), -1, dtype=np.int64)
        log_probs_1V, state = self.step(np.array([BOS]), nothing)
        all_B = np.zeros(len(earlier_B), dtype=np.int64)
        return log_probs_1V[all_B], self.rows(state, all_B)

    def step(self, words_B: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        last = np.concatenate([state[:, 1:], np.asarray(words_B, dtype=np.int64)[:, None]], axis=1)
        with np.errstate(divide="ignore"):
            return np.log(self.ngram.dense(last)), last

    def rows(self, state: Any, rows_B: np.ndarray) -> Any:
        """See ``NextWord``."""
        return state[rows_B]


@dataclass(frozen=True)
class Constant:
    """The same suggestions everywhere, by how often words are typed: a model that has learnt no context; stateless.

    Attributes:
      log_probs_V: float64, nats.
    """

    log_probs_V: np.ndarray

    @classmethod
    def fit(cls, text: TokenStream, vocabulary: Vocabulary) -> "Constant":
        """Count the words of text in the vocabulary's ids, each half a time more."""
        count_V = np.bincount(text.tokens_N, minlength=len(vocabulary)) + 0.5
        count_V[: len(SPECIALS)] = 0.5
        return cls(np.log(count_V / count_V.sum()))

    @property
    def vocabulary_size(self) -> int:
        """Words of its vocabulary."""
        return len(self.log_probs_V)

    def start(self, earlier_B: Sequence[np.ndarray]) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        return np.tile(self.log_probs_V, (len(earlier_B), 1)), None

    def step(self, words_B: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        return np.tile(self.log_probs_V, (len(words_B), 1)), state

    def rows(self, state: Any, rows_B: np.ndarray) -> Any:
        """See ``NextWord``."""
        return state


@dataclass(frozen=True)
class Mixture:
    """A network and counts, mixed word by word as a published bundle does; the state is that of both."""

    network: NextWord
    counts: NextWord

    @property
    def vocabulary_size(self) -> int:
        """Words of both."""
        return self.network.vocabulary_size

    def start(self, earlier_B: Sequence[np.ndarray]) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        return _mixed(self.network.start(earlier_B), self.counts.start(earlier_B))

    def step(self, words_B: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        return _mixed(self.network.step(words_B, state[0]), self.counts.step(words_B, state[1]))

    def rows(self, state: Any, rows_B: np.ndarray) -> Any:
        """See ``NextWord``."""
        return self.network.rows(state[0], rows_B), self.counts.rows(state[1], rows_B)


def _mixed(network: tuple[np.ndarray, Any], counts: tuple[np.ndarray, Any]) -> tuple[np.ndarray, Any]:
    with np.errstate(divide="ignore"):
        return np.log(mixed(np.exp(network[0]), np.exp(counts[0]))), (network[1], counts[1])


@dataclass(frozen=True)
class VocabularyAdapter:
    """An arm with a vocabulary of its own, such as the champion of an earlier launch; make it with ``translated``.

    Attributes:
      theirs_V: int64, the arm's id of each word of the comparison, -1 for words it lacks.
    """

    arm: NextWord
    theirs_V: np.ndarray

    @property
    def vocabulary_size(self) -> int:
        """Words of the comparison."""
        return len(self.theirs_V)

    def start(self, earlier_B: Sequence[np.ndarray]) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        log_probs_BV, state = self.arm.start([self._ids(earlier) for earlier in earlier_B])
        return self._ours(log_probs_BV), state

    def step(self, words_B: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        log_probs_BV, state = self.arm.step(self._ids(words_B), state)
        return self._ours(log_probs_BV), state

    def rows(self, state: Any, rows_B: np.ndarray) -> Any:
        """See ``NextWord``."""
        return self.arm.rows(state, rows_B)

    def _ids(self, words: np.ndarray) -> np.ndarray:
        theirs = self.theirs_V[np.asarray(words, dtype=np.int64)]
        return np.where(theirs >= 0, theirs, UNK)

    def _ours(self, log_probs_BV: np.ndarray) -> np.ndarray:
        return np.where(self.theirs_V >= 0, log_probs_BV[:, self.theirs_V], -np.inf)


def translated(arm: NextWord, spoken: Vocabulary, comparison: Vocabulary) -> VocabularyAdapter:
    """An arm with vocabulary ``spoken`` in the ids of ``comparison``.

    It never suggests a word that only ``spoken`` holds: for a fair comparison, extend the comparison's
    vocabulary by ``spoken.words`` first (``vocabulary.extend``).

    Raises:
      ValueError: ``spoken`` is not the arm's vocabulary.
    """
    if len(spoken) != arm.vocabulary_size:
        raise ValueError(
            f"spoken: {len(spoken)} words, the arm speaks {arm.vocabulary_size}; give the arm's vocabulary"
        )
    return VocabularyAdapter(arm, np.array([spoken.index.get(word, -1) for word in comparison.words], dtype=np.int64))


def _padded(log_probs_BV: np.ndarray, size: int) -> np.ndarray:
    missing = size - log_probs_BV.shape[1]
    if not missing:
        return log_probs_BV
    return np.pad(log_probs_BV, ((0, 0), (0, missing)), constant_values=-np.inf)
