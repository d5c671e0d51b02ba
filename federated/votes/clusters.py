"""Public sentences in groups that are alike to the public model, so that devices can say which are like theirs.

A sentence's vector is the mean of the public model's word vectors, frequent words weighing less, less what all
sentences have in common (Arora, Liang and Ma 2017). Groups are found by k-means on the unit sphere.

Guarantee: a function of public text, of a model of it and of a public seed.

Shape legend: V vocabulary, E width of a word's vector, S sentences, K groups.
"""

from dataclasses import dataclass

import numpy as np

from pretrain.vocabulary import EOS, SPECIALS, TokenStream

# A word of this share of public text weighs half.
_HALF_WEIGHT = 1e-3
_FITTED, _STEPS, _AT_ONCE = 20_000, 15, 50_000
# So few that some hundred devices are heard over the noise of a tenth of rho 0.5.
GROUPS = 256


@dataclass(frozen=True)
class Groups:
    """What sentences are compared with. Public.

    Attributes:
      vector_VE: float64, of each word, weighted; 0 for those that say nothing of a sentence.
      common_E: what is taken away from each sentence.
      centre_KE: unit vectors.
    """

    vector_VE: np.ndarray
    common_E: np.ndarray
    centre_KE: np.ndarray

    def nearest(self, tokens_N: np.ndarray) -> np.ndarray:
        """int64 ``[S]``, the group of each sentence; -1 where it has no known word."""
        sentence_SE = _sentences(tokens_N, self.vector_VE)
        known_S = np.any(sentence_SE != 0, axis=1)
        sentence_SE = _unit(sentence_SE) - self.common_E
        group_S = np.empty(len(sentence_SE), dtype=np.int64)
        for first in range(0, len(group_S), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            group_S[part] = np.argmax(sentence_SE[part] @ self.centre_KE.T, axis=1)
        return np.where(known_S, group_S, -1)


def group(public: TokenStream, embedding_VE: np.ndarray, groups: int, seed: int) -> Groups:
    """Groups of public sentences.

    Args:
      embedding_VE: the public model's word vectors.

    Raises:
      ValueError: fewer sentences than groups.
    """
    count_V = np.bincount(public.tokens_N, minlength=len(embedding_VE)).astype(np.float64)
    weight_V = _HALF_WEIGHT / (_HALF_WEIGHT + count_V / count_V.sum())
    weight_V[: len(SPECIALS)] = 0.0
    vector_VE = weight_V[:, None] * embedding_VE.astype(np.float64)
    sentence_SE = _sentences(public.tokens_N, vector_VE)
    sentence_SE = _unit(sentence_SE[np.any(sentence_SE != 0, axis=1)])
    if len(sentence_SE) < groups:
        raise ValueError(f"public: {len(sentence_SE)} sentences for {groups} groups; give more public text")
    random = np.random.default_rng((seed, 0x6E05))
    some_SE = sentence_SE[random.permutation(len(sentence_SE))[:_FITTED]]
    common_E = some_SE.mean(axis=0)
    some_SE = _unit(some_SE - common_E)
    centre_KE = some_SE[:groups]
    for _ in range(_STEPS):
        group_S = np.argmax(some_SE @ centre_KE.T, axis=1)
        sum_KE = np.zeros_like(centre_KE)
        np.add.at(sum_KE, group_S, some_SE)
        # A group that lost all its sentences stays where it was.
        centre_KE = np.where(np.any(sum_KE != 0, axis=1)[:, None], _unit(sum_KE), centre_KE)
    return Groups(vector_VE, common_E, centre_KE)


def _sentences(tokens_N: np.ndarray, vector_VE: np.ndarray) -> np.ndarray:
    """``[S, E]``, the sum of each sentence's word vectors; each ends with ``<eos>``."""
    ends = np.flatnonzero(tokens_N == EOS)
    sum_SE = np.zeros((len(ends), vector_VE.shape[1]))
    owner_N = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=-1))
    for first in range(0, len(owner_N), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        np.add.at(sum_SE, owner_N[part], vector_VE[tokens_N[part]])
    return sum_SE


def _unit(vector_SE: np.ndarray) -> np.ndarray:
    length_S = np.linalg.norm(vector_SE, axis=1, keepdims=True)
    return vector_SE / np.where(length_S > 0, length_S, 1.0)
