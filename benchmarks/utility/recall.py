"""Top-1 recall of networks, n-grams and their mixtures, by person, and the gain of one over another.

Shape legend: N tokens, D people, M words to predict, K tokens before, V vocabulary, A arms,
B rows, T steps, E features.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.ngrams.counted import CountedNGram, mixed
from pretrain.ngrams.ngram import NGram
from pretrain.text.batches import find_rows, preceding
from pretrain.text.vocabulary import SPECIALS, UNK, TokenStream

# Probabilities held at once.
_MOST_NUMBERS = 4_000_000


@dataclass(frozen=True)
class Arm:
    """Predictor: a network, an n-gram, or the two mixed half and half; an absent one is None."""

    network: KeyboardLM | None
    counts: CountedNGram | NGram | None


def hits(people: TokenStream, arms: Sequence[Arm], sequence_words: int) -> np.ndarray:
    """Words that each arm ranks first, by person: int64 ``[A, D]``. Specials are never suggested."""
    hits_AD = np.zeros((len(arms), len(people)), dtype=np.int64)
    for owner_M, meant_M, chances in predictions(people, arms, sequence_words):
        for hits_D, chance_MV in zip(hits_AD, chances, strict=True):
            best_M = chance_MV[:, len(SPECIALS) :].argmax(axis=1) + len(SPECIALS)
            hits_D += np.bincount(owner_M[best_M == meant_M], minlength=len(people))
    return hits_AD


def predictions(
    people: TokenStream, arms: Sequence[Arm], sequence_words: int
) -> Iterator[tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
    """Every word of the vocabulary that people typed: its owner ``[M]``, the word ``[M]``, chances ``[M, V]`` by arm.

    Every network and every table of counts is asked once, however many arms share it.
    """
    networks = {id(arm.network): arm.network for arm in arms if arm.network is not None}
    tables = {id(arm.counts): arm.counts for arm in arms if arm.counts is not None}
    rows = find_rows(people.tokens_N, sequence_words)
    sizes = [model.vocabulary_size for model in networks.values()] + [
        table.vocabulary_size for table in tables.values()
    ]
    longest = max((table.order - 1 for table in tables.values()), default=1)
    at_once = max(1, _MOST_NUMBERS // (max(sizes) * sequence_words))
    order_R = np.argsort(rows.length_R, kind="stable")
    for first in range(0, len(order_R), at_once):
        batch_B = order_R[first : first + at_once]
        inputs_BT, targets_BT = rows.batch(batch_B)
        known_BT = (targets_BT > UNK).numpy()
        place_M = (rows.start_R[batch_B][:, None] + np.arange(known_BT.shape[1]))[known_BT]
        if not len(place_M):
            continue
        owner_M = np.searchsorted(people.offsets_D1, place_M, side="right") - 1
        last_MK = preceding(people.tokens_N, place_M, longest)
        chances = {name: _chances(model, inputs_BT, known_BT) for name, model in networks.items()}
        chances |= {name: table.dense(last_MK) for name, table in tables.items()}
        each = [[chances[id(part)] for part in (arm.network, arm.counts) if part is not None] for arm in arms]
        yield owner_M, people.tokens_N[place_M], [parts[0] if len(parts) == 1 else mixed(*parts) for parts in each]


def words_typed(people: TokenStream) -> np.ndarray:
    """Words that each person typed, those outside the vocabulary among them: int64 ``[D]``."""
    owner_N = np.repeat(np.arange(len(people)), np.diff(people.offsets_D1))
    return np.bincount(owner_N[people.tokens_N >= UNK], minlength=len(people))


def gain(hits_D: np.ndarray, start_D: np.ndarray, words_D: np.ndarray) -> tuple[float, float]:
    """Recall over the start's, and its paired standard error; people are the sample, not words.

    The error is that of a ratio of sums, linearised (Cochran 1977, section 6.4). It is about people alone: noise and
    cohorts are drawn once.

    Raises:
      ValueError: fewer than two people, or none who typed.
    """
    people, total = len(words_D), words_D.sum()
    if people < 2 or not total:
        raise ValueError(f"held-out text: {people} people with {total} words; use more public text")
    value = (hits_D - start_D).sum() / total
    residual_D = hits_D - start_D - value * words_D
    return float(value), float(np.sqrt(people / (people - 1) * np.sum(residual_D**2)) / total)


@torch.no_grad()
def _chances(model: KeyboardLM, inputs_BT: torch.Tensor, known_BT: np.ndarray) -> np.ndarray:
    features_BTE, _ = model.features(inputs_BT)
    features_ME = features_BTE[torch.from_numpy(known_BT)]
    logits_MV = torch.addmm(model.output_bias, features_ME, model.output_VE.T)
    return torch.softmax(logits_MV, dim=1).numpy()
