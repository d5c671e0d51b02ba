"""An n-gram model as an ARPA file, the text format that language-model tools read."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from evaluation.arms.ngram import NGram
from pretrain.vocabulary import BOS, EOS, PAD, Vocabulary

# The names that tools expect for sentence ends.
_SPELLED = {BOS: "<s>", EOS: "</s>"}
# No probability: what lmplz writes for <s>, which is never predicted.
_NONE = "0"
_NO_BACKOFF = -99.0


def write(ngram: NGram, vocabulary: Vocabulary, path: Path) -> None:
    """Write log10 probabilities and back-off weights of every k-gram.

    Raises:
      ValueError: the model was fitted in another vocabulary.
    """
    if len(vocabulary) != ngram.vocabulary_size:
        raise ValueError(
            f"vocabulary: {len(vocabulary)} words, the model has {ngram.vocabulary_size}; give the one it was fitted in"
        )
    with path.open("w", encoding="utf-8") as file:
        file.writelines(_lines(ngram, vocabulary))


def _lines(ngram: NGram, vocabulary: Vocabulary) -> Iterator[str]:
    spelled = [_SPELLED.get(number, word) for number, word in enumerate(vocabulary.words)]
    texts = [""]
    yield "\\data\\\n"
    for length, level in enumerate(ngram.levels, start=1):
        yield f"ngram {length}={len(level.key_G) - (length == 1)}\n"
    for length, level in enumerate(ngram.levels, start=1):
        yield f"\n\\{length}-grams:\n"
        context_G, word_G = np.divmod(level.key_G, ngram.vocabulary_size)
        before = texts if length > 1 else [""] * (int(context_G.max()) + 1)
        texts = [f"{before[context]} {spelled[word]}".lstrip() for context, word in zip(context_G, word_G, strict=True)]
        with np.errstate(divide="ignore"):
            prob_G = np.log10(level.prob_G)
            backoff_G = np.maximum(np.log10(level.backoff_G), _NO_BACKOFF)
        last = length == ngram.order
        for text, word, prob, backoff in zip(texts, word_G, prob_G, backoff_G, strict=True):
            if length == 1 and word == PAD:
                continue
            shown = _NONE if length == 1 and word == BOS else f"{prob:.9g}"
            # A k-gram that ends a sentence is nobody's context.
            yield f"{shown}\t{text}\n" if last or word == EOS else f"{shown}\t{text}\t{backoff:.9g}\n"
    yield "\n\\end\\\n"
