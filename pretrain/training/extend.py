"""Rows for new words, and further public training so that they fit in.

Shape legend: V vocabulary, E embedding, N new words, M contexts, B rows of a batch, T steps.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, save

from pretrain.config import AdaptConfig, PretrainConfig
from pretrain.files import write_bytes
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.batches import find_rows
from pretrain.text.vocabulary import EOS, PAD, SPECIALS, UNK, TokenStream, Vocabulary
from pretrain.training.new_words import new_word_loss
from pretrain.training.train import TrainingCurve, evaluate, pretrain

_NGRAM = 3
# Below this overlap, spelling says nothing about meaning ("gonna" and "gone" share a third).
_LEAST_SIMILARITY = 0.3
_CONTEXT_ROWS, _CONTEXT_WORDS = 500, 20


@dataclass(frozen=True)
class NewWords:
    """Words that extend a vocabulary, with their frequencies.

    Attributes:
      first: ids from here on are new.
      public: text in ids of the grown vocabulary, over whose contexts probabilities are averaged.
      frequency_N: float64, share of each among all typed words (``discovery.frequencies``); empty without new words.
      held_out: text that holds new words and is not trained on (``new_words.hold_back``).
    """

    first: int
    public: TokenStream
    frequency_N: np.ndarray
    held_out: TokenStream


def grow(
    model: KeyboardLM, old: Vocabulary, new: Vocabulary, similar: int = 5, public: TokenStream | None = None
) -> KeyboardLM:
    """A model for ``new``; the rows of all old words are unchanged.

    A new word starts as the average of up to ``similar`` known words spelt most like it (weighted
    by overlap of character trigrams), or as ``<unk>``, in whose place its uses stood so far. Its
    output bias is set so that over the contexts of ``public`` text its mean probability is that of
    ``<unk>`` over ``2 N`` for N new words; ``set_biases`` does better where it is known how often they are typed.
    Without public text it is the bias of ``<unk>`` less ``log(2 N)``, which comes to the same for words that start
    as ``<unk>`` and is far too low for others.

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
    grown = KeyboardLM(len(new), model.embedding_dim, model.hidden_dim, tied=model.tied, cell=model.cell)
    grown = grown.to(model.embedding.device)
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
        set_biases(grown, len(old), public)
    return grown


@torch.no_grad()
def set_biases(grown: KeyboardLM, first_new: int, public: TokenStream, frequency_N: np.ndarray | None = None) -> None:
    """Set the output bias of each new word so that over the contexts of public text it is as probable as it is typed.

    In place. Probabilities are against the sum over the old words, whose biases stay: a bias is the logarithm of the
    word's frequency, less what the contexts give the word anyway.

    Args:
      frequency_N: share of each among all typed words; None: half of what ``<unk>`` has, divided evenly.
    """
    rows = find_rows(public.tokens_N, _CONTEXT_WORDS)
    if not len(rows):
        return
    chosen = np.unique(np.linspace(0, len(rows) - 1, _CONTEXT_ROWS).astype(np.int64))
    inputs_BT, targets_BT = (part.to(grown.embedding.device) for part in rows.batch(chosen))
    features_BTE, _ = grown.features(torch.where(inputs_BT >= first_new, UNK, inputs_BT))
    features_ME = features_BTE[targets_BT != PAD]
    logits_MV = torch.addmm(grown.output_bias[:first_new], features_ME, grown.output_VE[:first_new].T)
    total_M1 = torch.logsumexp(logits_MV, dim=1, keepdim=True)
    fresh_N = torch.logsumexp(features_ME @ grown.output_VE[first_new:].T - total_M1, dim=0)
    if frequency_N is None:
        wanted_N = torch.logsumexp(logits_MV[:, UNK] - total_M1[:, 0], dim=0) - math.log(2 * len(fresh_N))
    else:
        words = int(((targets_BT != PAD) & (targets_BT != EOS)).sum())  # a frequency is among words, without their ends
        wanted_N = torch.from_numpy(np.log(frequency_N * words)).to(fresh_N)
    grown.output_bias[first_new:] = wanted_N - fresh_N


def similar_words(words: tuple[str, ...], vocabulary: Vocabulary, most: int) -> list[list[tuple[int, float]]]:
    """The known ids spelt like each word, with shares that sum to 1; empty if none is near.

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
    new: NewWords | None = None,
) -> TrainingCurve:
    """Train ``model`` in place on public text in its grown vocabulary; resumes as ``pretrain`` does.

    With 0 steps the model stays as it is and the curve has its one measurement. Text that is rich in new words
    teaches their contexts, and that they are frequent, which they are not. So where it is known how often they are
    typed their biases are set by that at every measurement, and of the models measured, the one of no step among
    them, that stays which predicts new words of held-out text best; where no held-out text has any, all words.

    Args:
      new: without it, the model of the last step stays.

    Returns:
      The curve up to the kept model, whose own numbers come last.

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
    )

    def measured(point: dict) -> None:
        if new is not None:  # Stored on disk, so that a resumed run measures only the remaining ones.
            write_bytes(_weights(directory, point["step"]), save(model.state_dict()))
        if on_progress is not None:
            on_progress(point)

    curve = pretrain(settings, model, train, validation, directory, seed, measured)
    return curve if new is None else _best(model, curve, new, validation, sequence_words, directory)


def _best(
    model: KeyboardLM,
    curve: TrainingCurve,
    new: NewWords,
    validation: TokenStream,
    sequence_words: int,
    directory: Path,
) -> TrainingCurve:
    """The model of a curve that predicts new words best, in place; the curve ends with it."""

    def put(step: int) -> None:
        model.load_state_dict(load(_weights(directory, step).read_bytes()))
        if len(new.frequency_N):
            set_biases(model, new.first, new.public, new.frequency_N)

    losses = []
    for point in curve.points:
        put(point.step)
        loss = new_word_loss(model, new.held_out, new.first, sequence_words)
        losses.append(evaluate(model, validation, sequence_words)[0] if loss is None else loss)
    place = int(np.argmin(losses))
    put(curve.points[place].step)
    loss, top1 = evaluate(model, validation, sequence_words)
    last = curve.points[place].model_copy(update={"validation_loss": loss, "validation_top1": top1})
    return TrainingCurve(points=(*curve.points[:place], last))


def _weights(directory: Path, step: int) -> Path:
    return directory / f"step-{step:08d}.safetensors"


def _ngrams(word: str) -> set[str]:
    padded = f"<{word}>"
    return {padded[first : first + _NGRAM] for first in range(max(1, len(padded) - _NGRAM + 1))}
