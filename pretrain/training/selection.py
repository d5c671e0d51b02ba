"""Importance resampling of public sentences by their likelihood ratio under a private and a public model.

Importance resampling (Rubin 1987): text drawn from q, taken with weight p / q, is distributed like p. p is
what people type, as far as a published model knows it; q is the public text, by a model of it that has not
read the sentence. Weights are per word, so that long sentences are not all or nothing, and bounded.

Guarantee: a function of public text, of a model that was already released under its own guarantee, and of a
seed. Post-processing costs nothing; there is no access to anything else.

Shape legend: S sentences, N tokens, R rows.
"""

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.ngrams.ngram import NGram
from pretrain.text.batches import find_rows
from pretrain.text.vocabulary import EOS, PAD, TokenStream, Vocabulary

# Bound on the weight of a sentence, up and down, relative to one with equal likelihoods.
MOST_WEIGHT = 10.0
# Words of the public model that sentences are weighed against, context and next word together.
_PUBLIC_ORDER = 3
_ROWS_AT_ONCE = 128


def targets(stream: TokenStream) -> np.ndarray:
    """int64 ``[S]``: words of each sentence, its end included."""
    return np.diff(np.flatnonzero(stream.tokens_N == EOS), prepend=-1)


@torch.no_grad()
def log_probabilities(model: KeyboardLM, stream: TokenStream, sequence_words: int) -> np.ndarray:
    """float64 ``[S]``: log-probability of each sentence in nats, its end included.

    A sentence longer than ``sequence_words`` is read in pieces, as in training.
    """
    rows = find_rows(stream.tokens_N, sequence_words)
    log_R = np.zeros(len(rows))
    order_R = np.argsort(rows.length_R, kind="stable")
    device = model.embedding.device
    for first in range(0, len(order_R), _ROWS_AT_ONCE):
        rows_B = order_R[first : first + _ROWS_AT_ONCE]
        inputs_BT, targets_BT = (tensor.to(device) for tensor in rows.batch(rows_B))
        logits_BTV, _ = model(inputs_BT)
        nats_BT = functional.cross_entropy(logits_BTV.transpose(1, 2), targets_BT, ignore_index=PAD, reduction="none")
        log_R[rows_B] = -nats_BT.sum(dim=1).double().cpu().numpy()
    words_S = targets(stream)
    sentence_R = np.repeat(np.arange(len(words_S)), -(-words_S // sequence_words))
    return np.bincount(sentence_R, weights=log_R, minlength=len(words_S))


def unread(stream: TokenStream, words: Vocabulary, folder: Path | None = None) -> np.ndarray:
    """float64 ``[S]``: log-probability of each sentence by an n-gram of the other half of the documents.

    An n-gram that has read a sentence finds it likelier than any other model would.

    Args:
      folder: see ``NGram.fit``.
    """
    owner_N = np.repeat(np.arange(len(stream)), np.diff(stream.offsets_D1))
    log_N = np.zeros(len(stream.tokens_N))
    for half in (0, 1):
        mine, others = (stream.select(np.arange(first, len(stream), 2)) for first in (half, 1 - half))
        if len(mine):
            log_N[owner_N % 2 == half] = NGram.fit(others, words, _PUBLIC_ORDER, folder).log_probabilities(mine)
    words_S = targets(stream)
    return np.add.reduceat(log_N, np.cumsum(words_S) - words_S)


def importance(private_S: np.ndarray, public_S: np.ndarray, words_S: np.ndarray) -> np.ndarray:
    """Weights ``[S]`` from log-probabilities: the ratio per word, at most ``MOST_WEIGHT`` and at least 1 over it."""
    bound = np.log(MOST_WEIGHT)
    return np.exp(np.clip((private_S - public_S) / words_S, -bound, bound))


def copies(weight_S: np.ndarray, seed: int) -> np.ndarray:
    """int64 ``[S]``: number of copies of each sentence; the total stays the same.

    Systematic: a sentence of share w is taken floor(S w) or ceil(S w) times, S w on average.
    """
    edge_S = np.cumsum(weight_S) * (len(weight_S) / weight_S.sum())
    first = np.random.default_rng((seed, 0x5E1EC7)).random()
    # Marks lie at first, first + 1, ...; rounding must not lose the last.
    below_S = np.clip(np.ceil(edge_S - first), 0, len(weight_S)).astype(np.int64)
    below_S[-1:] = len(weight_S)
    return np.diff(below_S, prepend=0)


def resampled(stream: TokenStream, copies_S: np.ndarray) -> TokenStream:
    """Each sentence with its number of copies, in its place; owners are unchanged."""
    words_S = targets(stream)
    start_S = np.cumsum(words_S) - words_S
    taken = np.repeat(np.arange(len(words_S)), copies_S)
    length = words_S[taken]
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    tokens = stream.tokens_N[np.repeat(start_S[taken], length) + within]
    # Ends of owners among the original sentences become ends among the copies.
    sentences_D1 = np.searchsorted(start_S, stream.offsets_D1, side="left")
    words_before = np.concatenate([[0], np.cumsum(words_S * copies_S)])
    return TokenStream(tokens, words_before[sentences_D1])


def effective_share(weight_S: np.ndarray) -> float:
    """Kish's effective sample size as a share of the sentences."""
    return float(weight_S.sum() ** 2 / (len(weight_S) * np.square(weight_S).sum()))
