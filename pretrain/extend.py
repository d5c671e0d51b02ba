"""Rows for new words, and further public training so that they fit in.

Shape legend: V vocabulary, E embedding, N new words, M contexts, B rows of a batch, T steps.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pretrain.batches import find_rows
from pretrain.config import AdaptConfig, PretrainConfig
from pretrain.model import KeyboardLM
from pretrain.train import TrainingCurve, pretrain
from pretrain.vocabulary import PAD, SPECIALS, UNK, TokenStream, Vocabulary

_NGRAM = 3
# Below this overlap, spelling says nothing about meaning ("gonna" and "gone" share a third).
_LEAST_SIMILARITY = 0.3
_CONTEXT_ROWS, _CONTEXT_WORDS = 500, 20


def grow(
    model: KeyboardLM, old: Vocabulary, new: Vocabulary, similar: int = 5, public: TokenStream | None = None
) -> KeyboardLM:
    """A model for ``new``; the rows of all old words are unchanged.

    A new word starts as the average of up to ``similar`` known words spelt most like it (weighted
    by overlap of character trigrams), or as ``<unk>``, in whose place its uses stood so far. Its
    output bias is set so that over the contexts of ``public`` text its mean probability is that of
    ``<unk>`` over ``2 N`` for N new words. Without public text it is the bias of ``<unk>`` less
    ``log(2 N)``, which comes to the same for words that start as ``<unk>`` and is far too low for others.

    Args:
      public: text in ids of ``new``.

    Raises:
      ValueError: the model is not of ``old``, or ``new`` does not begin with the words of ``old``.
    """
    if model.vocabulary_size != len(old):
        raise ValueError(f"old: {len(old)} words, but the model has {model.vocabulary_size} rows; pass its vocabulary")
    if new.words[: len(old)] != old.words:
        raise ValueError("new: must begin with the words of old, ids unchanged; use vocabulary.extend")
    fresh = new.words[len(old) :]
    grown = KeyboardLM(len(new), model.embedding_dim, model.hidden_dim, tied=model.tied).to(model.embedding.device)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if fresh:
        mix_NV = torch.zeros(len(fresh), len(old), device=model.embedding.device)
        for row, neighbours in enumerate(similar_words(fresh, old, similar)):
            for word, share in neighbours or [(UNK, 1.0)]:
                mix_NV[row, word] = share
        for name in ("embedding", "output"):
            if name in weights:
                weights[name] = torch.cat([weights[name], mix_NV @ weights[name]])
        bias = weights["output_bias"]
        fresh_bias = (bias[UNK] - math.log(2 * len(fresh))).expand(len(fresh))
        weights["output_bias"] = torch.cat([bias, fresh_bias])
    grown.load_state_dict(weights)
    if fresh and public is not None:
        _set_biases(grown, len(old), public)
    return grown


@torch.no_grad()
def _set_biases(grown: KeyboardLM, first_new: int, public: TokenStream) -> None:
    """Give each new word half of the mean probability of ``<unk>`` over their number, in place."""
    rows = find_rows(public.tokens_N, _CONTEXT_WORDS)
    if not len(rows):
        return
    chosen = np.unique(np.linspace(0, len(rows) - 1, _CONTEXT_ROWS).astype(np.int64))
    inputs_BT, targets_BT = (part.to(grown.embedding.device) for part in rows.batch(chosen))
    features_BTE, _ = grown.features(torch.where(inputs_BT >= first_new, UNK, inputs_BT))
    features_ME = features_BTE[targets_BT != PAD]
    logits_MV = torch.addmm(grown.output_bias[:first_new], features_ME, grown.output_VE[:first_new].T)
    total_M1 = torch.logsumexp(logits_MV, dim=1, keepdim=True)
    unk = torch.logsumexp(logits_MV[:, UNK] - total_M1[:, 0], dim=0)
    fresh_N = torch.logsumexp(features_ME @ grown.output_VE[first_new:].T - total_M1, dim=0)
    grown.output_bias[first_new:] = unk - math.log(2 * len(fresh_N)) - fresh_N


def similar_words(words: tuple[str, ...], vocabulary: Vocabulary, most: int) -> list[list[tuple[int, float]]]:
    """For each word, known ids spelt like it with shares that sum to 1; empty if none is near.

    Similarity is the Dice coefficient of character trigram sets, word edges included; ties go to
    the smaller id, which is the more frequent word.
    """
    holders: dict[str, list[int]] = defaultdict(list)
    sizes = np.zeros(len(vocabulary), dtype=np.int64)
    for number, word in enumerate(vocabulary.words[len(SPECIALS) :], start=len(SPECIALS)):
        grams = _ngrams(word)
        sizes[number] = len(grams)
        for gram in grams:
            holders[gram].append(number)
    similar = []
    for word in words:
        grams = _ngrams(word)
        shared = Counter(number for gram in grams for number in holders.get(gram, ()))
        scores = {number: 2 * count / (len(grams) + int(sizes[number])) for number, count in shared.items()}
        near = [(number, score) for number, score in scores.items() if score >= _LEAST_SIMILARITY]
        near = sorted(near, key=lambda item: (-item[1], item[0]))[:most]
        total = sum(score for _, score in near)
        similar.append([(number, score / total) for number, score in near])
    return similar


def adapt(
    config: AdaptConfig,
    model: KeyboardLM,
    train: TokenStream,
    validation: TokenStream,
    sequence_words: int,
    seed: int,
    directory: Path,
    on_progress: Callable[[dict], None] | None = None,
) -> TrainingCurve:
    """Train ``model`` in place on public text in its grown vocabulary; resumes as ``pretrain`` does.

    With 0 steps the model stays as it is and the curve has its one measurement.

    Raises:
      ValueError, ArithmeticError: as ``pretrain``.
    """
    quarter = max(1, config.steps // 4)
    # Not validated again: PretrainConfig wants at least one step, and 0 is right here.
    settings = PretrainConfig.model_construct(
        steps=config.steps,
        batch_sentences=config.batch_sentences,
        sequence_words=sequence_words,
        learning_rate=config.learning_rate,
        evaluate_every_steps=quarter,
        checkpoint_every_steps=quarter,
    )
    return pretrain(settings, model, train, validation, directory, seed, on_progress)


def _ngrams(word: str) -> set[str]:
    padded = f"<{word}>"
    return {padded[first : first + _NGRAM] for first in range(max(1, len(padded) - _NGRAM + 1))}
